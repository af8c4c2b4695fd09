"""The keeper's decisions: what is started, told, ended, refused and forgotten, on a machine that a test
makes up.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import (
    Discarded,
    ForgetTasks,
    FromKeeper,
    StartRefused,
    StopTasks,
    TaskChanged,
    TaskRecord,
)
from mgpu_agent.protocol.places import host_name
from mgpu_agent.run_as.spawn import SpawnFailure
from tests.agent.keeper_world import ANNE, BROKEN, WALL, World, clock, world
from tests.agent.keepers import a_key

__all__ = ("clock", "world")  # fixtures

FULL = SpawnFailure("disk-full", "The node's disk is full: free some space on it.", "node")
STOPPED = SpawnFailure("stopped", "It was stopped before it started.", "stale")


def refused(failure: SpawnFailure, number: int = 1) -> StartRefused:
    return StartRefused(
        key=a_key(number),
        code=failure.code,
        message=failure.message,
        fault=failure.fault,
        exit_code=failure.exit_code,
    )


def ended(told: list[FromKeeper]) -> list[tuple[int, int | None, int | None, str, bool]]:
    """Return what is told of ends."""
    return [
        (one.record.rank, one.record.exit_code, one.record.signal, one.record.reason, one.record.lost)
        for one in told
        if isinstance(one, TaskChanged) and one.record.ended_at is not None
    ]


# --- starting and telling ------------------------------------------------------------------------------


def test_a_launch_is_recorded_started_and_told_of_a_moment_later(tmp_path: Path, world: World) -> None:
    start = world.a_start(
        ranks=2, gpus=("GPU-1",), python="/py", note="why", secret_env={b"TOKEN": b"t", b"RANK": b"secret"}
    )

    at_once = world.tell(start)
    moment = world.machine.next_at()
    later = world.tell(after_s=0.02)

    ledger_id = world.ledger.ledger_id
    records = [
        TaskRecord(
            key=a_key(),
            rank=rank,
            spool=f"ab-{rank + 1}",
            gpus=("GPU-1",),
            cwd="/place",
            python="/py",
            note="why",
            host=host_name(),
            pid=501 + rank,
            started_at=WALL + 100.0,
        )
        for rank in (0, 1)
    ]
    assert (at_once, moment, later) == ([], 100.01, [TaskChanged(record=record) for record in records])
    assert world.host.asked == [
        ("enter", "/place"),
        ("spawn", (b"run",), "ab-1", None),
        ("spawn", (b"run",), "ab-2", None),
        ("leave",),
    ]
    assert world.host.envs == [
        {
            b"BASE": b"base",
            b"SAME": b"rank",
            b"RANK": b"secret",
            b"TOKEN": b"t",
            b"MGPU_TASK": f"{ledger_id}/{a_key()}/{rank}".encode(),
        }
        for rank in (0, 1)
    ]
    assert [(task.pid, task.marker, task.uid) for task in world.live.tasks.values()] == [
        (501 + rank, f"{ledger_id}/{a_key()}/{rank}".encode(), None) for rank in (0, 1)
    ]
    assert world.ledger.boot_times == {(a_key(), rank): 5_100.0 for rank in (0, 1)}
    assert Ledger(tmp_path / "ledger", "boot").known(a_key()) == records  # of each turn all is on disk


def test_what_ends_at_once_is_told_once_with_its_end(world: World) -> None:
    world.tell(world.a_start())
    world.live.exit(a_key(), code=3)
    told = world.tell(after_s=0.02)

    record = replace(world.record(), ended_at=WALL + 100.02, exit_code=3)
    assert told == [TaskChanged(record=record)]
    assert (world.tell(after_s=1.0), world.machine.next_at(), world.machine.is_busy) == ([], None, False)


def test_a_long_batch_starts_some_in_each_turn(world: World) -> None:
    numbers = range(1, 11)
    world.tell(*(world.a_start(a_key(number)) for number in numbers))
    first, is_left = len(world.live.tasks), world.machine.has_pending
    world.tell()

    assert (first, is_left, len(world.live.tasks), world.machine.has_pending) == (8, True, 10, False)


def test_what_is_known_takes_no_place_of_a_turn(world: World) -> None:
    known = world.a_start()
    world.tell(known)
    told = world.tell(*[known] * 8, *(world.a_start(a_key(number)) for number in range(2, 10)))

    assert (told, len(world.live.tasks)) == ([TaskChanged(record=world.record())] * 8, 9)


def test_a_keeper_is_busy_from_the_order_to_the_end(world: World) -> None:
    states = [world.machine.is_busy]
    world.machine.obey(world.a_start())
    states.append(world.machine.is_busy)
    world.tell()
    states.append(world.machine.is_busy)
    world.live.exit(a_key())
    world.tell()
    states.append(world.machine.is_busy)
    world.tell(world.a_start(a_key(2), account=ANNE))
    states.append(world.machine.is_busy)
    world.host.helpers[0][1](BROKEN)
    states.append(world.machine.is_busy)

    assert states == [False, True, True, False, True, False]


def test_it_wakes_for_whatever_comes_first(world: World) -> None:
    nothing = world.machine.next_at()
    world.live.sweep_at = 103.0
    sweep = world.machine.next_at()
    world.tell(world.a_start())
    start = world.machine.next_at()
    world.live.sweep_at = 100.005

    assert (nothing, sweep, start, world.machine.next_at()) == (None, 103.0, 100.01, 100.005)


@pytest.mark.parametrize(
    ("changes", "failure"),
    [
        (
            {"incarnation": "boot/other"},
            SpawnFailure(
                "stale", "The launch was meant for the node as it was before it started anew.", "stale"
            ),
        ),
        (
            {"lease_s": 10.0, "alive_at": 5_090.0},
            SpawnFailure("stale", "The launch came too late: its lease had run out.", "stale"),
        ),
        ({"lease_s": 10.0, "alive_at": 5_090.5}, None),
        ({"lease_s": 0.0, "alive_at": 0.0}, None),
    ],
)
def test_a_launch_of_another_time_is_stale(
    world: World, changes: dict[str, object], failure: SpawnFailure | None
) -> None:
    told = world.tell(replace(world.a_start(), **changes))

    assert told == ([] if failure is None else [refused(failure)])
    assert len(world.live.tasks) == (failure is None)


def test_an_attempt_waits_for_an_earlier_one_of_its_job_alone(world: World) -> None:
    world.tell(world.a_start(a_key(1)), world.a_start(a_key(2), account=ANNE))
    again = world.tell(
        world.a_start(a_key(1, epoch=6)), world.a_start(a_key(2, epoch=6)), world.a_start(a_key(3))
    )

    assert again == [
        StartRefused(
            key=a_key(number, epoch=6),
            code="attempt-alive",
            message=f"An earlier attempt of job JOB0000{number} still runs here.",
            fault="node",
        )
        for number in (1, 2)
    ]
    assert [key for key, _ in world.live.tasks] == [a_key(1), a_key(3)]


def test_a_repeated_launch_is_answered_with_what_began_or_ended(world: World) -> None:
    start = world.a_start(ranks=2, account=ANNE)
    world.tell(start)
    before = world.tell(start)
    world.host.helpers[0][1](601)
    one = world.tell(start)
    world.host.helpers[1][1](602)
    world.live.exit(a_key(), 1)
    world.tell(after_s=0.02)
    both = world.tell(start)

    assert before == []
    assert [message.record.rank for message in one if isinstance(message, TaskChanged)] == [0]
    assert both == [TaskChanged(record=world.record(rank=rank)) for rank in (0, 1)]


@pytest.mark.parametrize("is_full", [False, True])
def test_a_disk_without_room_starts_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    if is_full:
        monkeypatch.setattr(world.ledger, "flush", lambda: False)
    else:
        world.host.room = False
    told = world.tell(world.a_start(), world.a_start(a_key(2), prolog=(), account=ANNE))

    assert told == [refused(FULL), Discarded(stems=("ab-2",)), refused(FULL, 2)]
    assert (world.live.tasks, world.host.did("spawn", "spawn as", "enter")) == ({}, [])


def test_a_directory_that_cannot_be_entered_is_the_jobs_fault(world: World) -> None:
    world.host.no_way_into["/place"] = "No such file or directory"
    told = world.tell(world.a_start())

    assert told == [
        refused(SpawnFailure("no-directory", "/place cannot be entered: No such file or directory.", "job"))
    ]
    assert world.host.did("spawn") == []


def test_what_could_not_start_leaves_its_files_to_the_next(world: World) -> None:
    world.host.answers = [BROKEN]
    told = world.tell(world.a_start(lease_s=30.0, alive_at=5_100.0))
    lease = world.machine.lease_at()
    world.tell(world.a_start(a_key(2)))

    assert (told, lease, world.record(a_key(2)).spool) == ([refused(BROKEN)], None, "ab-1")


def test_ranks_after_one_that_could_not_start_are_told_as_ended(world: World) -> None:
    world.host.answers = [700, BROKEN]
    told = world.tell(world.a_start(ranks=3))

    assert told == [
        TaskChanged(
            record=TaskRecord(
                key=a_key(),
                rank=rank,
                spool=f"ab-{rank + 1}",
                cwd="/place",
                host=host_name(),
                ended_at=WALL + 100.0,
                exit_code=127,
                reason="There is no such program.",
            )
        )
        for rank in (1, 2)
    ]
    assert world.live.stops == [(a_key(), 0.0, "There is no such program.", 100.0, False)]
    assert len(world.host.did("spawn")) == 2


# --- ends ----------------------------------------------------------------------------------------------


def test_an_attempt_is_let_go_of_with_its_last_rank(world: World) -> None:
    world.tell(world.a_start(ranks=2, lease_s=30.0, alive_at=5_100.0), after_s=0.02)
    world.live.exit(a_key(), 1, code=None, signal=9)
    world.host.spooled = {"ab-1": (5, 7), "ab-2": (1, 2)}
    first = world.tell()
    between = (world.host.did("release"), world.machine.lease_at())
    world.live.exit(a_key(), 0, code=0)
    second = world.tell()

    assert between == ([], 5_130.0)
    assert (world.host.did("release"), world.machine.lease_at()) == ([("release", str(a_key()))], None)
    assert (ended(first), ended(second)) == ([(1, None, 9, "", False)], [(0, 0, None, "", False)])
    assert [
        (world.record(rank=rank).stdout_bytes, world.record(rank=rank).stderr_bytes) for rank in (0, 1)
    ] == [(5, 7), (1, 2)]
    assert world.stdin.done == [
        ("started", a_key(), 0),
        ("started", a_key(), 1),
        ("remove", a_key(), 1),
        ("remove", a_key(), 0),
    ]


def test_a_swept_tree_is_told_with_why_it_was_ended(world: World) -> None:
    world.tell(world.a_start(), after_s=0.02)
    world.tell(StopTasks(key=a_key(), grace_s=4.0, reason="cancelled", cause="cancelled"))
    task = world.live.tasks[a_key(), 0]
    task.exited_at, task.signal = WALL + 50.0, 15
    world.live.swept = [task]
    told = world.tell()

    assert told == [
        TaskChanged(record=replace(world.record(), ended_at=WALL + 50.0, signal=15, reason="cancelled"))
    ]


@pytest.mark.parametrize(
    ("what", "again"),
    [("wrote nothing", True), ("wrote", False), ("was ended", False), ("ran as an account", False)],
)
def test_files_of_a_task_are_used_again_only_if_nobody_can_write_there(
    world: World, what: str, again: bool
) -> None:
    world.tell(world.a_start(account=ANNE if what == "ran as an account" else None))
    for _, then in world.host.helpers:
        then(601)
    if what == "wrote":
        world.host.spooled["ab-1"] = (0, 1)
    if what == "was ended":
        world.tell(StopTasks(key=a_key(), grace_s=1.0))
    world.live.exit(a_key())
    world.tell()
    told = world.tell(ForgetTasks(keys=(a_key(),)))
    world.tell(world.a_start(a_key(2)))

    assert told == ([] if again else [Discarded(stems=("ab-1",))])
    assert world.record(a_key(2)).spool == ("ab-1" if again else "ab-2")


def test_files_that_were_forgotten_once_are_not_given_back_twice(world: World) -> None:
    world.tell(world.a_start())
    world.live.exit(a_key())
    world.tell()
    world.tell(ForgetTasks(keys=(a_key(),)), world.a_start(a_key(2)))
    world.host.spooled["ab-1"] = (4, 0)
    world.live.exit(a_key(2))
    world.tell()

    assert world.tell(ForgetTasks(keys=(a_key(2),))) == [Discarded(stems=("ab-1",))]
