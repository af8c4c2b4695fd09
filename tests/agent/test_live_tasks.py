"""The live processes of a keeper on a process table that a test makes up: whose a process is, which signals
it gets and when, and when a task is over.
"""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from mgpu_agent.keeper.live_tasks import LiveTask, LiveTasks
from mgpu_agent.protocol.messages import Warn
from tests.agent.keepers import a_key
from tests.agent.process_world import ANNE, BERT, KEEPER, Helpers, Machine, a_task, machine, over

__all__ = ("machine",)  # fixtures

TERM, KILL = (signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)


@pytest.mark.parametrize(("status", "code", "number"), [(0, 0, None), (3 << 8, 3, None), (9, None, 9)])
def test_a_leader_that_leaves_nothing_is_over_at_once(
    machine: Machine, status: int, code: int | None, number: int | None
) -> None:
    live = LiveTasks()
    first, second = a_task(live, machine, 201, 1), a_task(live, machine, 202, 2)
    before = live.reap(10.0, 1_000.0)
    machine.end(201, status)
    gone = live.reap(10.0, 1_000.0)
    live.remove(first)

    assert (before, over(gone), first.exited_at) == ([], [(201, code, number)], 1_000.0)
    assert (live.has_attempt(a_key(1)), live.has_attempt(a_key(2))) == (False, True)
    assert (list(live.tasks.values()), live.next_sweep_at()) == ([second], None)
    assert (machine.readings, live.sweep(11.0), live.reap(11.0, 1_001.0)) == (0, [], [])


def test_a_new_task_asks_for_nothing(machine: Machine) -> None:
    task = LiveTask(a_key(), 3, 201, b"mark", uid=ANNE)

    assert vars(task) | {"seen": None} == {
        "key": a_key(),
        "rank": 3,
        "pid": 201,
        "marker": b"mark",
        "uid": ANNE,
        "told": False,
        "exited_at": None,
        "exit_code": None,
        "signal": None,
        "reason": "",
        "lost": False,
        "kill_at": None,
        "next_scan_at": 0.0,
        "warned": set(),
        "seen": None,
        "warnings": set(),
    }


def test_a_stop_asks_politely_waits_and_kills(machine: Machine) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    machine.run(301, 201, session=201)
    other = a_task(live, machine, 202, 2)
    live.stop(a_key(1), 5.0, "cancelled", 10.0, lost=True)
    asked = machine.take_sent()
    state = (task.reason, task.lost, task.kill_at, other.kill_at, live.next_sweep_at())
    early = live.sweep(14.9)
    quiet = machine.take_sent()
    machine.run(302, 301, session=201)
    late = live.sweep(15.0)
    killed = machine.take_sent()
    next_at = live.next_sweep_at()
    machine.vanish(301, 302)
    machine.end(201, 9)
    reaped = live.reap(15.01, 1_000.0)
    gone = live.sweep(15.01)

    assert asked == [([201, 301], TERM)]
    assert state == ("cancelled", True, 15.0, None, 15.0)
    assert (early, quiet, late, killed) == ([], [], [], [([201, 301, 302], KILL)])
    assert next_at == pytest.approx(15.02)
    assert (reaped, over(gone)) == ([], [(201, None, 9)])
    live.remove(task)
    assert (live.next_sweep_at(), list(live.tasks.values())) == (None, [other])


@pytest.mark.parametrize(("grace_s", "kill_at"), [(20.0, 15.0), (1.0, 13.0), (-4.0, 12.0)])
def test_a_repeated_stop_can_only_hasten_the_end(machine: Machine, grace_s: float, kill_at: float) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    live.stop(a_key(), 5.0, "timeout", 10.0)
    machine.take_sent()
    live.stop(a_key(), grace_s, "cancelled", 12.0, lost=True)

    assert (task.kill_at, task.reason, task.lost, machine.take_sent()) == (kill_at, "timeout", False, [])
    assert live.sweep(10.0) == []


def test_all_ranks_of_an_attempt_are_stopped_with_one_reading(machine: Machine) -> None:
    live = LiveTasks()
    for rank in range(3):
        a_task(live, machine, 201 + rank, rank=rank)
    live.stop(a_key(), 0.0, "cancelled", 10.0)

    assert (machine.take_sent(), machine.readings) == ([([201 + rank], KILL) for rank in range(3)], 1)


def test_a_stop_without_grace_kills_at_once(machine: Machine) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    live.stop(a_key(), -1.0, "cancelled", 10.0)

    assert (task.kill_at, machine.take_sent(), live.next_sweep_at()) == (10.0, [([201], KILL)], 10.02)


def test_what_is_new_in_a_tree_is_asked_once(machine: Machine) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    live.stop(a_key(), 5.0, "", 10.0)
    machine.run(301, 1, session=201, start=7)
    task.next_scan_at = 11.0
    machine.take_sent()
    live.sweep(11.0)
    first = machine.take_sent()
    machine.run(301, 1, session=201, start=8)  # another process by the same number
    task.next_scan_at = 12.0
    live.sweep(12.0)

    assert (first, machine.take_sent()) == ([([301], TERM)], [([301], TERM)])


def test_a_leader_that_is_gone_is_looked_after_more_often(machine: Machine) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    machine.run(301, 201, session=201)
    live.stop(a_key(), 5.0, "", 10.0)
    machine.end(201)
    held = live.reap(11.0, 1_000.0)
    due = live.next_sweep_at()
    live.sweep(11.0)
    soon = live.next_sweep_at()
    task.next_scan_at = 14.98
    live.sweep(14.98)

    assert (held, due, soon, live.next_sweep_at()) == ([], 11.0, pytest.approx(11.05), 15.0)


def test_what_refuses_signals_is_not_waited_for_once_its_leader_is_gone(machine: Machine) -> None:
    live = LiveTasks()
    a_task(live, machine, 201)
    machine.run(301, 201, session=201, user=BERT)
    machine.run(302, 201, session=201)
    machine.forbidden = {301}
    live.stop(a_key(), 0.0, "", 10.0)
    with_leader = live.sweep(11.0)
    machine.vanish(302)
    machine.end(201)
    live.reap(12.0, 1_000.0)

    assert (with_leader, over(live.sweep(12.0))) == ([], [(201, 0, None)])


def test_a_leader_that_refuses_is_waited_for_and_so_is_what_can_be_killed(machine: Machine) -> None:
    live = LiveTasks()
    a_task(live, machine, 201)
    machine.run(301, 201, session=201)
    machine.forbidden = {201}
    live.stop(a_key(), 0.0, "", 10.0)
    both = live.sweep(11.0)
    machine.vanish(301)
    alone = live.sweep(12.0)
    machine.vanish(201)  # its end is not told yet
    nothing = live.sweep(13.0)

    assert (both, alone, nothing, live.next_sweep_at()) == ([], [], [], pytest.approx(13.02))


def test_leftovers_get_a_second_to_end(machine: Machine) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    machine.end(201)
    machine.run(301, KEEPER, session=201)
    gone = live.reap(10.0, 1_000.0)
    swept = live.sweep(10.0)

    assert (gone, swept, task.kill_at, task.reason) == ([], [], 11.0, "")
    assert (machine.take_sent(), live.next_sweep_at()) == ([([301], TERM)], pytest.approx(10.05))
    live.sweep(11.0)
    assert machine.take_sent() == [([301], KILL)]
    machine.vanish(301)
    assert over(live.sweep(11.02)) == [(201, 0, None)]


LEFT: dict[str, tuple[Callable[[Machine], object], int | None, bool, bool]] = {
    # what is there, the account of the task, whether another task lives (of BERT), whether it was left behind
    "its session": (lambda m: m.run(301, KEEPER, session=201), None, True, True),
    "its mark": (lambda m: m.run(301, KEEPER, marker=b"mark-1-0"), None, True, True),
    "its mark on its account's": (
        lambda m: m.run(301, KEEPER, marker=b"mark-1-0", user=ANNE),
        ANNE,
        True,
        True,
    ),
    "its mark on a stranger's": (
        lambda m: m.run(301, KEEPER, marker=b"mark-1-0", user=BERT),
        ANNE,
        True,
        False,
    ),
    "another's session": (lambda m: m.run(301, KEEPER, session=202), None, True, False),
    "another's mark": (lambda m: m.run(301, KEEPER, marker=b"mark-2-0", user=BERT), None, True, False),
    "no mark, alone": (lambda m: m.run(301, KEEPER), None, False, True),
    "no mark, of its account": (lambda m: m.run(301, KEEPER, user=ANNE), ANNE, True, True),
    "no mark, of another's account": (lambda m: m.run(301, KEEPER, user=BERT), ANNE, True, False),
    "no mark, of nobody's account": (lambda m: m.run(301, KEEPER, user=77), ANNE, True, False),
    "no mark, of root": (lambda m: m.run(301, KEEPER, user=0), ANNE, True, False),
    "gone since": (lambda m: m.children.add(301), None, False, False),
    "a helper": (lambda m: m.run(90, KEEPER), None, False, False),
}


@pytest.mark.parametrize("name", LEFT)
def test_whose_a_child_is_that_nobody_started(machine: Machine, name: str) -> None:
    arrange, uid, has_other, is_left = LEFT[name]
    live = LiveTasks(Helpers())
    task = a_task(live, machine, 201, uid=uid)
    if has_other:
        a_task(live, machine, 202, 2, uid=BERT)
    arrange(machine)
    machine.end(201)
    gone = live.reap(10.0, 1_000.0)

    assert (gone, task.kill_at) == (([], 11.0) if is_left else ([task], None))
    if is_left:
        live.sweep(10.0)
        assert machine.take_sent() == [([301], TERM)]


@pytest.mark.parametrize(
    ("uid", "session", "marker", "user", "is_left"),
    [
        (None, 202, b"", 0, False),
        (None, 0, b"mark-2-0", 0, False),
        (ANNE, 0, b"mark-2-0", ANNE, False),
        (ANNE, 0, b"mark-2-0", BERT, True),  # a mark that it may not bear
        (None, 0, b"mark-3-0", 0, True),
        (None, 0, b"", 0, True),
    ],
)
def test_what_another_task_left_is_not_left_twice(
    machine: Machine, uid: int | None, session: int, marker: bytes, user: int, is_left: bool
) -> None:
    """The other's leader is gone, too, and it is being ended."""
    live = LiveTasks()
    task = a_task(live, machine, 201)
    a_task(live, machine, 202, 2, uid=uid)
    machine.run(302, KEEPER, session=202)
    machine.end(202)
    other = live.reap(10.0, 1_000.0)
    machine.vanish(302)
    machine.run(301, KEEPER, session=session, marker=marker, user=user)
    machine.end(201)
    gone = live.reap(11.0, 1_000.0)

    assert (other, gone) == ([], [] if is_left else [task])


def test_an_orphan_that_ends_hastens_the_look_at_trees_without_a_leader(machine: Machine) -> None:
    live = LiveTasks(Helpers())
    first, second = a_task(live, machine, 201, 1), a_task(live, machine, 202, 2)
    machine.run(301, KEEPER, session=201)
    machine.end(201)
    live.reap(10.0, 1_000.0)
    live.sweep(10.0)
    live.stop(a_key(2), 5.0, "", 10.0)
    machine.ended.append((91, 0))  # a helper's end says nothing of orphans
    live.reap(10.01, 1_000.0)
    after_helper = first.next_scan_at
    machine.end(301)
    live.reap(10.02, 1_000.0)

    assert (after_helper, first.next_scan_at, second.next_scan_at) == (pytest.approx(10.05), 10.02, 15.0)
    live.reap(10.03, 1_000.0)
    assert over(live.sweep(10.03)) == [(201, 0, None)]


def test_without_helpers_every_unknown_end_is_an_orphans(machine: Machine) -> None:
    live = LiveTasks()
    first = a_task(live, machine, 201)
    machine.run(301, KEEPER, session=201)
    machine.end(201)
    live.reap(10.0, 1_000.0)
    live.sweep(10.0)
    machine.ended.append((91, 0))
    live.reap(10.01, 1_000.0)

    assert first.next_scan_at == 10.01


def test_what_helpers_tell_is_reaped_before_the_rest(machine: Machine) -> None:
    live = LiveTasks(Helpers())
    a_task(live, machine, 201, 1, uid=ANNE)
    a_task(live, machine, 202, 2)
    before = live.has_told
    live.note_ends([(201, 3 << 8)])
    told = live.has_told
    machine.vanish(201)
    machine.end(202, 9)
    gone = live.reap(10.0, 1_000.0)

    assert (before, told, live.has_told) == (False, True, False)
    assert over(gone) == [(201, 3, None), (202, None, 9)]


@pytest.mark.parametrize(
    ("handling", "got"), [(set(), [201, 202, 301]), ({301}, [301]), ({301, 202}, [202, 301])]
)
def test_a_warning_goes_to_who_handles_it_or_to_all(
    machine: Machine, handling: set[int], got: list[int]
) -> None:
    live = LiveTasks(Helpers())
    first, second = a_task(live, machine, 201, rank=0), a_task(live, machine, 202, rank=1)
    other = a_task(live, machine, 203, 2)
    machine.run(301, 201, session=201)
    machine.run(90, 201, session=201)  # never a helper
    machine.handling = handling | {203}
    warning = Warn(key=a_key(), signal=int(signal.SIGUSR1), serial=4.0)
    live.warn(warning)
    once = machine.take_sent()
    live.warn(warning)
    again = machine.take_sent()
    live.warn(Warn(key=a_key(), signal=int(signal.SIGUSR2), serial=5.0))

    assert (once, again) == ([(got, (signal.SIGUSR1,))], [])
    assert machine.take_sent() == [(got, (signal.SIGUSR2,))]
    assert [task.warnings for task in (first, second, other)] == [{4.0, 5.0}, {4.0, 5.0}, set()]


@pytest.mark.parametrize(("number", "signal_number"), [(9, 10), (1, 999)])
def test_a_warning_of_nobody_or_with_no_signal_is_none(
    machine: Machine, number: int, signal_number: int
) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    live.warn(Warn(key=a_key(number), signal=signal_number, serial=1.0))

    assert (machine.take_sent(), task.warnings, machine.readings) == ([], set(), 0)


def test_the_processes_of_a_helper_that_is_gone_are_ours_or_ended_unseen(machine: Machine) -> None:
    live = LiveTasks(Helpers())
    ours, unseen = a_task(live, machine, 201, 1, uid=ANNE), a_task(live, machine, 202, 2, uid=ANNE)
    bert = a_task(live, machine, 203, 3, uid=BERT)
    machine.vanish(202, 203)
    machine.run(401, KEEPER, user=ANNE)  # just started, in no ledger
    machine.run(402, KEEPER, user=BERT)  # another account's
    machine.run(403, KEEPER, user=ANNE, session=201)
    machine.run(404, KEEPER, user=ANNE, marker=b"mark-1-0")
    machine.run(405, KEEPER, user=ANNE, marker=b"mark-3-0")  # what only BERT's may bear
    machine.run(90, KEEPER, user=ANNE)
    machine.children.add(406)  # gone since
    live.adopt(ANNE, {201, 202, 999})

    assert machine.take_sent() == [([401, 405], KILL)]
    assert (ours.reason, unseen.reason, bert.reason, live.has_told) == (
        "",
        "The helper of its account was ended, so that nobody saw how it ended.",
        "",
        True,
    )
    assert over(live.reap(10.0, 1_000.0)) == [(202, None, 9)]


def test_a_task_that_was_removed_twice_is_gone(machine: Machine) -> None:
    live = LiveTasks()
    task = a_task(live, machine, 201)
    live.stop(a_key(), 5.0, "", 10.0)
    live.remove(task)
    live.remove(task)

    assert (live.tasks, live.next_sweep_at(), live.sweep(99.0)) == ({}, None, [])


def test_a_stop_spares_other_tasks_helpers_and_the_keeper(machine: Machine) -> None:
    live = LiveTasks(Helpers())
    a_task(live, machine, 201, 1)
    a_task(live, machine, 202, 2)
    for pid in (202, 90, KEEPER):  # all of them in the session of the task that is to end
        machine.run(pid, KEEPER if pid != KEEPER else 1, session=201)
    live.stop(a_key(1), 0.0, "", 10.0)

    assert machine.take_sent() == [([201], KILL)]
