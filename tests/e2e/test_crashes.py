"""Acceptance, row 4: what a `kill -9` of the server or of an agent must not cost. Submits and kills by the
hundred are in test_chaos.py.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu_jupyter.api.frames import OutputFrame
from tests.e2e.cluster import Cluster, bash
from tests.processes import wait_until

# Says that it ran, waits for a file, and prints enough that lost output would show.
JOB = (
    "echo start; echo ran >> {ran}; while [ ! -e {go} ]; do sleep 0.05; done; seq 1 500; echo end >&2; "
    "exit {code}"
)
OUT = "start\n" + "".join(f"{number}\n" for number in range(1, 501))


def _outputs(cluster: Cluster, job_id: str) -> tuple[str, str]:
    """Return what the job wrote to stdout and to stderr."""
    texts = {"stdout": b"", "stderr": b""}
    with cluster.client.job(job_id).follow() as frames:
        for frame in frames:
            if isinstance(frame, OutputFrame):
                texts[frame.stream] += frame.data
    return texts["stdout"].decode(), texts["stderr"].decode()


@pytest.mark.parametrize("embedded", [True, False], ids=["embedded agents", "own agents"])
def test_server_killed_with_twenty_running_and_twenty_waiting(
    cluster: Cluster, tmp_path: Path, embedded: bool
) -> None:
    traits = ("--MgpuApp.simulate=2x10",) if embedded else ()
    cluster.start_master(*traits, local_agent=embedded)
    if not embedded:
        cluster.start_node("n1", 10)
        cluster.start_node("n2", 10)
    cluster.wait_until(
        lambda: list(cluster.node_states().values()) == ["online"] * 2, "both nodes are online"
    )
    ran, go = tmp_path / "ran", tmp_path / "go"
    ran.mkdir()
    specs = [
        {"command": bash(JOB, ran=ran / str(number), go=go, code=0), "gpus": 1, "name": str(number)}
        for number in range(40)
    ]
    jobs = cluster.client.submit_many(specs)

    def count(state: str) -> int:
        return list(cluster.job_states().values()).count(state)

    cluster.wait_until(lambda: len(list(ran.iterdir())) == 20, "twenty jobs run")
    cluster.wait_until(
        lambda: (count("running"), count("queued")) == (20, 20), "twenty are running and twenty wait"
    )
    cluster.kill("master")
    go.touch()  # the twenty end while nobody listens
    cluster.start_master(*traits, local_agent=embedded)
    wait_until(lambda: count("completed") == 40, "all forty are completed", 60)

    assert {(str(job.state), job.exit_code, job.info.attempt) for job in jobs} == {("completed", 0, 1)}
    assert {path.name: path.read_text() for path in ran.iterdir()} == {
        str(number): "ran\n" for number in range(40)
    }
    assert {job.id: _outputs(cluster, job.id) for job in jobs} == {job.id: (OUT, "end\n") for job in jobs}


def test_agent_killed_with_jobs_running(cluster: Cluster, tmp_path: Path) -> None:
    """The jobs go on without their agent; some end while it is away, some after."""
    cluster.start_master()
    cluster.start_node("n1")
    early, late, ran = tmp_path / "early", tmp_path / "late", tmp_path / "ran"
    ran.mkdir()
    jobs = [
        cluster.client.submit(
            bash(JOB, ran=ran / str(number), go=early if number < 2 else late, code=number),
            gpus=1,
            name=str(number),
        )
        for number in range(4)
    ]
    cluster.wait_until(lambda: len(list(ran.iterdir())) == 4, "four jobs run")
    cluster.wait_until(lambda: list(cluster.job_states().values()) == ["running"] * 4, "the master knows")
    pids = {job.id: job.info.placements[0].pid for job in jobs}
    cluster.kill("n1")
    early.touch()
    cluster.wait_until(
        lambda: not any(_alive(pids[job.id]) for job in jobs[:2]), "two jobs ended while the agent is away"
    )
    assert [_alive(pids[job.id]) for job in jobs[2:]] == [True, True]
    cluster.start_node("n1")
    late.touch()
    cluster.wait_until(
        lambda: not {"running", "starting", "queued"} & set(cluster.job_states().values()), "all are over"
    )

    ended = [job.info for job in jobs]
    assert [(str(job.state), job.exit_code, job.attempt, job.placements[0].pid) for job in ended] == [
        ("completed" if number == 0 else "failed", number, 1, pids[jobs[number].id]) for number in range(4)
    ]
    assert {path.name: path.read_text() for path in ran.iterdir()} == {
        str(number): "ran\n" for number in range(4)
    }
    assert [_outputs(cluster, job.id) for job in jobs] == [(OUT, "end\n")] * 4


def _alive(pid: int | None) -> bool:
    path = Path(f"/proc/{pid}/stat")
    return path.exists() and path.read_text().rpartition(")")[2].split()[0] != "Z"
