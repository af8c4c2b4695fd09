"""Where jobs ran, on a real cluster: every step with its time, after a crash too, and liars are found."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest

from mgpu_agent.protocol.places import host_name
from tests.e2e.cluster import BIN, ROOT, Cluster, bash
from tests.e2e.liar import HOST

LISTENER = (
    "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], "
    "flush=True); time.sleep(300)"
)


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = words
    return subprocess.run(
        [str(BIN / program), *arguments],
        env=cluster.env,
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def start_liar(cluster: Cluster, lie: str, node_id: str) -> None:
    words = [
        sys.executable,
        "-m",
        "tests.e2e.liar",
        lie,
        "--node-id",
        node_id,
        "--fake-gpus",
        "1",
        "--master-port",
        str(cluster.port),
    ]
    cluster.start_agent(node_id, words, cwd=ROOT)


def traced(cluster: Cluster, job, last: str = "collected"):
    """Return the trace once the last step of every rank is noted, which may be a second after the end."""

    def look():
        attempt = (trace := job.trace()).attempts[-1]
        return trace if [step.step for step in attempt.steps].count(last) == len(attempt.ranks) else None

    return cluster.wait_until(look, f"the trace of {job.id} has its last step of every rank")


def test_a_job_on_two_nodes_shows_every_step_of_every_rank(two_nodes: Cluster) -> None:
    job = two_nodes.client.submit(bash("echo $$; pwd"), nodes=2, gpus_per_node=1).wait(60)
    trace = traced(two_nodes, job)

    (attempt,) = trace.attempts
    found = [step.step for step in attempt.steps]
    assert found[:3] == ["submitted", "queued", "planned"]
    assert sorted(found[3:]) == sorted(["prepared", "started", "output", "ended", "collected"] * 2)
    assert (trace.ok, trace.mismatches, attempt.waits[0].code) == (True, (), "next-pass")
    for rank in attempt.ranks:
        pid, cwd = job.output(rank.rank).split()
        assert rank.actual is not None
        assert (rank.actual.node, rank.actual.host, rank.actual.pid, rank.cwd) == (
            rank.assigned.node,
            host_name(),
            int(pid),
            cwd,
        )
        assert (rank.actual.gpus, rank.actual.address, rank.exit_code) == (
            rank.assigned.gpus,
            rank.assigned.address,
            0,
        )
        times = [trace.submitted_at, attempt.planned_at, rank.prepared_at, rank.ended_at, rank.collected_at]
        assert times == sorted(times)

    told = run(two_nodes, "mgpu", "trace", job.id)
    assert (told.returncode, told.stderr) == (0, "")
    assert re.search(
        rf"started +rank 1: node n\d, host {host_name()}, address 127.0.0.1, pid \d+, GPU \S+, in ",
        told.stdout,
    )
    assert (
        json.loads(run(two_nodes, "mgpu", "trace", "--json", job.id).stdout)["attempts"][0]["ranks"][1][
            "rank"
        ]
        == 1
    )


def test_a_running_job_is_looked_at_where_it_is(two_nodes: Cluster) -> None:
    job = two_nodes.client.submit([sys.executable, "-c", LISTENER], gpus=1)
    port = two_nodes.wait_until(lambda: job.output().strip(), "it listens")

    told = run(two_nodes, "debug_job_tracking", job.id)

    assert told.returncode == 0, told.stdout + told.stderr
    for what in ("node", "host", "address", "gpus", "pid", "ports"):
        assert re.search(rf"^  ok +rank 0  {what} ", told.stdout, re.MULTILINE)
    assert f"listens on 127.0.0.1:{port}" in told.stdout
    assert f"job {job.id}, attempt 1, of " in told.stdout
    assert "6 things compared, all as assigned." in told.stdout

    # A process that is gone and was not told of yet: what is there is not what was assigned.
    os.kill(job.info.placements[0].pid or 0, 19)
    assert all(check.ok for check in job.trace(verify=True).checks)
    os.kill(job.info.placements[0].pid or 0, 18)
    job.cancel()
    job.wait(60)
    assert run(two_nodes, "debug_job_tracking", job.id).returncode == 0


def test_a_node_answers_through_its_link(two_nodes: Cluster) -> None:
    told = run(two_nodes, "mgpu", "node", "ping", "n1")
    assert told.returncode == 0, told.stdout + told.stderr
    assert re.match(
        rf"n1: answered in \d+ ms from host {host_name()}, 127.0.0.1\n  agent \S+ \(master ", told.stdout
    )
    assert json.loads(run(two_nodes, "mgpu", "node", "ping", "n1", "--json").stdout)["pid"] == two_nodes.pid(
        "n1"
    )
    assert run(two_nodes, "mgpu", "node", "ping", "n9").returncode == 1


def test_the_banner_is_told_by_the_process_itself(two_nodes: Cluster) -> None:
    done = run(
        two_nodes,
        "mgpu_srun",
        "--debug",
        "--gpus",
        "1",
        "--",
        "bash",
        "-c",
        "echo $$; pwd; trap -p PIPE; exit 3",
    )

    pid, cwd = done.stdout.split()
    banner = dict(
        line.split(": ", 1)
        for line in done.stderr.splitlines()
        if ": " in line and not line.startswith(("Job submitted", "mgpu"))
    )
    assert done.returncode == 3
    assert "=== JOB EXECUTION DEBUG INFO ===" in done.stderr
    assert re.fullmatch(r"[A-Z0-9]{8} \(attempt 1\), rank 0", banner["Job"])
    assert (banner["Assigned node"], banner["Host"], banner["PID"], banner["Directory"]) in [
        (node, host_name(), pid, cwd) for node in ("n1", "n2")
    ]
    assert banner["Address"] == "127.0.0.1"
    assert banner["User"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d{4}", banner["Time"])
    assert run(two_nodes, "mgpu_srun", "--debug", "--gpus", "0", "--", "no-such-program").returncode == 127


@pytest.mark.parametrize(
    ("lie", "node_id", "sentence"),
    [
        (
            "host",
            "liar-h",
            f"ran on host {host_name()}, but was assigned to liar-h, which said that it is host {HOST}.",
        ),
        ("node-id", "liar-n", "The agent with the key of liar-n said that it is n1."),
    ],
)
def test_a_planted_mismatch_is_found_and_shown_by_trace_log_and_api(
    two_nodes: Cluster, lie: str, node_id: str, sentence: str
) -> None:
    start_liar(two_nodes, lie, node_id)
    job = two_nodes.client.submit(["true"], gpus=1, nodelist=node_id).wait(60)
    assert job.exit_code == 0

    (text,) = two_nodes.client.job(job.id).info.mismatches
    assert text.endswith(sentence)
    assert job.trace().mismatches == (text,)
    assert f"job_id={job.id} mismatch: {text}" in two_nodes.log("master")
    told = run(two_nodes, "debug_job_tracking", job.id)
    assert (told.returncode, f"MISMATCH: {text}" in told.stdout) == (1, True)
    assert told.stderr.startswith(f"MISMATCH: job {job.id} ran otherwise than was assigned")
    assert json.loads(run(two_nodes, "mgpu", "trace", "--verify", "--json", job.id).stdout)["ok"] is False
    if lie == "node-id":
        (node,) = (node for node in two_nodes.client.nodes() if node.id == node_id)
        assert node.warnings == (sentence,)
    two_nodes.stop(node_id)


def test_a_trace_outlives_a_master_that_was_killed(two_nodes: Cluster) -> None:
    holder = two_nodes.client.submit(bash("sleep 300"), gpus=4, nodelist="n1")
    job = two_nodes.client.submit(bash("echo 1"), gpus=1, nodelist="n1")
    two_nodes.wait_until(
        lambda: len(job.trace().attempts[0].waits) > 1 or job.trace().attempts[0].waits[0].code == "busy",
        "it waits",
    )
    holder.cancel()
    job.wait(60)
    before = traced(two_nodes, job)
    two_nodes.kill("master")
    two_nodes.start_master()

    after = job.trace()

    assert after.attempts == before.attempts
    assert any("GPU" in wait.text for wait in after.attempts[0].waits)
    two_nodes.wait_until(
        lambda: (
            {"n1", "n2"} <= {name for name, state in two_nodes.node_states().items() if state == "online"}
        ),
        "all are back",
    )
