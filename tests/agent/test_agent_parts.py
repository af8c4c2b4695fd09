"""Parts of the agent that hold what it knows of attempts: results that jobs leave, what they used, pieces of
folders, directories that users pass through.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.messages import Collect, TaskRecord
from mgpu_agent.process.results import Results
from mgpu_agent.process.task_status import Usage, Used, status_of
from mgpu_agent.protocol.file_messages import CollectResult, FoundResults, ResultChunk
from mgpu_agent.protocol.model import GpuSample, ResultFile, TaskStatus
from mgpu_agent.run_as.requests import Content, FindResults, Found, FoundFile, ReadResult
from tests.agent.keepers import a_key

COLLECT = Collect(patterns=("*.pt",), ranks=2, user="anne", uid=-1, values="/values", limit_bytes=99)
ENDED = TaskRecord(key=a_key(), rank=0, cwd="/place", ended_at=1.0, collect=COLLECT)
FILES = (FoundFile("a.pt", 10, "aa", 0o644), FoundFile("0.json", 5, "bb", 0o600, 0))
FOUND = FoundResults(
    key=a_key(),
    files=(ResultFile("a.pt", 10, "aa", 0o644, -1), ResultFile("0.json", 5, "bb", 0o600, 0)),
    problems=("b.pt is a link",),
)


class Users:
    """The threads of users: each order is kept until a test carries it out."""

    def __init__(self) -> None:
        self.orders: list[tuple[str, Callable[[Any], None]]] = []
        self.asked: list[tuple[Any, Any]] = []
        self.answer: object = Found(files=FILES, problems=("b.pt is a link",))
        self.has_room = True
        self.is_closed = False

    def submit(self, lane: str, work: Callable[[Any], None]) -> bool:
        if self.has_room:
            self.orders.append((lane, work))
        return self.has_room

    def carry_out(self) -> list[str]:
        orders, self.orders = self.orders, []
        for _, work in orders:
            work(self._ask)
        return [lane for lane, _ in orders]

    def _ask(self, account: Any, task: Any) -> object:
        self.asked.append((account, task))
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


class Leaving:
    """The results of a node, and what the master was told."""

    def __init__(self) -> None:
        self.users = Users()
        self.sent: list[FoundResults | ResultChunk] = []
        self.woken: list[None] = []
        self.results = Results(self.sent.append, lambda: self.woken.append(None), self.users)  # type: ignore[arg-type]

    def found(self, *, may_tell: bool = True) -> list[FoundResults | ResultChunk]:
        """Let both ranks end, look, and tell."""
        for rank in (0, 1):
            self.results.note(replace(ENDED, rank=rank))
        self.users.carry_out()
        return self.turn(may_tell=may_tell)

    def turn(self, *, may_tell: bool = True) -> list[FoundResults | ResultChunk]:
        self.results.turn(may_tell=may_tell)
        sent, self.sent[:] = list(self.sent), []
        return sent


@pytest.fixture
def leaving() -> Leaving:
    return Leaving()


def test_results_are_looked_for_once_when_all_ranks_have_ended(leaving: Leaving) -> None:
    lanes = []
    for record in (
        replace(ENDED, collect=None),
        replace(ENDED, ended_at=None),
        ENDED,
        ENDED,
        replace(ENDED, rank=1),
        ENDED,
    ):
        leaving.results.note(record)
        lanes.append([lane for lane, _ in leaving.users.orders])
    leaving.users.carry_out()

    assert lanes == [[], [], [], [], ["anne leaves"], ["anne leaves"]]
    assert leaving.users.asked == [
        (None, FindResults(root="/place", patterns=("*.pt",), uid=-1, values="/values", limit_bytes=99))
    ]
    assert (leaving.woken, leaving.turn(), leaving.turn()) == ([None], [FOUND], [])


def test_results_of_an_account_are_looked_for_as_that(leaving: Leaving) -> None:
    leaving.results.note(replace(ENDED, collect=replace(COLLECT, uid=os.getuid(), ranks=1)))

    assert leaving.users.carry_out() == [f"{os.getuid()} leaves"]
    (account, task) = leaving.users.asked[0]
    assert (account.uid, task.uid) == (os.getuid(), os.getuid())


def test_what_is_found_while_the_master_is_away_is_told_when_it_is_back(leaving: Leaving) -> None:
    away = leaving.found(may_tell=False)
    leaving.results.tell_again()

    assert (away, leaving.sent) == ([], [FOUND])


@pytest.mark.parametrize("is_closed", [False, True])
def test_results_that_cannot_be_looked_for_are_told_unless_the_agent_ends(
    leaving: Leaving, is_closed: bool
) -> None:
    leaving.users.answer = OSError("no helper")
    leaving.users.is_closed = is_closed
    told = leaving.found()

    problem = "The results could not be looked for: no helper"
    assert told == ([] if is_closed else [FoundResults(key=a_key(), files=(), problems=(problem,))])


def test_too_many_results_of_one_user_are_a_problem_of_theirs(leaving: Leaving) -> None:
    leaving.users.has_room = False

    assert leaving.found() == [
        FoundResults(key=a_key(), files=(), problems=("Too many results of this user wait on this node",))
    ]


@pytest.mark.parametrize(("number", "root", "path"), [(0, "/place", "a.pt"), (1, "/values", "0.json")])
@pytest.mark.parametrize(("size", "read"), [(4, 4), (10_000_000, 1024 * 1024)])
def test_a_part_of_a_result_is_read_from_where_it_lies(
    leaving: Leaving, number: int, root: str, path: str, size: int, read: int
) -> None:
    leaving.found()
    leaving.users.answer = Content(data=b"x" * 2_000_000)
    leaving.results.answer(CollectResult(key=a_key(), number=number, offset=3, size=size))
    leaving.users.carry_out()
    (chunk,) = leaving.turn()

    (_, asked) = leaving.users.asked[-1]
    assert asked == ReadResult(root=root, path=path, uid=-1, offset=3, size=read)
    assert isinstance(chunk, ResultChunk)
    assert (chunk.key, chunk.number, chunk.offset, chunk.problem) == (a_key(), number, 3, "")
    assert bytes(chunk.data) == b"x" * read
    assert leaving.woken == [None, None]


def test_a_result_that_is_gone_is_said(leaving: Leaving) -> None:
    leaving.found()
    leaving.users.answer = OSError("a.pt is gone")
    leaving.results.answer(CollectResult(key=a_key(), number=0, offset=0, size=4))
    leaving.users.carry_out()

    assert leaving.turn() == [
        ResultChunk(key=a_key(), number=0, offset=0, data=memoryview(b""), problem="a.pt is gone")
    ]


@pytest.mark.parametrize(("number", "attempt"), [(-1, 1), (2, 1), (0, 2)])
def test_what_was_not_found_is_not_read(leaving: Leaving, number: int, attempt: int) -> None:
    leaving.found()
    leaving.results.answer(CollectResult(key=a_key(attempt), number=number, offset=0, size=4))

    assert leaving.users.orders == []


def test_a_forgotten_attempt_is_not_told_of_and_not_read(leaving: Leaving) -> None:
    for rank in (0, 1):
        leaving.results.note(replace(ENDED, rank=rank))
    leaving.results.forget([a_key()])
    leaving.users.carry_out()
    late = leaving.turn()
    leaving.results.note(ENDED)  # one of two again
    alone = list(leaving.users.orders)
    leaving.results.forget([a_key(), a_key(7)])
    again = leaving.found()
    leaving.results.forget([a_key()])
    leaving.results.tell_again()
    leaving.results.answer(CollectResult(key=a_key(), number=0, offset=0, size=4))

    assert (late, alone, again, leaving.sent, leaving.users.orders) == ([], [], [FOUND], [], [])


# --- what attempts used ----------------------------------------------------------------------------------


def sample(uuid: str, used: int | None, load: float | None) -> GpuSample:
    return GpuSample(uuid=uuid, memory_used_bytes=used, utilisation_percent=load)  # type: ignore[arg-type]


def test_what_an_attempt_used_is_its_peak_and_its_mean() -> None:
    usage = Usage()
    held: dict[Any, Any] = {a_key(1): ("a", "b"), a_key(2): ("c",), a_key(3): ("d", "x")}
    usage.take(
        [sample("a", 5, 10.0), sample("b", 7, 20.0), sample("c", None, None), sample("d", None, 3.0)], held
    )
    usage.take([sample("a", 6, 41.0), sample("b", None, None), sample("d", 1, None)], held)
    before = [usage.of(a_key(number)) for number in (1, 2, 3, 4)]
    usage.forget(a_key(1))
    usage.forget(a_key(4))

    assert before == [Used(12, 23.7), Used(), Used(1, 3.0), Used()]
    assert (usage.of(a_key(1)), usage.of(a_key(3))) == (Used(), Used(1, 3.0))


def test_a_report_says_all_that_the_ledger_knows() -> None:
    record = TaskRecord(
        key=a_key(),
        rank=3,
        spool="s",
        gpus=("GPU-1",),
        cwd="/w",
        python="/p",
        note="n",
        pid=7,
        started_at=1.0,
        ended_at=2.0,
        exit_code=3,
        signal=9,
        reason="r",
        lost=True,
        stdout_bytes=4,
        stderr_bytes=5,
        collect=COLLECT,
    )
    told = status_of(record, Used(6, 7.5), node_id="node", host="host", address="addr")  # type: ignore[arg-type]

    assert told == TaskStatus(
        key=a_key(),
        rank=3,
        node_id="node",  # type: ignore[arg-type]
        host="host",
        address="addr",
        pid=7,
        started_at=1.0,
        gpus=("GPU-1",),
        cwd="/w",
        python="/p",
        note="n",
        ended_at=2.0,
        exit_code=3,
        signal=9,
        reason="r",
        lost=True,
        stdout_bytes=4,
        stderr_bytes=5,
        collects=True,
        gpu_memory_peak_bytes=6,
        gpu_utilisation_percent=7.5,
    )
    none = replace(record, collect=None)
    assert not status_of(none, Used(), node_id="node", host="", address="").collects  # type: ignore[arg-type]
