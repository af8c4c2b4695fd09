"""What jobs with `--mpi` are made of, without an MPI: files and environment, orders, mixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from mgpu_agent.mpi.host import OrderTaker
from mgpu_agent.mpi.mixture import Mixtures, launcher_of, library_of
from mgpu_agent.mpi.parcels import Delivered, EndOrder, RunOrder, Standing, pack, unpack
from mgpu_agent.mpi.setting import environment, hosts_of, interface_of, network_of, program, write_files
from mgpu_agent.protocol.ids import AttemptKey, JobId
from tests.agent.master import wait_until

KEY = AttemptKey(JobId("AB12CD34"), 1, 7)
MARKER = f"ledger{os.getpid()}/{KEY}/0"


def test_hosts_files_and_launcher(tmp_path: Path) -> None:
    hosts = hosts_of("n1:2,n2.lab:4")
    write_files(tmp_path, hosts)
    assert hosts == {"n1": 2, "n2.lab": 4}
    assert (tmp_path / "hosts.openmpi").read_text() == "n1 slots=2\nn2.lab slots=4\n"
    assert (tmp_path / "hosts.mpich").read_text() == "n1:2\nn2.lab:4\n"
    env = {"PATH": os.environ["PATH"], "MGPU_MPI_HOSTS": "n1:2,n2:2", "MGPU_NODE_ID": "n1"}

    def launch(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(tmp_path / "launch"), *words],
            env=env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    here = launch("-x", "-l", "ada", "n1", "A=b;export", "A;echo", '"$A c"')
    assert (here.returncode, here.stdout) == (0, "b c\n")
    elsewhere = launch("n9", "true")
    assert (elsewhere.returncode, elsewhere.stderr.count("\n")) == (255, 1)
    assert "n9 is no node of this job, which has n1, n2" in elsewhere.stderr
    assert launch("n1").returncode == 255
    write_files(tmp_path, hosts, "AB12CD34.1.7.0.code")
    assert "\nexport MGPU_JOB_SECRET=AB12CD34.1.7.0.code\n" in (tmp_path / "launch").read_text()
    assert launch("n1", "echo", "x$MGPU_JOB_SECRET").stdout == "x\n"  # what is started here does not need it


def test_what_the_user_set_goes_before_and_other_managers_are_out_of_sight(tmp_path: Path) -> None:
    env = environment(tmp_path, {"HYDRA_ENV": "all", "SLURM_JOB_ID": "1", "PATH": "/bin"})
    assert (env["HYDRA_ENV"], env["PATH"], "SLURM_JOB_ID" in env) == ("all", "/bin", False)
    assert (
        env["OMPI_MCA_plm_rsh_agent"]
        == env["PRTE_MCA_plm_ssh_agent"]
        == env["HYDRA_LAUNCHER_EXEC"]
        == str(tmp_path / "launch")
    )


def test_open_mpi_has_session_directories_of_its_own_for_each_job_and_node(tmp_path: Path) -> None:
    """In a common one, a job that ends takes away what one that begins has just made there."""
    first, name = tmp_path / "mgpu-mpi-ab12_c3d", "OMPI_MCA_orte_tmpdir_base"
    first.mkdir()
    assert environment(first, {})[name] == f"{first}/sessions"
    assert environment(first, {name: "/mine"})[name] == "/mine"
    assert name not in environment(first, {"OMPI_MCA_orte_local_tmpdir_base": "/mine"})  # it refuses both
    write_files(first, hosts_of("n1:2"))
    here = subprocess.run(
        [str(first / "launch"), "n1", "echo", f'-mca orte_tmpdir_base "{first}/sessions"', f"{first}/launch"],
        env=environment(first, {"PATH": os.environ["PATH"], "MGPU_MPI_HOSTS": "n1:2", "MGPU_NODE_ID": "n1"}),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert here.stdout == f"-mca orte_tmpdir_base {first}/launched/sessions {first}/launch\n"
    box, there = Box(), tmp_path / "there"
    host = OrderTaker(box, "n1", there)  # type: ignore[arg-type]
    order = RunOrder("1", f'echo -mca orte_tmpdir_base "{first}/sessions" -mca x /mine > {tmp_path}/said')
    box.coming.append(Delivered("n1", pack(order)))
    wait_until(lambda: host.turn(0) or ("n1", Standing("1", 0)) in box.sent)
    assert (tmp_path / "said").read_text() == f"-mca orte_tmpdir_base {there}/sessions -mca x /mine\n"


def test_the_interface_is_the_measured_one_else_that_of_the_address() -> None:
    assert interface_of({"NCCL_SOCKET_IFNAME": "=lo"}) == "lo"
    assert interface_of({"NCCL_SOCKET_IFNAME": "gone0", "MASTER_ADDR": "127.0.0.1"}) == "lo"
    assert (network_of("lo"), network_of("gone0")) == ("127.0.0.0/8", "")


class Box:
    """A mailbox whose messages a test puts there."""

    def __init__(self) -> None:
        self.coming: list[Delivered] = []
        self.sent: list[object] = []

    def receive(self, timeout_s: float) -> Delivered | None:
        time.sleep(0.01)
        return self.coming.pop(0) if self.coming else None

    def send(self, to: str, data: bytes) -> bool:
        self.sent.append((to, unpack(data)))
        return True


def test_an_order_is_carried_out_once_and_told_of(tmp_path: Path) -> None:
    box = Box()
    host = OrderTaker(box, "n1", tmp_path)  # type: ignore[arg-type]
    order = RunOrder("1", f"echo x >> {tmp_path}/ran; exit 5")
    for _ in range(3):
        box.coming.append(Delivered("n1", pack(order)))
    wait_until(lambda: host.turn(0) or ("n1", Standing("1", 5)) in box.sent)
    box.coming += [
        Delivered("n1", pack(order)),
        Delivered("n1", b"nonsense"),
        Delivered("n1", pack(EndOrder("9"))),
    ]
    box.coming.append(
        Delivered("n3", pack(RunOrder("3", f"echo y >> {tmp_path}/ran")))
    )  # another node of the job, where no launcher is
    for _ in range(4):
        host.turn(0)
    assert (tmp_path / "ran").read_text() == "x\n"
    assert box.sent[0] == ("n1", Standing("1"))
    assert box.sent[-1] == ("n1", Standing("1", 5))
    box.coming.append(Delivered("n1", pack(RunOrder("2", "exec sleep 600"))))
    host.turn(0)
    box.coming.append(Delivered("n1", pack(EndOrder("2"))))
    wait_until(lambda: host.turn(0) or ("n1", Standing("2", 128 + signal.SIGTERM)) in box.sent)


def test_launchers_and_libraries_are_told_apart() -> None:
    assert launcher_of(b"A=1\0OMPI_COMM_WORLD_SIZE=4\0PMI_SIZE=4") == "Open MPI"
    assert launcher_of(b"PMI_SIZE=4\0") == "MPICH"
    assert launcher_of(b"PMI_SIZE=1\0") == launcher_of(b"A=1\0") == ""
    line = b"7f00-7f01 r--p 00000000 08:01 1 "
    assert library_of(line + b"/opt/lib/libmpi.so.12.3.1\n") == (
        "MPICH",
        line.decode().split()[-1] and "/opt/lib/libmpi.so.12.3.1",
    )
    assert library_of(line + b"/usr/lib/libmpi.so.40.30.4\n") == ("Open MPI", "/usr/lib/libmpi.so.40.30.4")
    assert library_of(line + b"/usr/lib/libc.so.6\n") == ("", "")


def test_a_process_with_the_wrong_library_is_seen(tmp_path: Path) -> None:
    library = tmp_path / "libmpi.so.12"
    library.write_bytes(bytes(4096))
    hold = (
        "import mmap, sys, time; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, "
        "prot=mmap.PROT_READ); time.sleep(600)"
    )
    env = {**os.environ, "MGPU_TASK": MARKER, "OMPI_COMM_WORLD_SIZE": "4"}
    with subprocess.Popen([sys.executable, "-c", hold, str(library)], env=env) as process:
        try:
            mixtures, others = Mixtures(MARKER.encode()), Mixtures(b"another")
            said = wait_until(mixtures.look) or ""
            assert said.startswith(f"mgpu: the launcher is Open MPI, but the program uses MPICH ({library})")
            assert said.count("\n") == 0
            assert others.look() == ""
        finally:
            process.kill()


def test_the_programs_run_without_being_installed() -> None:
    done = subprocess.run(
        [*program("first"), "sh", "-c", "exit 3"],
        env={"PATH": "/bin:/usr/bin"},
        timeout=120,
        check=False,
        cwd="/",
    )
    assert done.returncode == 3
    missing = subprocess.run(
        [*program("first"), "no-such-program"],
        env={"PATH": "/bin"},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (missing.returncode, b"no-such-program" in missing.stderr) == (127, True)
