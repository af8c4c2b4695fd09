"""The log of a real master as an operator finds it: whole lines, each with its time, at the default level."""

from __future__ import annotations

import re

from mgpu_jupyter.master.event_log import AT_ONCE
from tests.e2e.cluster import Cluster

TIMED = re.compile(
    r"(?:\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} [A-Z]+ mgpu\.|\[[DIWEC] \d{4}-\d\d-\d\d [\d:.]+ \w+\] )"
)
EVENT = re.compile(r"\S+ \S+ ([A-Z]+) mgpu\.events (.*)")
MASKS = (
    (re.compile(r"(job_id|array)=[A-Z0-9]{8}"), r"\1=ID"),
    (re.compile(r"\d[\d.]* (?:ms|s|m \d\d s)\b"), "SOME TIME"),
    (re.compile(r"host \S+,"), "host HOST,"),
    (re.compile(r"by \w+:|by \w+(?=\.$)|of \w+ (?=started|completed|failed|attempt|was)"), "USER "),
    (re.compile(r"(?:\d{4}-\d\d-\d\d )?\d\d:\d\d:\d\d UTC"), "THEN"),
    (re.compile(r"The node could not prepare the job's files: \[Errno 20\] [\w ]*: '\S*'"), "WHY"),
    (re.compile(r"command not found on this node\."), "WHY"),
    (re.compile(r"It could not be started on n1: WHY"), "COULD NOT: WHY"),
)
LIFE = [
    "INFO node_id=n1 joined: host HOST, address 127.0.0.1, 2 GPUs, simulated",
    'INFO job_id=ID submitted USER  "short", 1 GPU',
    "INFO job_id=ID USER started on n1 (GPU 0), SOME TIME after it was submitted",
    "INFO job_id=ID USER failed on n1 (GPU 0) after SOME TIME: It ended with exit code 3 on n1.",
    "INFO job_id=ID submitted USER  1 GPU",
    "INFO job_id=ID USER failed on n1 (GPU 0): It could not be started on n1: /no/such/program: WHY",
    'INFO job_id=ID submitted USER  "long", 1 GPU',
    "INFO job_id=ID USER started on n1 (GPU 0), SOME TIME after it was submitted",
    "INFO node_id=n1 is draining: Drained USER  new memory.",
    "INFO node_id=n1 is back in service and takes jobs",
    "INFO job_id=ID submitted USER  1 GPU",
    "WARNING node_id=n1 is unhealthy: The last start on it failed: WHY. It is tried again at THEN.",
    "WARNING job_id=ID USER attempt 1 is over on n1 (GPU 1), it waits again: COULD NOT: WHY.",
    "WARNING node_id=n1 is suspect, 1 job may run there: Its connection broke. It was last heard at THEN.",
    "INFO job_id=ID USER was cancelled: Cancelled USER .",
]


def events(cluster: Cluster, name: str) -> list[str]:
    """Return what the log says of what happened, with times and ids masked."""
    found = [
        match for line in cluster.log_path(name).read_text().splitlines() if (match := EVENT.match(line))
    ]
    lines = [f"{match[1]} {match[2]}" for match in found]
    for pattern, mask in MASKS:
        lines = [pattern.sub(mask, line) for line in lines]
    return lines


def has_times(cluster: Cluster, name: str) -> None:
    lines = cluster.log_path(name).read_text().splitlines()
    assert [
        line for line in lines if line.strip() and not line.startswith(" ") and not TIMED.match(line)
    ] == []
    assert [line for line in lines if " GET " in line] == []


def test_the_log_of_a_master(cluster: Cluster) -> None:
    cluster.start_master("--MgpuApp.node_failures=1", "--MgpuApp.probe_after=600")
    cluster.start_node("n1", gpus=2)
    client = cluster.client
    client.submit(["sh", "-c", "exit 3"], gpus=1, name="short").wait(60)
    client.submit(["/no/such/program"], gpus=1).wait(60)
    long = client.submit(["sleep", "600"], gpus=1, name="long")
    cluster.wait_until(lambda: long.state == "running", "the job runs")
    client.admin.change_node("n1", "drain", reason="new memory")
    client.admin.change_node("n1", "resume")
    array = client.submit(["true"], gpus=1, array="1-60")
    array.wait(60)
    scratch = cluster.state / "nodes" / "n1" / "scratch"
    scratch.rename(scratch.with_name("away"))
    scratch.write_text("in the way")
    broken = client.submit(["true"], gpus=1, chdir="/no/such/directory")
    cluster.wait_until(lambda: cluster.node_states() == {"n1": "unhealthy"}, "the node is unhealthy")
    cluster.kill("n1")
    cluster.wait_until(lambda: cluster.node_states() == {"n1": "suspect"}, "the node is missed")
    broken.cancel()
    cluster.stop("master")

    lines = events(cluster, "master")
    assert [line for line in lines if "array=" not in line] == LIFE
    of_array = [line for line in lines if "array=" in line]
    assert of_array[0] == "INFO array=ID of 60 jobs submitted USER  1 GPU each"
    assert AT_ONCE < len(of_array) < 60
    counted = sum(int(number) for line in of_array for number in re.findall(r"(\d+) completed", line))
    assert counted + sum(" completed on " in line for line in of_array) == 60
    has_times(cluster, "master")
