"""What launches wait for on a node: folders up to a size and as their user, what a user's directory says, and
nobody waits for another.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from mgpu_agent.core.commands import StartLaunch
from mgpu_agent.core.events import LaunchFailed
from mgpu_agent.keeper.messages import Collect, TaskRecord
from mgpu_agent.keeper.messages import StartTasks as KeeperStart
from mgpu_agent.process.files import JobFiles
from mgpu_agent.process.pieces import FOLDER_LIMIT_BYTES
from mgpu_agent.process.preparation import Preparation
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.file_messages import CollectResult, FetchPieces, FoundResults, Piece, ResultChunk
from mgpu_agent.protocol.folders import PIECE_BYTES, Entry, Folder, digest_of, encode_folder
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Pong
from mgpu_agent.protocol.model import CellPython, CellWish, LaunchSpec, PythonWish, TaskSpec
from mgpu_agent.run_as.account import Account, Accounts
from mgpu_agent.run_as.user_files import UserFiles
from tests.e2e.people import open_directory
from tests.processes import wait_until

needs_root = pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
ANN, BOB = Account("ann", 54321, 54321), Account("bob", 54322, 54322)
HERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


class KnownAccounts(Accounts):
    """Users who need not be in the system's files."""

    def __init__(self) -> None:
        super().__init__({})

    def of(self, user: str) -> Any:
        return {"ann": ANN, "bob": BOB}.get(user) or super().of(user)


class FilesOfNode:
    """Files of a node, as an agent's loop drives them, and a master that has these pieces."""

    def __init__(self, directory: Path, passage: Path | None, *, as_users: bool) -> None:
        self.pieces: dict[str, bytes] = {}
        self.sent: list[Any] = []
        self.ready: list[StartLaunch] = []
        self.failed: list[LaunchFailed] = []
        self.users = UserFiles(silent_s=1.0)
        self.spool = Spool(directory, passage, self.users)
        self.places = Preparation(
            NodeId("n1"), self.spool, (), {b"PATH": b"/usr/bin:/bin"}, KnownAccounts() if as_users else None
        )
        self._wake, self._waker = socket.socketpair()
        self.files = JobFiles(directory, self._take, self._waker, self.places, self.users)

    def _take(self, message: Any) -> None:
        self.sent.append(message)

    def want(self, spec: LaunchSpec) -> None:
        command = StartLaunch(spec=spec)
        if self.files.has(spec):
            self.ready.append(command)
        else:
            self.files.want(command)

    def turn(self) -> bool:
        for message in [message for message in self.sent if isinstance(message, FetchPieces)]:
            self.sent.remove(message)
            for digest in message.digests:
                data = self.pieces.get(digest)
                self.files.take(Piece(digest=digest, data=None if data is None else memoryview(data)))
        ready, failed = self.files.turn(time.monotonic(), may_tell=True)
        self.ready += ready  # type: ignore[arg-type]
        self.failed += failed
        return True

    def until(self, condition: Callable[[], object], what: str) -> None:
        wait_until(lambda: self.turn() and condition(), what, 20, 0.01)

    def close(self) -> None:
        self.spool.close()
        self.files.close()
        self._wake.close()
        self._waker.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[FilesOfNode]:
    with open_directory() as place:
        node = FilesOfNode(tmp_path / "node", place / "n1", as_users=True)
        yield node
        node.close()


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[FilesOfNode]:
    node = FilesOfNode(tmp_path / "node", None, as_users=False)
    yield node
    node.close()


def a_spec(user: str = "ann", number: int = 1, **fields: Any) -> LaunchSpec:
    key = AttemptKey(JobId("ABCD1234"), 1, number)
    values = {"argv": ("true",)} | fields
    return LaunchSpec(
        key=key, node_id=NodeId("n1"), incarnation="b/l", user=user, tasks=(TaskSpec(rank=0),), **values
    )


def folder_of(node: FilesOfNode, entries: tuple[Entry, ...], *contents: bytes) -> str:
    listed = encode_folder(Folder(entries))
    node.pieces |= {digest_of(data): data for data in (listed, *contents)}
    return digest_of(listed)


def test_a_folder_bomb_is_refused_before_anything_of_it_is_fetched_or_written(
    plain: FilesOfNode, tmp_path: Path
) -> None:
    """One piece that stands in the list again and again is small to send, and fills the disk when it is laid
    out.
    """
    piece = b"x" * PIECE_BYTES
    entries = tuple(
        Entry(f"f{n}", "file", size=1000 * PIECE_BYTES, pieces=(digest_of(piece),) * 1000) for n in range(100)
    )
    bomb = folder_of(plain, entries, piece)
    plain.want(a_spec(folder=bomb))
    plain.until(lambda: plain.failed, "it is refused")
    (failed,) = plain.failed
    assert (failed.code, failed.fault) == ("no-folder", "request")
    limit = FOLDER_LIMIT_BYTES
    size = 100_000 * PIECE_BYTES
    assert (
        failed.message
        == f"The job's folder could not be laid out: it has {size} bytes, and {limit} are allowed."
    )
    assert plain.ready == []
    kept = sorted(path.name for path in (tmp_path / "node" / "pieces").glob("*/*"))
    assert kept == [bomb]


def test_a_piece_that_is_longer_than_the_list_says_is_not_written(plain: FilesOfNode) -> None:
    piece = b"x" * PIECE_BYTES
    plain.want(
        a_spec(folder=folder_of(plain, (Entry("f", "file", size=1, pieces=(digest_of(piece),)),), piece))
    )
    plain.until(lambda: plain.failed, "it is refused")
    assert [(one.message, one.fault) for one in plain.failed] == [
        ("The job's folder could not be laid out: f has other content than its size says.", "request")
    ]


def test_a_folder_of_many_files_is_laid_out_as_it_was(plain: FilesOfNode, tmp_path: Path) -> None:
    big = os.urandom(3) * (2 * PIECE_BYTES // 3 + 100)
    parts = [big[at : at + PIECE_BYTES] for at in range(0, len(big), PIECE_BYTES)]
    entries = (
        Entry("d", "directory", 0o755, 10**18),
        Entry("d/big", "file", 0o640, 10**18, len(big), tuple(map(digest_of, parts))),
        Entry("d/empty", "file", 0o600, 10**18),
        Entry("d/link", "link", target="big"),
        *(Entry(f"d/s{n}", "file", 0o644, 10**18, 2, (digest_of(b"ab"),)) for n in range(1200)),
    )
    spec = a_spec(folder=folder_of(plain, entries, b"ab", *parts))
    plain.want(spec)
    plain.until(lambda: plain.ready, "it is there")
    place = plain.spool.folder_of(spec.key)
    assert (place / "d" / "big").read_bytes() == big
    assert os.readlink(place / "d" / "link") == "big"
    assert {(place / "d" / f"s{n}").read_bytes() for n in range(1200)} == {b"ab"}
    modes = {name: (place / "d" / name).stat().st_mode & 0o777 for name in (".", "big", "empty", "s0")}
    assert modes == {".": 0o755, "big": 0o640, "empty": 0o600, "s0": 0o644}
    assert (place / "d").stat().st_mtime_ns == 10**18


@needs_root
def test_a_folder_is_written_by_its_user_within_what_the_user_may(node: FilesOfNode) -> None:
    spec = a_spec(folder=folder_of(node, (Entry("f", "file", 0o600, 0, 2, (digest_of(b"ab"),)),), b"ab"))
    node.want(spec)
    node.until(lambda: node.ready, "it is there")
    place = node.spool.folder_of(spec.key)
    assert [(path.stat().st_uid, path.stat().st_gid) for path in (place, place / "f")] == [
        (ANN.uid, ANN.gid)
    ] * 2
    start = node.places.prepare(spec)
    assert isinstance(start, KeeperStart)
    assert (start.cwd, start.account) == (str(place), ANN)


@needs_root
def test_a_launch_whose_user_stops_the_helper_fails_alone(node: FilesOfNode) -> None:
    node.want(a_spec(number=1, cwd="/"))
    node.until(lambda: len(node.ready) == 1, "the first is ready")
    (helper,) = [one for one in psutil.Process().children() if one.uids().real == ANN.uid]
    helper.send_signal(signal.SIGSTOP)
    begun_at = time.monotonic()
    node.want(a_spec(number=2, cwd="/"))
    assert time.monotonic() - begun_at < 0.5
    node.want(a_spec("bob", number=3, cwd="/"))
    node.until(lambda: len(node.ready) == 2, "another's launch is ready")
    assert node.failed == []
    node.until(lambda: node.failed, "the launch of who stopped it fails")
    why = (
        "the helper of ann on this node did not answer within 1 s: end what stops or blocks processes of "
        "this user there"
    )
    assert [(one.key.epoch, one.code, one.fault, one.message) for one in node.failed] == [
        (2, "node-files", "job", f"The node could not prepare the job's files: {why}.")
    ]
    node.want(a_spec(number=4, cwd="/"))
    node.until(lambda: len(node.ready) == 3, "the next one of that user is ready")


@needs_root
def test_what_a_launch_gets_is_its_users_and_where_no_account_is_it_is_refused(
    node: FilesOfNode, tmp_path: Path
) -> None:
    spec = a_spec(
        argv=(), script="print(1)", outputs=("b",), cwd=str(tmp_path), python=PythonWish(kernel_version=HERE)
    )
    node.want(spec)
    node.until(lambda: node.ready, "it is ready")
    start = node.places.prepare(spec)
    assert isinstance(start, KeeperStart)
    script, values, cwd = (
        Path(os.fsdecode(start.argv[-1])),
        Path(start.collect.values if start.collect else ""),
        Path(start.cwd),
    )
    assert [(path.stat().st_uid, path.stat().st_mode & 0o777) for path in (script, values, cwd)] == [
        (ANN.uid, 0o600),
        (ANN.uid, 0o700),
        (ANN.uid, 0o700),
    ]
    assert script.read_text() == "print(1)"
    assert (
        start.note
        == f"{tmp_path} cannot be entered on this node: the job runs in {cwd}, which is kept for 7 days."
    )
    node.want(a_spec("daemon", number=9))
    node.until(lambda: node.failed, "who has no account is refused")
    assert [(one.code, one.fault, one.exit_code) for one in node.failed] == [("no-account", "request", 126)]


@needs_root
def test_a_launch_whose_place_is_anothers_is_refused(node: FilesOfNode) -> None:
    node.spool.scratch_of("ABCD1234", BOB)
    node.want(a_spec())
    node.until(lambda: node.failed, "it is refused")
    (failed,) = node.failed
    assert failed.code == "node-files"
    assert "belongs to another user" in failed.message


@needs_root
def test_which_python_a_cell_would_get_is_told_without_running_it(node: FilesOfNode, tmp_path: Path) -> None:
    trap = tmp_path / "python"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path}/it-ran\n")
    trap.chmod(0o755)
    who = (4, NodeId("n1"), "127.0.0.1", "tcp://m", ())
    wishes = {
        "ann": PythonWish(kernel_path=str(trap), kernel_version=HERE),
        "bob": PythonWish(path=str(trap)),
        "nobody-knows": PythonWish(),
    }
    told: dict[str, CellPython | None] = {}
    for user, wish in wishes.items():
        node.files.tell_who(who, CellWish(user=user, python=wish))
        node.until(lambda: node.sent, "it is told")
        (pong,) = node.sent
        assert isinstance(pong, Pong)
        told[user] = pong.cell
        node.sent.clear()
    assert told == {
        "ann": CellPython(path=sys.executable, version=HERE),
        "bob": CellPython(),
        "nobody-knows": CellPython(),
    }
    assert not (tmp_path / "it-ran").exists()


def a_record(user: str, number: int, cwd: Path, *patterns: str, limit: int = 0) -> TaskRecord:
    collect = Collect(patterns, 1, -1, "", user, limit)
    return TaskRecord(
        AttemptKey(JobId("ABCD1234"), 1, number), 0, cwd=str(cwd), ended_at=1.0, collect=collect
    )


def test_one_users_results_do_not_wait_for_anothers_and_a_sparse_file_is_refused_by_its_size(
    plain: FilesOfNode, tmp_path: Path
) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(60 * 1000**3)
    (tmp_path / "small").write_bytes(b"abc")
    plain.files.results.note(
        a_record("ann", 1, tmp_path, "sparse")
    )  # takes a minute: from an earlier master, without a limit
    plain.files.results.note(a_record("bob", 2, tmp_path, "s*", limit=20 * 1024**3))
    plain.until(lambda: plain.sent, "the other's are told")
    (found,) = plain.sent
    assert isinstance(found, FoundResults)
    assert [(file.path, file.size) for file in found.files] == [("small", 3)]
    assert found.problems == (
        "sparse: it has 60000000000 bytes, and results are kept up to 21474836480 bytes",
    )
    plain.sent.clear()
    plain.files.results.answer(CollectResult(key=found.key, number=0, offset=1, size=100))
    plain.until(lambda: plain.sent, "a part is sent")
    (chunk,) = plain.sent
    assert isinstance(chunk, ResultChunk)
    assert (bytes(chunk.data), chunk.problem) == (b"bc", "")


def test_launches_that_need_nothing_wait_for_nothing_where_jobs_are_the_agents_own(
    plain: FilesOfNode,
) -> None:
    spec = a_spec(cwd="/")
    plain.want(spec)
    assert [command.spec for command in plain.ready] == [spec]
    start = plain.places.prepare(spec)
    assert isinstance(start, KeeperStart)
    assert (start.cwd, start.account) == ("/", None)
