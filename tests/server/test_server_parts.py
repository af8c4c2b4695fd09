"""Parts of the server by themselves: input of one person, the queue for its readers, hub, limits, rings."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import InputAck
from mgpu_jupyter.api.frames import PingFrame, ResizeFrame, StdinAckFrame, StdinFrame, TypedInput, Why
from mgpu_jupyter.master.queue_snapshot import QueueSnapshot
from mgpu_jupyter.scheduler.model import Reason
from mgpu_jupyter.server import job_stdin
from mgpu_jupyter.server.hub import Hub, Watch
from mgpu_jupyter.server.job_stdin import JobStdin
from mgpu_jupyter.server.live import board
from mgpu_jupyter.server.live.board import Board
from mgpu_jupyter.server.live.queue_versions import Version, whole

JOB = JobId("JOB00001")
KIB = 1024


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


# --- input of one person -------------------------------------------------------------------------------


class Master:
    """A service that keeps what is typed."""

    def __init__(self):
        self.typed = []
        self.sizes = []
        self.is_away = False
        self.hub = self
        self.presence = SimpleNamespace(attached=self._attached)
        self.there = []
        self.listener = None

    @contextmanager
    def typist(self, job_id, writer, listener):
        self.there.append(("types", job_id, writer))
        self.listener = listener
        yield
        self.there.pop()

    @contextmanager
    def _attached(self, job_id):
        self.there.append(("is with", job_id))
        yield
        self.there.pop()

    async def type_in(self, job_id, typed):
        if self.is_away:
            raise Unavailable("away", "The node is away.")
        self.typed.append((job_id, typed))

    async def resize(self, job_id, rows, columns):
        self.sizes.append((job_id, rows, columns))


def a_job(attempt=1, ranks=((0, None),)):
    return SimpleNamespace(
        attempt=attempt, tasks=[SimpleNamespace(rank=rank, ended_at=ended_at) for rank, ended_at in ranks]
    )


def read(offset, attempt=1, **more):
    return InputAck(key=AttemptKey(JOB, attempt, 1), rank=0, writer="writer", offset=offset, **more)


async def test_what_is_typed_goes_to_the_job_as_it_is():
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    await stdin.take(StdinFrame(offset=3, data=b"abc", eof=True, attempt=2))
    await stdin.take(ResizeFrame(rows=30, columns=100))
    await stdin.take(PingFrame())

    assert master.typed == [(JOB, TypedInput(writer="writer", attempt=2, offset=3, data=b"abc", eof=True))]
    assert master.sizes == [(JOB, 30, 100)]


async def test_a_writer_is_there_while_it_is_attached():
    master = Master()
    with JobStdin(master, JOB, "writer").attached():
        there = list(master.there)

    assert (there, master.there) == ([("types", JOB, "writer"), ("is with", JOB)], [])


@pytest.mark.parametrize(
    ("offset", "size", "said"),
    [
        (0, 64 * KIB, ""),
        (0, 64 * KIB + 1, "A piece of input is over 65536 bytes: send smaller ones."),
        (448 * KIB, 64 * KIB, ""),
        (448 * KIB + 1, 64 * KIB, "Input was sent far ahead of what the job reads: wait for its stdin_ack."),
        (900 * KIB, 0, ""),
    ],
)
async def test_who_is_far_ahead_of_the_job_is_cut_off(offset, size, said):
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    frame = StdinFrame(offset=offset, data=bytes(size))
    if not said:
        await stdin.take(frame)
        assert len(master.typed) == 1
        return
    with pytest.raises(InvalidRequest) as caught:
        await stdin.take(frame)
    assert (caught.value.code, caught.value.message, master.typed) == ("too-much-input", said, [])


async def test_what_the_job_has_read_makes_room():
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    with stdin.attached():
        await stdin.ask(a_job())
        for ack in (read(100 * KIB), read(90 * KIB), read(500 * KIB, attempt=2)):
            master.listener(ack)
    await stdin.take(StdinFrame(offset=548 * KIB, data=bytes(64 * KIB)))
    with pytest.raises(InvalidRequest, match="far ahead"):
        await stdin.take(StdinFrame(offset=548 * KIB + 1, data=bytes(64 * KIB)))


@pytest.mark.parametrize(
    ("ranks", "asks"),
    [((), 0), (((1, None),), 0), (((0, 5.0),), 0), (((0, 5.0), (1, None)), 0), (((1, 5.0), (0, None)), 1)],
)
async def test_only_a_job_whose_first_process_runs_is_asked(ranks, asks):
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    await stdin.ask(a_job(ranks=ranks))
    await stdin.ask(a_job(ranks=ranks))

    assert master.typed == [(JOB, TypedInput(writer="writer", attempt=1))] * asks


async def test_another_attempt_is_asked_anew_and_begins_at_nothing():
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    with stdin.attached():
        await stdin.ask(a_job())
        master.listener(read(500 * KIB))
        await stdin.ask(a_job(attempt=2))

    assert [typed.attempt for _, typed in master.typed] == [1, 2]
    with pytest.raises(InvalidRequest, match="far ahead"):
        await stdin.take(StdinFrame(offset=500 * KIB, data=bytes(64 * KIB), attempt=2))


async def test_the_newest_word_is_told_and_nothing_that_was_lost_is_left_out():
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    with stdin.attached():
        acks = stdin.acks()
        master.listener(read(3, again=True))
        master.listener(read(5))
        first = await anext(acks)
        master.listener(read(9, attempt=2, closed=True))
        second = await anext(acks)
        await acks.aclose()

    assert first == StdinAckFrame(attempt=1, offset=5, again=True)
    assert second == StdinAckFrame(attempt=2, offset=9, closed=True)


@pytest.mark.parametrize("is_answered", [False, True])
async def test_a_question_without_an_answer_is_asked_again(monkeypatch, is_answered):
    monkeypatch.setattr(job_stdin, "ASK_AGAIN_S", 0.001)
    master = Master()
    stdin = JobStdin(master, JOB, "writer")
    heard = []
    note = heard.append

    async def listen():
        async for ack in stdin.acks():
            note(ack)

    with stdin.attached():
        task = asyncio.ensure_future(listen())
        await asyncio.sleep(0.01)
        nobody = list(master.typed)
        await stdin.ask(a_job())
        if is_answered:
            master.listener(read(0))
        master.is_away = True
        await asyncio.sleep(0.02)
        master.is_away = False
        for _ in range(1000):
            if len(master.typed) > 2 or (is_answered and heard):
                break
            await asyncio.sleep(0.005)
        task.cancel()

    assert (nobody, task.done() and not task.cancelled()) == ([], False)
    assert (len(master.typed) == 1, len(heard)) == (is_answered, int(is_answered))


# --- the queue for its readers ---------------------------------------------------------------------------


class Queue:
    """A queue that a test changes, and how often the master was asked for it."""

    def __init__(self, monkeypatch):
        self.order = ["A", "B"]
        self.cost_s = 0.0
        self.asked = 0
        self.fails = False
        self.slept = []
        self.waited = []
        self.hub = Hub(asyncio.get_running_loop())
        self.board = Board(self._ask, self.hub, lambda: 7.0, 40)
        self._go_on = asyncio.Event()
        monkeypatch.setattr(
            board,
            "asyncio",
            SimpleNamespace(sleep=self._sleep, get_running_loop=asyncio.get_running_loop, Task=asyncio.Task),
        )

    def snapshot(self):
        reasons = {"busy": Reason("busy", "Waits.")}
        return QueueSnapshot(list(self.order), ["busy"] * len(self.order), reasons, {})

    async def _ask(self, question):
        self.asked += 1
        if self.fails:
            raise Unavailable("busy", "The master is busy.")
        return self.snapshot(), self.cost_s

    async def _sleep(self, seconds):
        self.slept.append(seconds)
        await self._go_on.wait()
        self._go_on.clear()

    async def look_again(self):
        """Let the pause be over, and something happen."""
        self._go_on.set()
        self.hub.publish([], [], set())
        for _ in range(20):
            await asyncio.sleep(0)


async def test_the_queue_is_looked_at_while_somebody_reads_it(monkeypatch):
    queue = Queue(monkeypatch)
    watch, other = Watch(), Watch()
    before = queue.board.frame_since(0)
    with queue.board.reader(watch):
        await settle()
        first = queue.board.frame_since(0)
        flags = [await watch.wait(0.001), await other.wait(0.001)]
        same = queue.board.frame_since(41)
        with queue.board.reader(other):
            await settle()
            once = queue.asked
        queue.order = ["B"]
        await queue.look_again()
        changed = queue.board.frame_since(41)
        again = queue.board.frame_since(41)
        strange = queue.board.frame_since(17)
        flags += [await watch.wait(0.001), await other.wait(0.001)]
        await queue.look_again()
        quiet = await watch.wait(0.001)
        asked = queue.asked
    after = queue.board.frame_since(41)
    await queue.look_again()

    assert (before, same, after, once, asked, queue.asked) == (None, None, None, 1, 3, 3)
    assert first == whole(Version(41, ("A", "B"), {"A": 1, "B": 1}, {1: Why("busy", "Waits.")}))
    assert (changed.version, changed.base, changed.removed) == (42, 41, ("A",))
    assert again is changed
    assert strange == whole(Version(42, ("B",), {"B": 1}, {1: Why("busy", "Waits.")}))
    assert (flags, quiet) == ([True, False, True, False], False)


async def test_who_comes_back_is_not_shown_what_nobody_kept_up_to_date(monkeypatch):
    queue = Queue(monkeypatch)
    watch = Watch()
    with queue.board.reader(watch):
        await settle()
    stale = queue.board.frame_since(0)
    with queue.board.reader(watch):
        at_once = queue.board.frame_since(0)
        await settle()
        later = queue.board.frame_since(0)
        flag = await watch.wait(0.001)

    assert (stale, at_once, later.version, flag) == (None, None, 41, True)


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.0, 1.0), (0.02, 1.0), (0.1, 5.0)])
async def test_the_master_works_a_fiftieth_of_its_time_for_readers(monkeypatch, cost_s, pause_s):
    queue = Queue(monkeypatch)
    queue.cost_s = cost_s
    with queue.board.reader(Watch()):
        await settle()
        assert queue.slept == [pytest.approx(pause_s)]


async def test_a_turn_that_came_to_nothing_is_tried_again(monkeypatch):
    queue = Queue(monkeypatch)
    queue.fails = True
    queue.cost_s = 9.0
    with queue.board.reader(Watch()):
        await settle()
        nothing = queue.board.frame_since(0)
        queue.fails = False
        await queue.look_again()
        assert (nothing, queue.board.frame_since(0).version) == (None, 41)
    assert queue.slept == [1.0, 450.0]


async def test_so_many_versions_and_differences_are_kept(monkeypatch):
    queue = Queue(monkeypatch)
    with queue.board.reader(Watch()):
        await settle()
        for number in range(40):
            queue.order = [f"J{number}"]
            await queue.look_again()
        bases = [queue.board.frame_since(number).base for number in (49, 50, 51, 80)]
        frames = [queue.board.frame_since(number) for number in range(60, 69)]
        kept = [
            queue.board.frame_since(number) is frame
            for number, frame in zip(range(61, 69), frames[1:], strict=True)
        ]
        gone = queue.board.frame_since(60) is frames[0]

    unknown = whole(Version(1)).base
    assert (bases, kept, gone) == ([unknown, 50, 51, 80], [True] * 8, False)
