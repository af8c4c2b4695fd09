"""Runs every line of `command_table.py` against one live cluster of two nodes."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.e2e.cluster import BIN, Cluster
from tests.e2e.command_table import ALONE, TOGETHER, Row

AT_ONCE = 4
LIMIT_S = 300  # it only ends what would never end
FUNCTIONS = r"""
bg() { mgpu_srun --background --json "$@" | sed -n 's/^{"job_id":"\([A-Z0-9]*\)".*/\1/p'; }
has() { mgpu_queue --all --format '{id} {state}' | grep -q "^$1 $2"; }
until_state() { until has "$@"; do sleep 0.2; done; }
until_idle() { until [ "$(mgpu_queue --json)" = '{"jobs":[]}' ]; do sleep 0.2; done; }
"""
JOB = '#!/bin/bash\n#MGPU --gpus 0 --name file\n#SBATCH --mail-type=END\necho "in a file $1"\n'
Done = subprocess.CompletedProcess[str]


class Stage:
    """A cluster with the things that rows expect."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.place = cluster.directory / "place"
        self.place.mkdir()
        (self.place / "job.sh").write_text(JOB)
        (self.place / "trace.csv").write_text("submit_s,duration_s,gpus\n0,10,4\n1,5,8\n")
        engine = self.place / "engines" / "podman"
        engine.parent.mkdir()
        engine.write_text('#!/bin/bash\necho "podman $*"\n')
        engine.chmod(0o755)
        done = cluster.client.submit(["bash", "-c", "echo first; echo second"], gpus=0).wait(60)
        running = cluster.client.submit(["sleep", "3000"], gpus=0, name="goes-on")
        held = cluster.client.submit(["true"], gpus=0, hold=True)
        cluster.wait_until(lambda: running.state == "running", "a job runs")
        self._jobs = {"ENGINES": str(engine.parent), "DONE": done.id, "RUN": running.id, "HELD": held.id}

    def run(self, line: str) -> Done:
        """Run a line as a person at a shell would."""
        env = (
            self._cluster.env
            | self._jobs
            | {"PORT": str(self._cluster.port), "PATH": f"{BIN}:/usr/local/bin:/usr/bin:/bin"}
        )
        return subprocess.run(
            ["bash", "-c", FUNCTIONS + line],
            env=env,
            cwd=self.place,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with Cluster(tmp_path_factory.mktemp("table") / "cluster") as cluster:
        cluster.start_master()
        cluster.start_node(
            "n1", 4, "--rack", "r1", "--switch", "s1", "--label", "kind=a", "--label", "rack=r1"
        )
        cluster.start_node(
            "n2",
            2,
            "--host",
            "127.0.0.1",
            "--port",
            "8081",
            "--master-host",
            "127.0.0.1",
            "--gpu-count",
            "2",
            "--verbose",
        )
        yield Stage(cluster)


@pytest.fixture(scope="module")
def answers(stage: Stage) -> Iterator[dict[str, Future[Done]]]:
    """All rows that do not touch each other, under way at once: most of their time is the start of an
    interpreter.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        yield {row.line: pool.submit(stage.run, row.line) for row in TOGETHER}


def check(row: Row, done: Done) -> None:
    """Compare what a line did with what it must."""
    told = f"{row.line}\nexit {done.returncode}\n--- out\n{done.stdout}\n--- err\n{done.stderr}"
    assert done.returncode == row.code, told
    for stream, wanted in ((done.stdout, row.out), (done.stderr, row.err)):
        rest = stream
        for piece in wanted:
            _, found, rest = rest.partition(piece)
            assert found, f"no {piece!r} in {told}"
    assert "Traceback" not in done.stderr, told


@pytest.mark.parametrize("row", TOGETHER, ids=lambda row: row.line[:60])
def test_a_line(row: Row, answers: dict[str, Future[Done]]) -> None:
    check(row, answers[row.line].result())


@pytest.mark.parametrize("row", ALONE, ids=lambda row: row.line[:60])
def test_a_line_that_changes_the_cluster(row: Row, stage: Stage, answers: dict[str, Future[Done]]) -> None:
    for future in answers.values():
        future.result()
    check(row, stage.run(row.line))


def test_no_line_is_there_twice() -> None:
    lines = [row.line for row in (*TOGETHER, *ALONE)]
    assert len(set(lines)) == len(lines)
