"""Output on its way through the agents' engine: written, acknowledged, announced, forgotten."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.model import STDERR, STDOUT, OutputMark
from mgpu_jupyter.engines.agents import collect
from mgpu_jupyter.master.node_link import Inbox
from mgpu_jupyter.master.ports import LogKey, Mark
from mgpu_jupyter.scheduler.events import (
    TaskReported,
)
from mgpu_jupyter.store.logs import LogWriter, log_path
from tests.builders import ended, key
from tests.engines.world import AT, World, wait_until


def test_output_is_written_acknowledged_and_announced(world):
    world.hello()
    world.sent()

    world.output(b"hello")
    world.output(b"lo world", offset=3)

    ack = wire.OutputAck(mark=OutputMark(world.job.attempt_key, 0, STDOUT, 11))
    assert world.sent() == [(b"\0r1", ack)]
    assert world.take("grown") == {world.job.id}
    assert log_path(world.root, LogKey(world.job.id, 1, 0)).read_bytes() == b"hello world"


def test_output_that_comes_twice_is_acknowledged_and_not_announced(world):
    world.hello()
    world.output(b"hello")
    world.take("grown")

    world.output(b"hello")

    assert world.take("grown") == set()
    assert isinstance(world.sent()[-1][1], wire.OutputAck)


@pytest.mark.parametrize(
    ("job", "stream"),
    [("../../etc", STDOUT), ("ABCD1234", STDOUT), (None, 7)],
)
def test_output_of_what_a_node_does_not_run_is_dropped(world, job, stream):
    world.hello()
    world.sent()

    world.output(attempt=key(job) if job else world.job.attempt_key, stream=stream)

    assert world.sent() == []
    assert list(world.root.rglob("*.log")) == []


def test_a_task_is_forgotten_only_when_its_end_is_committed_and_its_output_complete(world):
    world.hello()
    world.output(b"hello")
    world.sent()
    end = replace(ended(world.job), stdout_bytes=5, stderr_bytes=3)

    world.say(wire.TaskReport(status=end))
    assert world.sent() == []
    world.link.committed()
    assert world.sent() == []
    world.output(b"err", stream=STDERR)

    forget = wire.Forget(keys=(world.job.attempt_key,), ranks=(0,))
    sent = []
    wait_until(lambda: sent.extend(message for _, message in world.sent()) or forget in sent)
    assert world.sent() == []


def test_a_task_without_output_is_forgotten_with_its_commit(world):
    world.hello(tasks=(ended(world.job),))
    world.link.committed()

    assert world.sent()[-1] == (b"\0r1", wire.Forget(keys=(world.job.attempt_key,), ranks=(0,)))


def test_an_end_whose_turn_came_to_nothing_is_not_forgotten(world):
    world.hello()
    world.say(wire.TaskReport(status=ended(world.job)))
    world.link.resync()
    world.link.committed()

    assert [type(message) for _, message in world.sent()] == [wire.Welcome, wire.Check, wire.Resync]


def test_output_that_cannot_be_brought_to_disk_is_kept_by_the_node(world, monkeypatch, caplog):
    world.hello()
    world.output(b"hello")
    monkeypatch.setattr("os.fdatasync", lambda _: (_ for _ in ()).throw(OSError("disk is gone")))
    world.say(wire.TaskReport(status=replace(ended(world.job), stdout_bytes=5)))
    world.link.committed()
    world.sent()

    wait_until(lambda: "disk is gone" in caplog.text)
    assert not any(isinstance(message, wire.Forget) for _, message in world.sent())


def test_a_full_disk_for_output_costs_nothing_else(world, monkeypatch, caplog):
    world.hello()
    world.output(b"hello")
    world.sent()
    world.take("grown")
    with monkeypatch.context() as full:
        full.setattr(LogWriter, "append", lambda *_: (_ for _ in ()).throw(OSError("No space left")))
        late = wire.Output(key=world.job.attempt_key, rank=0, stream=STDOUT, offset=5, data=b" world")
        report = wire.TaskReport(status=replace(ended(world.job), stdout_bytes=11))
        events = world.say(late, late, report)
    world.output(b"!", offset=11)  # what comes after the gap proves nothing
    world.sent()

    assert [type(event) for event in events] == [TaskReported]
    assert world.take("grown") == set()
    assert (world.sent(), caplog.text.count("No space left")) == ([], 1)
    monkeypatch.setattr(collect.time, "monotonic", lambda: float("inf"))
    assert world.sent() == [(b"\0r1", wire.OutputAck(mark=OutputMark(world.job.attempt_key, 0, STDOUT, 5)))]
    monkeypatch.undo()

    world.output(b" world", offset=5)
    assert log_path(world.root, LogKey(world.job.id, 1, 0)).read_bytes() == b"hello world"


def test_what_is_brought_to_disk_while_closing_is_still_told(tmp_path):
    world = World(tmp_path / "logs")
    world.hello()
    world.output(b"hello")
    world.say(wire.TaskReport(status=replace(ended(world.job), stdout_bytes=5)))
    world.link.committed()
    world.carrier.sent.clear()
    world.take("marks")

    last = world.link.close()

    collected = Mark(job_id=world.job.id, attempt=1, step="collected", who="0", at=AT)
    assert last == Inbox(marks=[collected])
    told = [message for _, _, message in world.carrier.sent if isinstance(message, wire.Forget | wire.Bye)]
    assert told == [wire.Forget(keys=(world.job.attempt_key,), ranks=(0,)), wire.Bye()]
