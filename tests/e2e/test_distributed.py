"""Jobs of several processes on several nodes: ranks, failures, trainings with torch. Acceptance of
distributed jobs.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_jupyter.client.job import Job
from tests.e2e.cluster import BIN, ROOT, Cluster, bash
from tests.e2e.notebook import Notebook
from tests.processes import wait_until

TORCH = ROOT / ".venv-torch" / "bin"
NEEDS_TORCH = pytest.mark.skipif(
    not (TORCH / "torchrun").exists(), reason="torch is not installed: `make setup-torch`"
)
TRAINING = Path(__file__).with_name("training.py")
GRACE_S = 1.0
TWO_BY_TWO = {"nodes": 2, "gpus_per_node": 2, "distributed": True}
TRAIN_S = 400.0  # generous: it takes under ten seconds where nobody else wants the machine


@pytest.fixture(scope="module")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("distributed") / "cluster") as cluster:
        cluster.start_master(f"--MgpuApp.kill_grace={GRACE_S}", "--MgpuApp.on_disconnect=keep")
        cluster.start_node("n1")
        cluster.start_node("n2")
        yield cluster


def srun(cluster: Cluster, *words: str, limit_s: float = 120.0) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "mgpu_srun"), *words]
    return subprocess.run(
        command,
        env=cluster.env,
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
    )


def test_a_command_runs_once_on_each_node(two_nodes: Cluster) -> None:
    done = srun(two_nodes, "-N", "2", "--", "bash", "-c", "echo $MGPU_NODE_ID $SLURM_PROCID $SLURM_NNODES")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0: n1 0 2", "1: n2 1 2"])


def test_exactly_these_gpus_of_exactly_these_nodes(two_nodes: Cluster) -> None:
    words = bash("echo $MGPU_NODE_ID:$CUDA_VISIBLE_DEVICES:$LOCAL_RANK/$LOCAL_WORLD_SIZE:$RANK/$WORLD_SIZE")
    done = srun(two_nodes, "--node-gpu-ids", "n1:0,1;n2:2", "--distributed", "--", *words)
    assert (done.returncode, sorted(done.stdout.splitlines())) == (
        0,
        ["0: n1:0,1:0/2:0/3", "1: n1:0,1:1/2:1/3", "2: n2:2:0/1:2/3"],
    )


def test_every_rank_finds_rank_0_and_the_ranks_of_two_jobs_at_once_never_meet(two_nodes: Cluster) -> None:
    """Rank 0 serves at MASTER_ADDR and MASTER_PORT what its own job is called; the others ask."""
    ask = """
import os, socket, time
rank, job = int(os.environ["RANK"]), os.environ["MGPU_JOB_ID"]
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(where) as server:
        for _ in range(int(os.environ["WORLD_SIZE"]) - 1):
            connection, _ = server.accept()
            with connection: connection.sendall(job.encode())
else:
    for _ in range(1200):
        try:
            with socket.create_connection(where, timeout=120) as connection:
                told = connection.recv(100).decode()
                break
        except ConnectionRefusedError:
            time.sleep(0.1)
    assert told == job, (told, job)
print("met", rank)
"""
    jobs = [two_nodes.client.submit(script=ask, **TWO_BY_TWO) for _ in range(2)]
    for job in jobs:
        job.wait(60)
    assert [(str(job.state), sorted(job.output().split())) for job in jobs] == [
        ("completed", sorted(["0:", "met", "0", "1:", "met", "1", "2:", "met", "2", "3:", "met", "3"]))
    ] * 2


def test_output_of_one_rank_and_of_all(two_nodes: Cluster) -> None:
    job = two_nodes.client.submit(bash('echo "this is $RANK"'), **TWO_BY_TWO).wait(60)
    assert [job.output(rank) for rank in range(4)] == [f"this is {rank}\n" for rank in range(4)]
    one = subprocess.run(
        [str(BIN / "mgpu"), "logs", job.id, "--rank", "2"],
        env=two_nodes.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert one.stdout == "this is 2\n"


# --- a rank fails ----------------------------------------------------------------------------------

FAILING = """
if [ "$RANK" = 3 ]; then echo "line before the end"; echo "the last line" >&2; {end}; fi
trap 'echo "felt it"; sleep 30' TERM; echo up; sleep 300 & wait $!; sleep 300
"""


def _alive(job: Job) -> list[int]:
    """Return the processes that carry the name of this job in their environment."""
    found = []
    for process in psutil.process_iter(["pid"]):
        try:
            if process.environ().get("MGPU_JOB_ID") == job.id and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.parametrize(
    ("end", "code", "how"), [("exit 7", 7, "exit code 7"), ("kill -9 $$", 137, "signal 9")]
)
def test_a_rank_that_fails_ends_the_others_and_is_named_with_its_last_lines(
    two_nodes: Cluster, end: str, code: int, how: str
) -> None:
    done = srun(
        two_nodes,
        "-N",
        "2",
        "--gpus-per-node",
        "2",
        "--distributed",
        "--",
        "bash",
        "-c",
        FAILING.format(end=end),
    )
    job = two_nodes.client.job(next(iter(two_nodes.client.jobs())).id)
    job.refresh()

    assert (done.returncode, str(job.state)) == (code, "failed")
    assert f"Rank 3 ended with {how} on n2." in job.info.reason
    tail = done.stderr.splitlines()[-8:]
    assert [line.strip() for line in tail if "line" in line and not line.startswith("3: ")][-2:] == [
        "line before the end",
        "the last line",
    ]
    assert job.info.failure is not None
    assert (job.info.failure.rank, job.info.failure.node, job.info.failure.last_lines) == (
        3,
        "n2",
        ("line before the end", "the last line"),
    )
    wait_until(
        lambda: not _alive(job), "no process of it lives"
    )  # who was only asked to end would live for five minutes


def test_agents_of_ranks_are_killed_and_the_job_goes_on(two_nodes: Cluster, tmp_path: Path) -> None:
    """At three moments: before the first word, between words, at the end."""
    go = [tmp_path / f"go{number}" for number in range(3)]
    steps = "".join(
        f'until [ -e {path} ]; do sleep 0.05; done; echo "step {number} of $RANK";'
        for number, path in enumerate(go)
    )
    job = two_nodes.client.submit(["bash", "-c", steps], **TWO_BY_TWO)
    two_nodes.wait_until(lambda: str(job.state) == "running", "it runs")
    pids = [placement.pid for placement in job.info.placements]
    for number, path in enumerate(go):
        victim = ("n2", "n1")[number % 2]
        two_nodes.kill(victim)
        path.touch()
        two_nodes.start_node(victim)
    job.wait(60)

    assert (str(job.state), [placement.pid for placement in job.info.placements]) == ("completed", pids)
    # An agent that comes back tells ends before it has sent all output again.
    said = ["".join(f"step {number} of {rank}\n" for number in range(3)) for rank in range(4)]
    two_nodes.wait_until(lambda: [job.output(rank) for rank in range(4)] == said, "all output is here")


LEASE_S = 8.0  # an agent that is only slow, on a machine that is busy, must not lose it


@pytest.mark.parametrize(("wishes", "state"), [({}, "completed"), ({"requeue": False}, "failed")])
def test_a_node_that_is_gone_takes_all_ranks_with_it_under_fence(
    cluster: Cluster, tmp_path: Path, wishes: dict[str, object], state: str
) -> None:
    """The keeper of the lost node ends its ranks by itself, the master those of the other, both by the end of
    the lease.
    """
    fence = (
        "on_disconnect=fence",
        f"lease={LEASE_S}",
        f"kill_grace={GRACE_S}",
        "lease_margin=1",
        "heartbeat_interval=0.5",
        "timeout=4",
    )
    cluster.start_master(*(f"--MgpuApp.{trait}" for trait in fence))
    for name in ("n1", "n2"):
        cluster.start_node(name, 2)
    log, go = tmp_path / "log", tmp_path / "go"
    script = "echo begin $MGPU_ATTEMPT $RANK >> {log}; trap '' TERM; while [ ! -e {go} ]; do sleep 0.05; done"
    job = cluster.client.submit(bash(script, log=log, go=go), **TWO_BY_TWO, **wishes)
    cluster.wait_until(lambda: str(job.state) == "running", "it runs")
    ranks = {placement.pid for placement in job.info.placements if placement.pid}
    cluster.kill("n2")
    # Without the lease they would wait for the file for ever.
    cluster.wait_until(lambda: not any(map(psutil.pid_exists, ranks)), "all ranks of the attempt are dead")
    cluster.start_node("n2", 2)
    go.touch()
    job.wait(60)
    assert (str(job.state), job.info.attempt) == (state, 2 if state == "completed" else 1)


# --- trainings -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def expected() -> list[float]:
    """What one process comes to that has all the data."""
    plain = {name: value for name, value in os.environ.items() if name != "RANK"} | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [str(TORCH / "python"), str(TRAINING)],
        env=plain,
        capture_output=True,
        text=True,
        timeout=TRAIN_S,
        check=True,
    )
    return _weights(done.stdout)


def _weights(output: str) -> list[float]:
    (line,) = (line for line in output.splitlines() if "weights" in line)
    return [float(value) for value in json.loads(line.partition("weights")[2])]


def _ranks(output: str) -> list[str]:
    return sorted(
        line.partition("rank ")[2] for line in output.splitlines() if "rank " in line and " of " in line
    )


ALL_RANKS = ["0 of 4 on n1", "1 of 4 on n1", "2 of 4 on n2", "3 of 4 on n2"]


@NEEDS_TORCH
def test_a_training_in_a_cell(notebook: Notebook, expected: list[float]) -> None:
    flags = f"--nodes 2 --gpus-per-node 2 --distributed --python {TORCH / 'python'}"
    ran = notebook.run(f"%%mgpu_srun {flags}\n{TRAINING.read_text()}", TRAIN_S)
    assert ran.error is None, ran.text("stderr")
    assert _ranks(ran.text()) == ALL_RANKS
    assert _weights(ran.text()) == pytest.approx(expected, abs=1e-6)


@NEEDS_TORCH
def test_two_trainings_by_torchrun_at_once_one_with_its_own_flags(
    two_nodes: Cluster, expected: list[float]
) -> None:
    flags = ["--nodes", "2", "--gpus-per-node", "2", "--distributed", "--"]
    commands = [
        [str(TORCH / "torchrun"), str(TRAINING)],
        [str(TORCH / "torchrun"), "--nnodes", "2", "--nproc_per_node", "2", str(TRAINING)],
    ]
    running = [
        subprocess.Popen(
            [str(BIN / "mgpu_srun"), *flags, *command],
            env=two_nodes.env,
            cwd=two_nodes.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    said = [program.communicate(timeout=TRAIN_S) for program in running]
    for program, (out, err) in zip(running, said, strict=True):
        assert (program.returncode, _ranks(out)) == (0, ALL_RANKS), err
        assert _weights(out) == pytest.approx(expected, abs=1e-6)


@NEEDS_TORCH
@pytest.mark.skipif(
    not (TORCH / "accelerate").exists(), reason="accelerate is not installed: `make setup-torch`"
)
def test_a_training_by_accelerate(two_nodes: Cluster, expected: list[float]) -> None:
    words = [str(TORCH / "accelerate"), "launch", str(TRAINING)]
    done = srun(
        two_nodes, "--nodes", "2", "--gpus-per-node", "2", "--distributed", "--", *words, limit_s=TRAIN_S
    )
    assert (done.returncode, _ranks(done.stdout)) == (0, ALL_RANKS), done.stderr
    assert _weights(done.stdout) == pytest.approx(expected, abs=1e-6)
