"""Leases with real processes: the keeper ends a job by itself, by the clock that counts from boot, whoever
else is there or not.
"""

from __future__ import annotations

import select
import time
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.alarm import Alarm, boot_clock
from mgpu_agent.keeper.leases import FOREVER_S, Leases
from mgpu_agent.keeper.messages import MasterAlive, TaskRecord
from mgpu_agent.protocol.messages import Prepare, Start, Stop
from mgpu_agent.protocol.model import TaskStatus
from tests.agent.conftest import Node
from tests.agent.keepers import Conversation, Keepers, a_key, is_alive, keepers, talk
from tests.agent.master import SmallMaster, wait_until

pytestmark = pytest.mark.slow

__all__ = ["keepers", "talk"]

STUBBORN = "trap '' TERM; while :; do sleep 0.05; done"
POLITE = "trap 'exit 0' TERM; while :; do sleep 0.05; done"
MARGIN_S = 2.0  # a loaded machine; the keeper itself needs milliseconds


@pytest.fixture
def alarm() -> Iterator[Alarm]:
    alarm = Alarm()
    yield alarm
    alarm.close()


def rings(alarm: Alarm, within_s: float) -> bool:
    return bool(select.select([alarm], [], [], within_s)[0])


def test_an_alarm_rings_at_its_moment_and_at_once_when_that_is_over(alarm: Alarm) -> None:
    at = boot_clock() + 0.2
    alarm.set(at)
    assert rings(alarm, 10.0)
    assert boot_clock() >= at
    alarm.clear()
    assert not rings(alarm, 0.05)
    alarm.set(-5.0)
    assert rings(alarm, 10.0)
    alarm.set(None)
    assert not rings(alarm, 0.05)
    alarm.clear()


def test_leases_run_out_from_the_last_moment_at_which_the_master_was_there() -> None:
    leases = Leases()
    first, second, kept, endless = (a_key(number) for number in range(1, 5))
    leases.renew(100.0, now=101.0)
    for key, lease_s in ((first, 10.0), (second, 20.0), (kept, 0.0), (endless, FOREVER_S)):
        leases.add(key, lease_s, 1.5)

    assert (leases.next_at(), leases.take_due(109.9)) == (110.0, [])
    leases.renew(105.0, now=106.0)
    leases.renew(103.0, now=106.0)
    assert (leases.next_at(), leases.take_due(115.0)) == (115.0, [(first, 1.5)])
    leases.renew(1_000.0, now=117.0)
    assert (leases.next_at(), leases.take_due(116.0)) == (137.0, [])
    leases.drop(second)
    assert (leases.next_at(), leases.take_due(1e9)) == (None, [])


def test_a_lease_may_be_short() -> None:
    leases = Leases()
    leases.renew(100.0, now=100.0)
    leases.add(a_key(1), 0.5, 1.0)
    leases.add(a_key(2), 1.0, 1.0)
    assert (a_key(1) in leases, a_key(2) in leases, leases.next_at()) == (True, True, 100.5)


def test_a_machine_that_slept_through_its_lease_has_only_the_rest_of_the_grace_to_give() -> None:
    leases = Leases()
    early, late = a_key(1), a_key(2)
    leases.renew(100.0, now=100.0)
    leases.add(early, 10.0, 3.0)
    leases.add(late, 20.0, 3.0)

    assert leases.take_due(112.0) == [(early, 1.0)]
    assert leases.take_due(500.0) == [(late, 0.0)]


def test_a_job_ends_when_its_lease_does_also_without_an_agent(talk: Conversation, keepers: Keepers) -> None:
    begun = boot_clock()
    fenced, kept = a_key(1), a_key(2)
    talk.say(replace(talk.a_start(fenced, "sh", "-c", STUBBORN), lease_s=1.0, grace_s=0.5, alive_at=begun))
    talk.say(talk.a_start(kept, "sh", "-c", POLITE))
    pids = [talk.wait_started(key).pid for key in (fenced, kept)]
    talk.close()
    wait_until(lambda: not is_alive(pids[0]))
    took_s = boot_clock() - begun

    assert 1.5 <= took_s < 1.5 + MARGIN_S
    assert is_alive(pids[1])

    def ended() -> list[TaskRecord]:
        """A process is dead a moment before its keeper knows."""
        return [
            record
            for record in keepers.talk().snapshot.tasks
            if record.key == fenced and record.ended_at is not None
        ]

    (record,) = wait_until(ended)
    assert (record.signal, record.reason, record.lost) == (9, "its lease ran out", True)


def test_a_renewal_counts_from_what_it_says_and_a_job_may_end_in_order(talk: Conversation) -> None:
    begun = boot_clock()
    key = a_key()
    talk.say(replace(talk.a_start(key, "sh", "-c", POLITE), lease_s=1.0, grace_s=5.0, alive_at=begun))
    talk.wait(lambda: boot_clock() >= begun + 0.6)
    talk.say(MasterAlive(alive_at=begun + 0.5), MasterAlive(alive_at=begun + 0.2))
    record = talk.wait_end(key)
    took_s = boot_clock() - begun

    assert 1.5 <= took_s < 1.5 + MARGIN_S
    assert (record.exit_code, record.reason, record.lost) == (0, "its lease ran out", True)


def test_a_launch_whose_lease_is_over_is_not_carried_out(talk: Conversation) -> None:
    key = a_key()
    talk.say(MasterAlive(alive_at=boot_clock()))
    talk.say(replace(talk.a_start(key, "true"), lease_s=1.0, alive_at=boot_clock() - 1.0))
    refusal = talk.wait_refused(key)
    assert (refusal.code, refusal.message, refusal.fault) == (
        "stale",
        "The launch came too late: its lease had run out.",
        "stale",
    )


def test_a_job_that_cannot_be_started_has_no_lease(talk: Conversation) -> None:
    key, other = a_key(1), a_key(2)
    talk.say(replace(talk.a_start(key, "no-such-program"), lease_s=0.2, alive_at=boot_clock()))
    talk.wait_refused(key)
    talk.say(talk.a_start(other, "sh", "-c", "sleep 0.5"))
    assert talk.wait_end(other).exit_code == 0


# --- with an agent -----------------------------------------------------------------------------------


def serve_for(master: SmallMaster, seconds: float) -> None:
    until = time.monotonic() + seconds
    master.wait(lambda: time.monotonic() >= until)


def test_a_master_that_is_heard_keeps_a_fenced_job_alive_and_silence_ends_it(joined: SmallMaster) -> None:
    fenced = joined.launch("sh", "-c", POLITE, lease_s=3.0, kill_grace_s=5.0)
    kept = joined.launch("sh", "-c", POLITE)
    pid = joined.wait_running(fenced).pid
    serve_for(joined, 6.5)
    assert is_alive(pid)

    joined.hears = False
    status = joined.wait(lambda: _ended(joined.statuses.get((fenced, 0))))
    assert (status.exit_code, status.reason, status.lost) == (0, "its lease ran out", True)
    assert is_alive(joined.wait_running(kept).pid)


def _ended(status: TaskStatus | None) -> TaskStatus | None:
    return status if status is not None and status.ended_at is not None else None


def test_a_dead_agent_keeps_nothing_alive_and_the_next_one_tells_what_was_ended(
    joined: SmallMaster, node: Node
) -> None:
    fenced = joined.launch("sh", "-c", STUBBORN, lease_s=1.5, kill_grace_s=0.3)
    kept = joined.launch("sh", "-c", POLITE)
    pids = [joined.wait_running(key).pid for key in (fenced, kept)]
    node.kill()
    wait_until(lambda: not is_alive(pids[0]))
    assert is_alive(pids[1])
    node.start()
    joined.wait(lambda: len(joined.hellos) == 2)

    told = {status.key: status for status in joined.hellos[-1].tasks}
    assert (told[fenced].reason, told[fenced].lost, told[kept].ended_at) == ("its lease ran out", True, None)


def test_a_lease_outlives_the_agent_and_is_renewed_by_the_next_one(joined: SmallMaster, node: Node) -> None:
    launched_at, lease_s = time.monotonic(), 12.0  # in which an agent starts, on a machine that is busy too
    key = joined.launch("sh", "-c", POLITE, lease_s=lease_s)
    pid = joined.wait_running(key).pid
    node.kill()
    node.start()
    joined.wait(lambda: len(joined.hellos) == 2)
    serve_for(joined, launched_at + lease_s + 0.5 - time.monotonic())
    assert is_alive(pid)


# --- in two steps ------------------------------------------------------------------------------------


def test_a_prepared_launch_starts_nothing_until_it_is_told_to(joined: SmallMaster, node: Node) -> None:
    spec = joined.spec("sh", "-c", "echo ran", gpus=tuple(gpu.uuid for gpu in joined.hellos[-1].facts.gpus))
    joined.say(Prepare(spec=spec, hold_s=60.0))
    joined.wait(lambda: joined.prepared)
    other = joined.launch("true", gpus=spec.gpus)
    joined.wait(lambda: joined.refusals)
    assert [(refusal.key, refusal.code) for refusal in joined.refusals] == [(other, "gpu-busy")]

    joined.say(Start(key=spec.key))
    assert (joined.wait_end(spec.key).exit_code, joined.text(spec.key)) == (0, "ran\n")
    assert joined.prepared == [spec.key]


def test_a_preparation_finds_what_is_missing(joined: SmallMaster) -> None:
    spec = joined.spec(script="print(1)", python=replace(joined.spec().python, path="/no/such/python"))
    joined.say(Prepare(spec=spec, hold_s=60.0))
    joined.wait(lambda: joined.refusals)
    assert [(refusal.key, refusal.code) for refusal in joined.refusals] == [(spec.key, "no-python")]


def test_a_preparation_is_told_again_to_a_master_that_is_back_and_gone_with_its_agent(
    joined: SmallMaster, node: Node
) -> None:
    spec = joined.spec("true")
    joined.say(Prepare(spec=spec, hold_s=60.0))
    joined.wait(lambda: joined.prepared)
    joined.stop_listening()
    joined.listen()
    joined.wait(lambda: len(joined.hellos) == 2)
    node.kill()
    node.start()
    joined.wait(lambda: len(joined.hellos) == 3)
    assert [hello.prepared for hello in joined.hellos] == [(), (spec.key,), ()]

    joined.say(Start(key=spec.key))
    joined.wait(lambda: joined.refusals)
    assert [(refusal.code, refusal.fault) for refusal in joined.refusals] == [("not-prepared", "stale")]


def test_a_stopped_or_forgotten_preparation_leaves_nothing(joined: SmallMaster, node: Node) -> None:
    stopped, late = (joined.spec(script="print(1)") for _ in range(2))
    joined.say(Prepare(spec=stopped, hold_s=60.0))
    joined.say(Prepare(spec=late, hold_s=3.0))
    joined.wait(lambda: len(joined.prepared) == 2)
    spool = node.directory / "spool"
    assert {path.name for path in spool.iterdir()} == {f"{spec.key}.cell.py" for spec in (stopped, late)}

    joined.say(Stop(key=stopped.key, grace_s=0.0))
    joined.wait(lambda: joined.refusals)
    joined.wait(lambda: not list(spool.iterdir()))
    joined.say(Prepare(spec=stopped, hold_s=60.0))  # a copy that was held up
    joined.wait(lambda: len(joined.refusals) == 2)
    assert [refusal.code for refusal in joined.refusals] == ["stopped", "stopped"]
    assert (len(joined.prepared), list(spool.iterdir())) == (2, [])
