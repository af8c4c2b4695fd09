"""What is around a keeper's decisions: the machine under it, what a new keeper ends first, agents that are
started again, and what /proc says of a process.
"""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mgpu_agent.keeper import recovery, trees
from mgpu_agent.keeper.host import ThisMachine, listen, take_lock
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import TaskRecord
from mgpu_agent.keeper.recovery import end_lost_tasks, kill_all
from mgpu_agent.keeper.spool_names import SpoolSlots
from mgpu_agent.keeper.trees import Process, ProcessTable
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.cgroups import Share
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin
from tests.agent.keepers import a_key

ME = Account("me", os.getuid(), os.getgid())
REQUEST = Spawn(number=0, group=1, argv=(b"run",), env={}, cwd="/")


# --- the machine ---------------------------------------------------------------------------------------


class Asked:
    """Helpers that only note what they are asked for."""

    def __init__(self) -> None:
        self.requests: list[tuple[Account, Spawn, list[bool], bool]] = []

    def new_group(self) -> int:
        return 7

    def spawn(
        self, account: Account, request: Spawn, descriptors: tuple[int, ...], then: Any, *, may_gain: bool
    ) -> None:
        kinds = [stat.S_ISREG(os.fstat(one).st_mode) for one in descriptors]
        for one in descriptors:
            os.close(one)
        self.requests.append((account, request, kinds, may_gain))
        then(601)


class Groups:
    """Control groups: two descriptors for each of two, or an error."""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.left: list[str] = []

    def enter(self, attempt: str, share: Share) -> list[int]:
        if self.fails:
            raise OSError(28, "No space left on device")
        return [os.open(os.devnull, os.O_WRONLY) for _ in range(4)]

    def leave(self, attempt: str) -> None:
        self.left.append(attempt)


@pytest.fixture
def told() -> list[int | SpawnFailure]:
    return []


@pytest.mark.parametrize(
    ("has_groups", "share", "with_stdin", "kinds", "groups"),
    [
        (False, Share(), False, [True, True], 0),
        (False, Share(1), False, [True, True], 0),
        (True, Share(), False, [True, True], 0),
        (True, Share(1), False, [True, True, False, False, False, False], 2),
        (True, Share(0, 5), True, [True, True, False, False, False, False, False], 2),
    ],
)
def test_a_helper_gets_files_and_groups_with_its_request(
    tmp_path: Path,
    told: list[int | SpawnFailure],
    has_groups: bool,
    share: Share,
    with_stdin: bool,
    kinds: list[bool],
    groups: int,
) -> None:
    helpers = Asked()
    machine = ThisMachine(tmp_path, helpers)  # type: ignore[arg-type]
    machine.cgroups = Groups() if has_groups else None  # type: ignore[assignment]
    reader, writer = os.pipe()
    machine.spawn_as(
        ME,
        REQUEST,
        "a",
        told.append,
        stdin=Stdin("", reader) if with_stdin else None,
        may_gain=with_stdin,
        attempt="x",
        share=share,
    )
    os.close(reader)
    os.close(writer)

    expected = msgspec.structs.replace(REQUEST, groups=groups)
    assert (helpers.requests, told) == ([(ME, expected, kinds, with_stdin)], [601])
    assert [(path.name, path.stat().st_mode & 0o777) for path in sorted(tmp_path.iterdir())] == [
        ("a.err", 0o600),
        ("a.out", 0o600),
    ]
    assert machine.new_group() == 7


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_stands_in_the_way_of_a_process_is_said_and_nothing_is_left_open(
    tmp_path: Path, told: list[int | SpawnFailure]
) -> None:
    helpers = Asked()
    before = descriptors()
    machine = ThisMachine(tmp_path / "gone", helpers)  # type: ignore[arg-type]
    machine.spawn_as(ME, REQUEST, "a", told.append)
    machine = ThisMachine(tmp_path, helpers)  # type: ignore[arg-type]
    machine.cgroups = Groups(fails=True)  # type: ignore[assignment]
    machine.spawn_as(ME, REQUEST, "a", told.append, attempt="x", share=Share(1))
    (tmp_path / "b.err").symlink_to("elsewhere")
    machine.spawn_as(ME, REQUEST, "b", told.append)

    assert told == [
        SpawnFailure(
            "spool", "The node could not open the job's output files: No such file or directory.", "node"
        ),
        SpawnFailure(
            "no-cgroup",
            "The node could not bind the job to what it asked for: No space left on device.",
            "node",
        ),
        SpawnFailure(
            "spool",
            "The node could not open the job's output files: Too many levels of symbolic links.",
            "node",
        ),
    ]
    assert (helpers.requests, descriptors()) == ([], before)


def test_sizes_places_and_releases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine = ThisMachine(tmp_path)
    (tmp_path / "a.out").write_bytes(b"12345")
    here = os.getcwd()
    try:
        entered = [machine.enter(str(tmp_path)), os.getcwd(), machine.enter(str(tmp_path / "gone"))]
        machine.leave()
        entered.append(os.getcwd())
    finally:
        os.chdir(here)
    machine.release("without groups")
    machine.cgroups = groups = Groups()  # type: ignore[assignment]
    machine.release("x")
    machine.complain("A hook failed.")

    assert entered == ["", str(tmp_path), "No such file or directory", "/"]
    assert (machine.sizes("a"), machine.sizes("b"), machine.pid) == ((5, 0), (0, 0), os.getpid())
    assert (groups.left, capsys.readouterr().err) == (["x"], "A hook failed.\n")  # type: ignore[attr-defined]
    assert machine.has_room()


def test_the_socket_is_the_owners_alone_and_takes_the_place_of_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "keeper.sock").write_text("left by another")
    with listen(tmp_path) as listener:
        mode = (tmp_path / "keeper.sock").stat().st_mode
        assert (stat.S_ISSOCK(mode), mode & 0o777, listener.getblocking()) == (True, 0o600, False)


def test_a_lock_is_had_once_and_again_after_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mgpu_agent.keeper.host.LOCK_WAIT_S", 0.0)
    first = take_lock(tmp_path)
    assert first is not None
    before = descriptors()
    second = take_lock(tmp_path)
    assert (second, descriptors()) == (None, before)
    os.close(first)
    third = take_lock(tmp_path)
    assert third is not None
    os.close(third)


def test_a_bounded_number_of_spare_files_is_kept() -> None:
    slots = SpoolSlots("p")
    taken = [slots.take() for _ in range(258)]
    kept = [slots.give_back(stem) for stem in taken]

    assert (taken[:2], kept) == (["p-1", "p-2"], [True] * 256 + [False] * 2)
    assert (slots.spare[-1], slots.take(), len(slots.spare)) == ("p-256", "p-256", 255)


# --- what a new keeper ends ------------------------------------------------------------------------------


class Table:
    """A made-up process table of which each reading has its turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.processes: dict[int, Process] = {}
        self.markers: dict[int, bytes] = {}
        self.deaf: set[int] = set()
        self.foreign: set[int] = set()
        self.sent: list[tuple[float, list[int], tuple[int, ...]]] = []
        monkeypatch.setattr(trees, "read_marker", lambda pid: self.markers.get(pid, b""))
        monkeypatch.setattr(trees, "uid_of", lambda _: os.getuid())
        monkeypatch.setattr(recovery.ProcessTable, "read", lambda: ProcessTable(dict(self.processes)))
        monkeypatch.setattr(recovery, "send_signals", self._send)
        monkeypatch.setattr(recovery, "time", self)

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 5_000.0

    def sleep(self, seconds: float) -> None:
        self.now += max(seconds, 0.25)

    def run(self, pid: int, *, parent: int = 1, start_s: float = 1.0, marker: bytes = b"") -> None:
        ticks = int(start_s * os.sysconf("SC_CLK_TCK"))
        self.processes[pid] = Process(pid, parent, pid, pid, ticks)
        self.markers[pid] = marker

    def _send(self, found: list[Process], *signals: signal.Signals) -> list[Process]:
        self.sent.append((self.now, sorted(one.pid for one in found), tuple(map(int, signals))))
        forbidden = [one for one in found if one.pid in self.foreign]
        for one in found:
            if one.pid not in self.foreign and (one.pid not in self.deaf or signal.SIGKILL in signals):
                self.processes.pop(one.pid, None)
        return forbidden


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    return Table(monkeypatch)


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    ledger = Ledger(tmp_path / "ledger", "boot")
    ledger.note_meant(TaskRecord(key=a_key(), rank=0, spool="a"))
    ledger.note_begun(a_key(), 0, 200, 1.0, 50.0)
    yield ledger
    ledger.close()


def test_all_that_an_earlier_keeper_left_is_asked_and_then_killed(table: Table, ledger: Ledger) -> None:
    table.run(200, start_s=50.5)
    table.run(201, parent=200)
    table.run(202, marker=f"{ledger.ledger_id}/anything".encode())
    table.run(203, marker=b"other/anything")
    table.run(os.getpid(), marker=f"{ledger.ledger_id}/".encode())
    table.deaf = {201}
    kill_all(ledger, ledger.unfinished())

    terms = (int(signal.SIGTERM), int(signal.SIGCONT))
    assert table.sent[0] == (100.0, [200, 201, 202], terms)
    assert [(at, pids) for at, pids, _ in table.sent[1:]] == [
        (100.25 + 0.25 * step, [201]) for step in range(4)
    ]
    assert [signals for *_, signals in table.sent[1:]] == [terms] * 3 + [(int(signal.SIGKILL),)]
    assert sorted(table.processes) == sorted((203, os.getpid()))


@pytest.mark.parametrize(
    ("start_s", "is_its"), [(50.0, True), (52.0, True), (48.0, True), (53.0, False), (47.0, False)]
)
def test_a_number_that_another_process_has_by_now_is_spared(
    table: Table, ledger: Ledger, start_s: float, is_its: bool
) -> None:
    table.run(200, start_s=start_s)
    kill_all(ledger, ledger.unfinished())

    assert (200 in table.processes) is not is_its


@pytest.mark.parametrize("why", ["another user's", "hangs"])
def test_what_cannot_be_ended_is_given_up(table: Table, ledger: Ledger, why: str) -> None:
    table.run(200, start_s=50.0)
    if why == "hangs":
        table.run(201, parent=200)
        table.foreign = {201}
        table.deaf = {200}
    else:
        table.foreign = {200}
    kill_all(ledger, ledger.unfinished())

    assert table.sent[-1][0] == (100.0 if why != "hangs" else 101.25)


def test_a_driver_that_never_lets_go_is_waited_for_half_a_minute(
    table: Table, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    table.run(200, start_s=50.0)
    sent: list[float] = []

    def nothing_helps(found: list[Process], *_: object) -> list[Process]:
        sent.append(table.now)
        return []

    monkeypatch.setattr(recovery, "send_signals", nothing_helps)
    kill_all(ledger, ledger.unfinished())

    assert (sent[0], sent[-1]) == (100.0, 130.25)


class Left:
    """A machine with something in the spool."""

    def __init__(self) -> None:
        self.ended: list[list[TaskRecord]] = []

    def end_all(self, ledger: Ledger, lost: list[TaskRecord]) -> None:
        self.ended.append(lost)

    def sizes(self, stem: str) -> tuple[int, int]:
        return (3, 4) if stem == "a" else (0, 0)


@pytest.mark.parametrize("boot_id", ["boot", "next"])
def test_tasks_without_an_end_are_noted_as_lost(
    tmp_path: Path, ledger: Ledger, table: Table, boot_id: str
) -> None:
    ledger.flush()
    ledger.close()
    again = Ledger(tmp_path / "ledger", boot_id)
    host = Left()
    lost = again.unfinished()
    end_lost_tasks(again, host, "The keeper was killed.")
    same = boot_id == "boot"
    (record,) = again.known(a_key())

    assert host.ended == ([lost] if same else [])
    assert record == msgspec.structs.replace(
        lost[0],
        ended_at=5_000.0,
        exit_code=None,
        signal=9,
        reason="The keeper was killed." if same else "The node was started anew.",
        lost=True,
        stdout_bytes=3 if same else 0,
        stderr_bytes=4 if same else 0,
    )
    again.close()
    assert Ledger(tmp_path / "ledger", boot_id).known(a_key()) == [record]
