"""The agent's socket for jobs: who is let in and who is not, what goes in and out, and how much of it."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from mgpu_agent.mpi.parcels import MAX_BYTES, SECRET_VARIABLE, SOCKET_VARIABLE, Delivered, Mailbox, Parcel
from mgpu_agent.process import job_socket
from mgpu_agent.process.job_socket import JobSecrets, JobSocket
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import MAX_POST_BYTES, Post
from mgpu_agent.run_as.account import Account
from tests.agent.master import wait_until

KEY = AttemptKey(JobId("AB12CD34"), 1, 7)
OTHER = AttemptKey(JobId("AB12CD34"), 1, 8)
KNOWN = {KEY, OTHER}
HELLO = Post(key=KEY, to=NodeId("n2"), data=b"hello")
NEEDS_ROOT = pytest.mark.skipif(os.getuid() != 0, reason="needs root: it runs something as another user")


class Clock:
    """The time that the socket sees."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(job_socket, "time", clock)
    return clock


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory whose name alone is longer than the path of a Unix socket may be."""
    place = tmp_path / ("a" * 110)
    place.mkdir(mode=0o700)
    return place


@pytest.fixture
def jobs(place: Path) -> Iterator[JobSocket]:
    jobs = JobSocket(place, JobSecrets(place))
    jobs.listen()
    jobs.listen()
    with contextlib.closing(jobs):
        yield jobs


def credentials(jobs: JobSocket, key: AttemptKey = KEY, account: Account | None = None) -> tuple[str, str]:
    env = jobs.environment(key, account)
    return os.fsdecode(env[SOCKET_VARIABLE.encode()]), os.fsdecode(env[SECRET_VARIABLE.encode()])


@pytest.fixture
def connect(place: Path) -> Iterator[Callable[..., socket.socket]]:
    """Connect as a process would that has this secret, or none."""
    opened: list[socket.socket] = []

    def connect(secret: str | None) -> socket.socket:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        opened.append(connection)
        directory = os.open(place, os.O_PATH)
        connection.connect(f"/proc/self/fd/{directory}/jobs.sock")
        os.close(directory)
        connection.setblocking(False)
        if secret is not None:
            connection.send(secret.encode())
        return connection

    yield connect
    for connection in opened:
        connection.close()


def parcel(data: bytes = b"hello", to: str = "n2") -> bytes:
    return msgspec.msgpack.encode({"to": to, "data": data})


def is_cut_off(connection: socket.socket) -> bool:
    try:
        return connection.recv(100) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def turns(jobs: JobSocket, count: int = 20) -> list[Post]:
    return [post for _ in range(count) for post in jobs.serve(KNOWN)]


def is_ready(jobs: JobSocket) -> bool:
    """Tell whether there is something that ends a wait of the loop."""
    waits = select.poll()
    waits.register(jobs.fileno(), select.POLLIN)
    return bool(waits.poll(0))


def test_parcels_go_out_with_their_attempt_and_come_in_to_it(jobs: JobSocket) -> None:
    mine, other = Mailbox(*credentials(jobs)), Mailbox(*credentials(jobs, OTHER))
    for box in (mine, other):
        assert box.send("n2", b"hello")
    assert turns(jobs) == [HELLO, Post(key=OTHER, to=NodeId("n2"), data=b"hello")]
    jobs.deliver(KEY, "n2", b"answer")
    assert mine.receive(5) == Delivered("n2", b"answer")
    assert other.receive(0.1) is None
    assert not mine.send("n2", bytes(MAX_BYTES + 1))
    for box in (mine, other):
        box.close()
    assert turns(jobs) == []


def test_the_socket_is_its_owners_or_open_to_those_who_pass(jobs: JobSocket, place: Path) -> None:
    def modes() -> tuple[bool, int]:
        info = (place / "jobs.sock").stat()
        return stat.S_ISSOCK(info.st_mode), stat.S_IMODE(info.st_mode)

    assert modes() == (True, 0o600)
    with contextlib.closing(JobSocket(place, JobSecrets(place), for_all_users=True)) as newer:
        newer.listen()
        assert modes() == (True, 0o666)
        assert sorted(path.name for path in place.iterdir()) == ["jobs.sock", "keys"]
        box = Mailbox(*credentials(jobs))
        assert box.send("n2", b"hello")
        box.close()
        assert turns(newer) == [HELLO]  # it has taken the place of the earlier one, and knows its secrets
    gone = JobSocket(place / "gone", JobSecrets(place))
    gone.listen()
    gone.close()
    assert not Mailbox(*credentials(gone)).send("n2", b"x")


def test_a_secret_is_of_one_attempt_one_user_and_one_node(tmp_path: Path) -> None:
    (here := tmp_path / "here").mkdir(mode=0o700)
    (there := tmp_path / "there").mkdir(mode=0o700)
    secrets = JobSecrets(here)
    secret = secrets.make(KEY, 1000)
    assert (JobSecrets(here).read(secret), JobSecrets(there).read(secret)) == ((KEY, 1000), None)
    assert stat.S_IMODE((here / "keys" / "jobs").stat().st_mode) == 0o600
    assert (here / "keys" / "jobs").stat().st_size == 32
    text = secret.decode()
    code = text.rpartition(".")[2]
    forged = (
        "",
        "AB12CD34.1.7.1000",
        text[:-1],
        f"AB12CD34.1.7.1000.{'0' * 64}",
        f"AB12CD34.1.8.1000.{code}",
        f"AB12CD34.1.7.1001.{code}",
        f"AB12CD34.1.7.+1000.{code}",
        f"AB12CD34.1.07.1000.{code}",
        f"AB12CD34.1.x.1000.{code}",
        f"{text}.",
        f"{text} ",
        text.upper(),
        "9" * 50_000,
        f"AB12CD34.1.{'9' * 5_000}.1000.{code}",
    )
    assert [secrets.read(one.encode()) for one in forged] == [None] * len(forged)
    assert secrets.read(b"\xff" + secret) is None
    (here / "keys" / "jobs").write_bytes(b"")
    assert JobSecrets(here).read(secret) is None  # and it has a key again
    assert (here / "keys" / "jobs").stat().st_size == 32


def test_whoever_has_no_secret_is_cut_off_whatever_its_environment_says(
    jobs: JobSocket, connect: Callable[..., socket.socket]
) -> None:
    path, secret = credentials(jobs)
    code = (
        f"from mgpu_agent.mpi.parcels import Mailbox; box = Mailbox({path!r}, 'x'); box.send('n2', "
        f"b'hello'); print(box.receive(0.5))"
    )
    env = {**os.environ, "MGPU_TASK": f"ledger/{KEY}/0", "PYTHONPATH": str(Path(__file__).parents[2])}
    liar = subprocess.Popen([sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, text=True)
    posted: list[Post] = []
    wait_until(lambda: posted.extend(jobs.serve(KNOWN)) or liar.poll() is not None)
    assert (posted, liar.communicate()[0]) == ([], "None\n")
    of_another_user = credentials(jobs, KEY, Account("x", os.getuid() + 1, 0))[1]
    of_an_attempt_that_is_over = credentials(jobs, AttemptKey(JobId("AB12CD34"), 1, 6))[1]
    for wrong in ("", "x", secret[:-1], of_another_user, of_an_attempt_that_is_over):
        connection = connect(wrong or None)
        with contextlib.suppress(OSError):
            connection.send(parcel())
        assert (turns(jobs), is_cut_off(connection)) == ([], True), wrong
    nonsense, too_large, too_long = connect(secret), connect(secret), connect(secret)
    nonsense.send(b"nonsense")
    too_large.send(parcel(bytes(MAX_BYTES + 1)))
    too_long.send(parcel(to="n" * 64))
    assert turns(jobs) == []
    assert [is_cut_off(one) for one in (nonsense, too_large, too_long)] == [True] * 3


@NEEDS_ROOT
def test_the_secret_of_another_user_is_worth_nothing(tmp_path: Path) -> None:
    """The kernel says who connects: as 4711, only the secret for 4711 counts."""
    with (
        tempfile.TemporaryDirectory() as name,
        contextlib.closing(JobSocket(Path(name), JobSecrets(tmp_path), for_all_users=True)) as jobs,
    ):
        Path(name).chmod(0o711)
        jobs.listen()
        credential = credentials(jobs, KEY, Account("x", 4711, 4711))
        boxes = {uid: Mailbox(*credential) for uid in (4712, 4711, 0)}
        posted = {}
        for uid, box in boxes.items():
            os.seteuid(uid)
            try:
                assert box.send("n2", b"hello")
            finally:
                os.seteuid(0)
            posted[uid] = turns(jobs)
            jobs.deliver(KEY, "n2", b"for 4711 alone")
        assert posted == {4712: [], 4711: [HELLO], 0: []}
        assert {uid: box.receive(0.1) for uid, box in boxes.items()} == {
            4712: None,
            4711: Delivered("n2", b"for 4711 alone"),
            0: None,
        }
        for box in boxes.values():
            box.close()


def test_an_attempt_that_is_over_is_cut_off(
    jobs: JobSocket, connect: Callable[..., socket.socket], clock: Clock
) -> None:
    mine, other = connect(credentials(jobs)[1]), connect(credentials(jobs, OTHER)[1])
    assert turns(jobs) == []
    clock.now += job_socket.PACE_S
    assert jobs.serve({OTHER}) == []
    assert (is_cut_off(mine), is_cut_off(other)) == (True, False)


def test_one_job_that_sends_without_end_gets_its_share_and_others_theirs(
    jobs: JobSocket, connect: Callable[..., socket.socket], clock: Clock
) -> None:
    loud, quiet = [connect(credentials(jobs)[1]) for _ in range(4)], connect(credentials(jobs, OTHER)[1])
    turns(jobs)

    def fill() -> None:
        for connection in loud:
            with contextlib.suppress(BlockingIOError):
                while True:
                    connection.send(parcel())

    got: list[Post] = []
    for _ in range(200):
        fill()
        got += jobs.serve(KNOWN)
    assert got == [HELLO] * job_socket.FRAMES_PER_PACE
    quiet.send(parcel())
    assert turns(jobs) == [Post(key=OTHER, to=NodeId("n2"), data=b"hello")]
    loud[0].close()
    assert jobs.serve(KNOWN) == []  # one that is not heard does not keep the loop awake either
    clock.now += job_socket.PACE_S
    assert len(turns(jobs, 200)) > 0
    for connection in loud[1:]:
        with contextlib.suppress(BlockingIOError):
            connection.send(parcel(bytes(MAX_BYTES)))


def test_large_parcels_use_up_a_share_sooner(
    jobs: JobSocket, connect: Callable[..., socket.socket], clock: Clock
) -> None:
    loud = connect(credentials(jobs)[1])
    got = 0
    for _ in range(200):
        with contextlib.suppress(BlockingIOError):
            loud.send(parcel(bytes(MAX_BYTES)))
        got += len(jobs.serve(KNOWN))
    assert got == -(-job_socket.BYTES_PER_PACE // len(parcel(bytes(MAX_BYTES))))
    assert clock.now == 1_000.0


def test_connections_are_bounded_for_an_attempt_and_for_those_that_say_nothing(
    place: Path, connect: Callable[..., socket.socket], monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(job_socket, "MAX_CONNECTIONS", 8)
    monkeypatch.setattr(job_socket, "MAX_NAMELESS", 4)
    monkeypatch.setattr(job_socket, "ACCEPTED_PER_PACE", 24)
    with contextlib.closing(JobSocket(place, JobSecrets(place))) as jobs:
        jobs.listen()
        mine = [connect(credentials(jobs)[1]) for _ in range(6)]
        turns(jobs)
        assert [is_cut_off(one) for one in mine] == [False] * 4 + [True] * 2  # half of eight
        silent = [connect(None) for _ in range(6)]
        turns(jobs)
        assert [is_cut_off(one) for one in silent] == [True] * 2 + [False] * 4
        of_other = credentials(jobs, OTHER)[1]
        connect(of_other).send(parcel())
        assert turns(jobs) == [Post(key=OTHER, to=NodeId("n2"), data=b"hello")]
        flood = [connect("x") for _ in range(30)]
        connect(of_other).send(parcel())
        assert turns(jobs) == []  # no more are taken for a moment
        assert not is_ready(jobs), "the loop sleeps until then"
        clock.now += job_socket.NAMELESS_S
        assert turns(jobs) == [Post(key=OTHER, to=NodeId("n2"), data=b"hello")]
        assert [is_cut_off(one) for one in (*flood, *silent)] == [True] * 36


def test_without_a_free_descriptor_the_loop_sleeps_and_goes_on_later(
    jobs: JobSocket, connect: Callable[..., socket.socket], clock: Clock
) -> None:
    connection = connect(credentials(jobs)[1])
    connection.send(parcel())
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        assert turns(jobs) == []
        assert not is_ready(jobs)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert turns(jobs) == []
    clock.now += job_socket.PACE_S
    assert turns(jobs) == [HELLO]


def test_the_master_passes_on_what_an_agent_takes() -> None:
    assert MAX_POST_BYTES == MAX_BYTES
    assert msgspec.msgpack.decode(parcel(), type=Parcel) == Parcel("n2", b"hello")
