"""An agent of the release before joins today's master and runs its jobs, so that a cluster can be brought up
to date node by node.

The agent's source is taken from the history of this repository; where that is not there (a shallow clone, an
archive), the tests are skipped.
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from mgpu_jupyter.api.frames import OutputFrame
from tests.e2e.cluster import Cluster, bash

ROOT = Path(__file__).parents[2]
EARLIER = "70d7d75"
"""The agent that was in use last, with modules that have other names by now."""
ONLY_THEN = "mgpu_agent/keeper/desk.py"
REFUSED = "The other side speaks protocol 1, this one 2: install the same mgpu-jupyter on both."
MGPU_NODE = "from mgpu_agent import cli; print(cli.__file__, flush=True); raise SystemExit(cli.main())"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The earlier agent's source in a directory of its own."""
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", EARLIER, "mgpu_agent"], capture_output=True, check=False
    )
    if archive.returncode != 0:
        pytest.skip(f"The history of this repository does not have {EARLIER}.")
    place = tmp_path_factory.mktemp("earlier")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as tree:
        tree.extractall(place, filter="data")
    assert (place / ONLY_THEN).exists()
    assert not (ROOT / ONLY_THEN).exists()
    return place


def words(cluster: Cluster, node_id: str) -> list[str]:
    own = ["--node-id", node_id, "--fake-gpus", "2", "--master-port", str(cluster.port)]
    return [sys.executable, "-c", MGPU_NODE, *own]


def test_an_earlier_agent_joins_and_runs_jobs_to_their_end(cluster: Cluster, source: Path) -> None:
    cluster.start_master()
    cluster.start_agent("n1", words(cluster, "n1"), {"PYTHONPATH": str(source)})
    try:
        well = cluster.client.submit(bash("echo $MGPU_JOB_ID; echo wrong >&2"), gpus=1)
        badly = cluster.client.submit(bash("exit 3"), gpus=2)
        ends = [(job.id, job.state, job.exit_code) for job in (well.wait(), badly.wait())]
        assert ends == [(well.id, "completed", 0), (badly.id, "failed", 3)]
        with well.follow() as frames:
            output = [frame for frame in frames if isinstance(frame, OutputFrame)]
        told = {frame.stream: b"" for frame in output}
        for frame in output:
            told[frame.stream] += frame.data
        assert told == {"stdout": f"{well.id}\n".encode(), "stderr": b"wrong\n"}

        long = cluster.client.submit(bash("sleep 600"), gpus=1)
        cluster.wait_until(lambda: cluster.job_states()[long.id] == "running", "it runs")
        long.cancel()
        assert long.wait().state == "cancelled"
        assert str(source / "mgpu_agent/cli.py") in cluster.log("n1")
    finally:
        cluster.stop("n1")


def test_an_agent_of_another_protocol_is_refused_with_a_sentence(
    cluster: Cluster, source: Path, tmp_path: Path
) -> None:
    shutil.copytree(source / "mgpu_agent", tmp_path / "other/mgpu_agent")
    codec = tmp_path / "other/mgpu_agent/protocol/codec.py"
    text = codec.read_text()
    assert "PROTOCOL_VERSION = 1\n" in text
    codec.write_text(text.replace("PROTOCOL_VERSION = 1\n", "PROTOCOL_VERSION = 2\n"))
    cluster.start_master()
    cluster.start("n1", words(cluster, "n1"), env={"PYTHONPATH": str(tmp_path / "other")})
    try:
        cluster.wait_until(lambda: REFUSED in cluster.log("n1"), "the agent says why it cannot join")
        assert "n1" not in cluster.node_states()
    finally:
        cluster.stop("n1")
