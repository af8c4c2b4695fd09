"""Files that jobs leave for their users, and the summary: collected, verified, fetched again when they arrive
damaged.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.protocol.failpoints import VARIABLE
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import BIN, Cluster, bash


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The first part of a result that n1 reads is damaged on its way."""
    with Cluster(tmp_path_factory.mktemp("results") / "cluster") as cluster:
        cluster.start_master()
        command = [
            str(BIN / "mgpu_node"),
            "--node-id",
            "n1",
            "--fake-gpus",
            "2",
            "--master-port",
            str(cluster.port),
        ]
        cluster.start_agent("n1", command, {VARIABLE: "agent.result=damage:1"})
        cluster.start_node("n2", 2)
        yield cluster


def test_a_file_that_was_damaged_on_the_way_is_fetched_again(cluster: Cluster, tmp_path: Path) -> None:
    script = bash(
        "mkdir out; echo weights > out/a.pt; head -c 2500000 /dev/zero > out/big.bin; echo no > secret; ln "
        "-s /etc/passwd out/link"
    )
    job = cluster.client.submit(script, gpus=1, nodelist=["n1"], chdir="/nowhere", results=["out/*"]).wait(60)
    assert job.state == JobState.COMPLETED, job.info
    found = job.wait_for_results()
    assert [(file.path, file.size, file.problem, file.tries) for file in found.files] == [
        ("out/a.pt", 8, "", 2),
        ("out/big.bin", 2_500_000, "", 1),
    ]
    assert [problem.partition(": ")[2].partition(":")[0] for problem in found.problems] == ["out/link"]
    assert "arrived damaged from n1: fetched again" in cluster.log("master")
    listed = subprocess.run(
        [BIN / "mgpu", "results", job.id],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "n1:out/a.pt  (fetched 2 times)" in listed.stdout
    words = [BIN / "mgpu", "results", job.id, "--to", str(tmp_path)]
    done = subprocess.run(words, env=cluster.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "a.pt").read_text() == "weights\n"
    assert (tmp_path / "out" / "big.bin").stat().st_size == 2_500_000


def test_results_of_all_nodes_of_a_failed_job_are_there_and_its_summary_too(
    cluster: Cluster, tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    # The first that fails ends the other: both must have left their file by then.
    script = bash(
        "echo $MGPU_NODE_ID > who; touch {here}/$MGPU_NODE_ID; until [ $(ls {here} | wc -l) = 2 ]; do sleep "
        "0.05; done; sleep 2; exit 3",
        here=here,
    )
    job = cluster.client.submit(
        script, nodes=2, gpus_per_node=1, time_limit=50, chdir="/nowhere", results="who"
    ).wait(60)
    assert job.state == JobState.FAILED
    paths = job.download_results(tmp_path / "results")
    assert sorted((path.parent.name, path.read_text().strip()) for path in paths) == [
        ("n1", "n1"),
        ("n2", "n2"),
    ]
    summary = job.summary()
    assert (summary.state, summary.exit_code, summary.gpus_requested, summary.nodes_requested) == (
        JobState.FAILED,
        3,
        2,
        2,
    )
    assert [node.node for node in summary.nodes] == ["n1", "n2"]
    assert {rank.exit_code for rank in summary.ranks if rank.signal is None} == {3}
    assert summary.ran_s is not None
    assert summary.ran_s >= 2
    assert 4 <= (summary.time_used_percent or 0) <= 100
    words = [BIN / "mgpu", "summary", job.id]
    told = subprocess.run(
        words, env=cluster.env, capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert f"Job {job.id} of" in told
    assert "asked for 2 GPUs on 2 nodes" in told
    document = subprocess.run(
        [*words, "--json"], env=cluster.env, capture_output=True, timeout=120, check=True
    ).stdout
    assert json.loads(document)["exit_code"] == 3


def test_results_are_collected_after_the_master_was_away(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    script = bash("until [ -e {go} ]; do sleep 0.05; done; echo late > late.txt", go=go)
    job = cluster.client.submit(script, gpus=1, nodelist=["n2"], chdir="/nowhere", results="*.txt")
    cluster.wait_until(lambda: job.refresh().state == JobState.RUNNING, "it runs")
    cluster.kill("master")
    go.touch()
    cluster.start_master()
    job.wait(60)
    (file,) = job.wait_for_results().files
    assert (file.path, file.size, file.problem) == ("late.txt", 5, "")
