"""What jobs with `--mpi` are made of, without an MPI: files and environment, parcels, orders, mixtures."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.mpi.host import Host
from mgpu_agent.mpi.mixture import Mixtures, launcher_of, library_of
from mgpu_agent.mpi.orders import End, Run, Standing, pack, unpack
from mgpu_agent.mpi.parcels import MAX_BYTES, Delivered, Mailbox, job_socket
from mgpu_agent.mpi.setting import environment, hosts_of, interface_of, network_of, program, write_files
from mgpu_agent.process.post_office import PostOffice, key_of
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import Post
from tests.agent.master import wait_until

KEY = AttemptKey(JobId("AB12CD34"), 1, 7)
LEDGER = f"ledger{os.getpid()}"
MARKER = f"{LEDGER}/{KEY}/0"


def test_hosts_files_and_launcher(tmp_path: Path) -> None:
    hosts = hosts_of("n1:2,n2.lab:4")
    write_files(tmp_path, hosts)
    assert hosts == {"n1": 2, "n2.lab": 4}
    assert (tmp_path / "hosts.openmpi").read_text() == "n1 slots=2\nn2.lab slots=4\n"
    assert (tmp_path / "hosts.mpich").read_text() == "n1:2\nn2.lab:4\n"
    env = {"PATH": os.environ["PATH"], "MGPU_MPI_HOSTS": "n1:2,n2:2", "MGPU_NODE_ID": "n1"}

    def launch(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([str(tmp_path / "launch"), *words], env=env, capture_output=True, text=True, timeout=120, check=False)

    here = launch("-x", "-l", "ada", "n1", "A=b;export", "A;echo", '"$A c"')
    assert (here.returncode, here.stdout) == (0, "b c\n")
    elsewhere = launch("n9", "true")
    assert (elsewhere.returncode, elsewhere.stderr.count("\n")) == (255, 1)
    assert "n9 is no node of this job, which has n1, n2" in elsewhere.stderr
    assert launch("n1").returncode == 255


def test_what_the_user_set_goes_before_and_other_managers_are_out_of_sight(tmp_path: Path) -> None:
    env = environment(tmp_path, {"HYDRA_ENV": "all", "SLURM_JOB_ID": "1", "PATH": "/bin"})
    assert (env["HYDRA_ENV"], env["PATH"], "SLURM_JOB_ID" in env) == ("all", "/bin", False)
    assert env["OMPI_MCA_plm_rsh_agent"] == env["PRTE_MCA_plm_ssh_agent"] == env["HYDRA_LAUNCHER_EXEC"] == str(tmp_path / "launch")


def test_the_interface_is_the_measured_one_else_that_of_the_address() -> None:
    assert interface_of({"NCCL_SOCKET_IFNAME": "=lo"}) == "lo"
    assert interface_of({"NCCL_SOCKET_IFNAME": "gone0", "MASTER_ADDR": "127.0.0.1"}) == "lo"
    assert (network_of("lo"), network_of("gone0")) == ("127.0.0.0/8", "")


@pytest.fixture
def office() -> Iterator[PostOffice]:
    office = PostOffice()
    office.listen(LEDGER)
    office.listen(LEDGER)
    yield office
    office.close()


def speak(code: str, marker: str = MARKER) -> subprocess.Popen[str]:
    """Start a process of a job that runs this with a mailbox `box`."""
    text = f"from mgpu_agent.mpi.parcels import Mailbox; box = Mailbox({job_socket(LEDGER)!r}); {code}"
    env = {**os.environ, "MGPU_TASK": marker, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.Popen([sys.executable, "-c", text], env=env, stdout=subprocess.PIPE, text=True)


def test_parcels_go_out_with_their_attempt_and_come_in_to_it(office: PostOffice) -> None:
    mine = speak("box.send('n2', b'hello'); print(box.receive(20).data)")
    other = speak("box.send('n2', b'hello'); print(box.receive(2))", f"{LEDGER}/AB12CD34.1.8/0")
    found: list[Post] = []
    wait_until(lambda: found.extend(office.serve()) or len(found) == 2)
    assert sorted(found, key=lambda post: post.key)[0] == Post(key=KEY, to="n2", data=b"hello")  # type: ignore[arg-type]
    office.deliver(KEY, "n2", b"answer")
    assert mine.communicate(timeout=120)[0] == "b'answer'\n"
    assert other.communicate(timeout=120)[0] == "None\n"
    assert office.serve() == []


def test_a_stranger_is_not_let_in_and_nonsense_is_cut_off(office: PostOffice) -> None:
    stranger = speak("box.send('n2', b'hello'); print(box.receive(0.5))", "another-ledger/AB12CD34.1.7/0")
    wait_until(lambda: not office.serve() and stranger.poll() is not None)
    assert stranger.communicate()[0] == "None\n"
    nonsense = speak("box._connect(); box._socket.send(b'nonsense'); print(box._socket.recv(10))")
    wait_until(lambda: not office.serve() and nonsense.poll() is not None)
    assert nonsense.communicate()[0] == "b''\n"
    assert not Mailbox(job_socket("nobody")).send("n2", b"x")
    assert not Mailbox(job_socket(LEDGER)).send("n2", bytes(MAX_BYTES + 1))


@pytest.mark.parametrize("marker", [b"", b"ledger", b"a/b/c", b"ledger/AB12CD34.1.x/0", b"other/AB12CD34.1.7/0"])
def test_markers_that_name_no_attempt_of_ours(marker: bytes) -> None:
    assert key_of(marker, "ledger") is None


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
    host = Host(box)  # type: ignore[arg-type]
    order = Run("1", f"echo x >> {tmp_path}/ran; exit 5")
    for _ in range(3):
        box.coming.append(Delivered("n1", pack(order)))
    wait_until(lambda: host.turn(0) or ("n1", Standing("1", 5)) in box.sent)
    box.coming += [Delivered("n1", pack(order)), Delivered("n1", b"nonsense"), Delivered("n1", pack(End("9")))]
    for _ in range(3):
        host.turn(0)
    assert (tmp_path / "ran").read_text() == "x\n"
    assert box.sent[0] == ("n1", Standing("1"))
    assert box.sent[-1] == ("n1", Standing("1", 5))
    box.coming.append(Delivered("n1", pack(Run("2", "exec sleep 600"))))
    host.turn(0)
    box.coming.append(Delivered("n1", pack(End("2"))))
    wait_until(lambda: host.turn(0) or ("n1", Standing("2", 128 + signal.SIGTERM)) in box.sent)


def test_launchers_and_libraries_are_told_apart() -> None:
    assert launcher_of(b"A=1\0OMPI_COMM_WORLD_SIZE=4\0PMI_SIZE=4") == "Open MPI"
    assert launcher_of(b"PMI_SIZE=4\0") == "MPICH"
    assert launcher_of(b"PMI_SIZE=1\0") == launcher_of(b"A=1\0") == ""
    line = b"7f00-7f01 r--p 00000000 08:01 1 "
    assert library_of(line + b"/opt/lib/libmpi.so.12.3.1\n") == ("MPICH", line.decode().split()[-1] and "/opt/lib/libmpi.so.12.3.1")
    assert library_of(line + b"/usr/lib/libmpi.so.40.30.4\n") == ("Open MPI", "/usr/lib/libmpi.so.40.30.4")
    assert library_of(line + b"/usr/lib/libc.so.6\n") == ("", "")


def test_a_process_with_the_wrong_library_is_seen(tmp_path: Path) -> None:
    library = tmp_path / "libmpi.so.12"
    library.write_bytes(bytes(4096))
    hold = "import mmap, sys, time; f = open(sys.argv[1], 'rb'); m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ); time.sleep(600)"
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
    done = subprocess.run([*program("first"), "sh", "-c", "exit 3"], env={"PATH": "/bin:/usr/bin"}, timeout=120, check=False, cwd="/")
    assert done.returncode == 3
    missing = subprocess.run([*program("first"), "no-such-program"], env={"PATH": "/bin"}, capture_output=True, timeout=120, check=False)
    assert (missing.returncode, b"no-such-program" in missing.stderr) == (127, True)
