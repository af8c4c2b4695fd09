"""Prologs and epilogs on a machine that a test makes up: their order, their environment, how each may fail,
and what is held back until they are over.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.messages import Attach, Hook, Snapshot, StartRefused, StopTasks, TaskChanged
from mgpu_agent.protocol.ids import AttemptKey, JobId
from tests.agent.keeper_world import ANNE, BROKEN, WALL, World, clock, world
from tests.agent.keepers import a_key

__all__ = ("clock", "world")  # fixtures

PROLOG = AttemptKey(JobId("prolog-JOB00001"), 1, 5)
EPILOG = AttemptKey(JobId("epilog-JOB00001"), 1, 5)


def spawned(world: World) -> list[bytes]:
    """Return the commands of hooks, and of the job, that were started."""
    return [argv[-1] for _, argv, *_ in world.host.did("spawn")]


def over(world: World, key: AttemptKey, *, code: int | None = 0, signal: int | None = None) -> list[object]:
    """Let this end, and return what is told then."""
    world.live.exit(key, code=code, signal=signal)
    return list(world.tell(after_s=0.02))


def states(world: World) -> list[tuple[bytes, bytes, bytes]]:
    """Return what epilogs were told."""
    return [
        (env[b"MGPU_HOOK"], env[b"MGPU_STATE"], env[b"MGPU_EXIT_CODE"])
        for env in world.host.envs
        if b"MGPU_STATE" in env
    ]


def test_hooks_run_one_after_the_other_around_the_job(world: World) -> None:
    rows = [(world.tell(world.with_hooks()), spawned(world))]
    rows += [(over(world, key), spawned(world)) for key in (PROLOG, PROLOG, a_key(), EPILOG)]
    world.host.spooled["ab-1"] = (3, 4)
    last = over(world, EPILOG)

    begun = replace(world.record(), ended_at=None, exit_code=None, stdout_bytes=0, stderr_bytes=0)
    row = [b"site", b"own", b"run", b"site", b"own"]
    assert rows == [([], row[:count]) for count in range(1, 6)]
    assert last == [
        TaskChanged(
            record=replace(begun, ended_at=WALL + 100.06, exit_code=0, stdout_bytes=3, stderr_bytes=4)
        )
    ]
    assert (world.ledger.hooks, world.machine.is_busy) == ({}, False)


def test_what_hooks_find(world: World) -> None:
    world.tell(world.with_hooks(secret_env={b"TOKEN": b"t"}))
    for key in (PROLOG, PROLOG, a_key(), EPILOG):
        over(world, key, code=3 if key == a_key() else 0)
    ledger_id = world.ledger.ledger_id
    site = {b"BASE": b"base", b"SAME": b"agent", b"MGPU_JOB": b"J"}
    own = {b"BASE": b"base", b"SAME": b"rank", b"RANK": b"0", b"MGPU_JOB": b"J"}
    end = {b"MGPU_STATE": b"failed", b"MGPU_EXIT_CODE": b"3", b"MGPU_HOOK": b"epilog"}
    prolog = {b"MGPU_HOOK": b"prolog", b"MGPU_TASK": f"{ledger_id}/{PROLOG}/0".encode()}
    epilog = {**end, b"MGPU_TASK": f"{ledger_id}/{EPILOG}/0".encode()}

    assert [env for env in world.host.envs if b"MGPU_HOOK" in env] == [
        site | prolog,
        own | prolog,
        site | epilog,
        own | epilog,
    ]
    assert [one for one in world.host.asked if one[0] in ("enter", "spawn")] == [
        ("spawn", (b"/bin/sh", b"-c", b"site"), "ab-1", None),
        ("enter", "/place"),
        ("spawn", (b"/bin/sh", b"-c", b"own"), "ab-1", None),
        ("enter", "/place"),
        ("spawn", (b"run",), "ab-1", None),
        ("spawn", (b"/bin/sh", b"-c", b"site"), "ab-1", None),
        ("enter", "/place"),
        ("spawn", (b"/bin/sh", b"-c", b"own"), "ab-1", None),
    ]
    assert [
        (before, after)
        for before, one, after in zip(
            world.host.asked, world.host.asked[1:], world.host.asked[2:], strict=False
        )
        if one[0] == "spawn" and one[1][-1] == b"site"
    ] == [(("leave",), ("leave",))] * 2  # in `/`, where nobody chose


def test_hooks_of_a_job_run_as_its_account_and_those_of_the_site_do_not(world: World) -> None:
    world.machine.obey(Attach(environment={b"LANG": b"C", b"ROOTS": b"own"}))
    world.tell(world.with_hooks(account=ANNE))
    over(world, PROLOG)
    (request, then) = world.host.helpers[0]
    then(601)

    assert spawned(world) == [b"site"]
    assert (request.argv, request.cwd, request.or_root, request.group, request.number) == (
        (b"/bin/sh", b"-c", b"own"),
        "/place",
        True,
        1,
        0,
    )
    assert (request.env[b"HOME"], request.env[b"LANG"], b"ROOTS" in request.env) == (
        b"/home/anne",
        b"C",
        False,
    )
    task = world.live.tasks[PROLOG, 0]
    assert (task.pid, task.uid, task.marker, task.told) == (
        601,
        1001,
        f"{world.ledger.ledger_id}/{PROLOG}/0".encode(),
        True,
    )


@pytest.mark.parametrize(
    ("failing", "code", "signal", "fault", "said"),
    [
        (0, 3, None, "node", "failed with exit code 3"),
        (1, 3, None, "prolog", "failed with exit code 3"),
        (1, None, 9, "prolog", "ended with signal 9"),
        (0, None, 15, "node", "ended with signal 15"),
    ],
)
def test_a_prolog_that_fails_ends_the_row_and_the_launch(
    world: World, failing: int, code: int | None, signal: int | None, fault: str, said: str
) -> None:
    world.tell(world.with_hooks(lease_s=60.0, alive_at=5_100.0))
    for _ in range(failing):
        over(world, PROLOG)
    told = [over(world, PROLOG, code=code, signal=signal)]
    told += [over(world, EPILOG), over(world, EPILOG)]

    refusal = StartRefused(key=a_key(), code="prolog-failed", message=f"Its prolog {said}.", fault=fault)
    assert told == [[], [], [refusal]]
    assert b"run" not in spawned(world)
    assert states(world) == [(b"epilog", b"prolog-failed", b"1")] * 2
    assert (world.ledger.hooks, world.machine.lease_at()) == ({}, None)


def test_a_prolog_that_cannot_be_spawned_runs_no_other(world: World) -> None:
    world.host.answers = [BROKEN]
    told = world.tell(world.with_hooks(epilog=()))

    assert told == [
        StartRefused(
            key=a_key(),
            code="prolog-failed",
            message="Its prolog could not be started: There is no such program.",
            fault="node",
        )
    ]
    assert spawned(world) == [b"site"]


def test_a_prolog_of_an_account_that_cannot_be_spawned_is_its_own_fault(world: World) -> None:
    world.tell(world.with_hooks(account=ANNE, epilog=()))
    over(world, PROLOG)
    world.host.helpers[0][1](BROKEN)
    told = world.tell()

    assert told[-1] == StartRefused(
        key=a_key(),
        code="prolog-failed",
        message="Its prolog could not be started: There is no such program.",
        fault="prolog",
    )


def test_every_epilog_runs_and_the_first_problem_is_complained_about(world: World) -> None:
    world.tell(world.a_start(epilog=(Hook("one"), Hook("two"), Hook("three"))), after_s=0.02)
    over(world, a_key())
    told = [over(world, EPILOG, code=2), over(world, EPILOG, code=None, signal=9), over(world, EPILOG)]

    assert spawned(world) == [b"run", b"one", b"two", b"three"]
    assert world.host.complaints == [f"The epilog of {a_key()} failed with exit code 2."]
    assert [len(one) for one in told] == [0, 0, 1]


def test_a_hook_has_its_time_and_is_ended_then(world: World) -> None:
    world.tell(world.with_hooks())
    until = [world.machine.next_at()]
    world.tell(after_s=29.9)
    early = list(world.live.stops)
    world.tell(after_s=0.1)
    world.tell(after_s=1.0)
    until.append(world.machine.next_at())
    stops = list(world.live.stops)
    told = [over(world, PROLOG, code=None, signal=15), over(world, EPILOG)]
    until.append(world.machine.next_at())
    told.append(over(world, EPILOG))

    assert until == [130.0, None, pytest.approx(151.04)]
    assert (early, stops) == ([], [(PROLOG, 5.0, "time limit", 130.0, False)])
    assert told[-1] == [
        StartRefused(
            key=a_key(), code="prolog-failed", message="Its prolog was not over within 30 s.", fault="node"
        )
    ]


def test_the_time_of_each_hook_begins_with_it(world: World) -> None:
    world.tell(world.a_start(epilog=(Hook("one", limit_s=10.0), Hook("two", limit_s=10.0))), after_s=0.02)
    over(world, a_key())
    world.tell(after_s=10.0)
    over(world, EPILOG, code=None, signal=15)
    world.tell(after_s=9.9)
    first = len(world.live.stops)
    world.tell(after_s=0.2)
    second = len(world.live.stops)
    told = over(world, EPILOG, code=None, signal=15)

    assert (first, second, len(told)) == (1, 2, 1)
    assert world.host.complaints == [f"The epilog of {a_key()} was not over within 10 s."]


@pytest.mark.parametrize(
    ("cause", "code", "signal", "state", "exit_code"),
    [
        ("", 0, None, b"completed", b"0"),
        ("", 3, None, b"failed", b"3"),
        ("", None, 11, b"failed", b"139"),
        ("cancelled", None, 15, b"cancelled", b"143"),
        ("timeout", None, 9, b"timeout", b"137"),
        ("rank_failed", None, 15, b"failed", b"143"),
        ("requeue", 0, None, b"requeued", b"0"),
        ("preempted", 0, None, b"requeued", b"0"),
        ("lost", 0, None, b"lost", b"0"),
        ("unheard of", 0, None, b"completed", b"0"),
    ],
)
def test_an_epilog_is_told_how_the_attempt_ended(
    world: World, cause: str, code: int | None, signal: int | None, state: bytes, exit_code: bytes
) -> None:
    world.tell(world.a_start(epilog=(Hook("tidy"),)), after_s=0.02)
    if cause:
        world.tell(StopTasks(key=a_key(), grace_s=2.0, reason=cause, cause=cause))
        world.tell(StopTasks(key=a_key(), grace_s=1.0, reason="again", cause="cancelled"))
    over(world, a_key(), code=code, signal=signal)

    assert states(world) == [(b"epilog", state, exit_code)]


def test_the_epilog_waits_for_the_last_rank_and_hears_of_the_first_that_failed(world: World) -> None:
    world.tell(world.a_start(ranks=3, epilog=(Hook("tidy"),)), after_s=0.02)
    world.live.exit(a_key(), 0)
    world.live.exit(a_key(), 2, code=None, signal=9)
    first = world.tell()
    between = list(spawned(world))
    world.live.exit(a_key(), 1, code=4)
    second = world.tell()
    third = over(world, EPILOG)

    assert [(one.record.rank, one.record.ended_at) for one in first if isinstance(one, TaskChanged)] == [
        (0, WALL + 100.02),
        (2, WALL + 100.02),
    ]
    assert (b"tidy" in between, second, states(world)) == (False, [], [(b"epilog", b"failed", b"4")])
    assert [one.record.rank for one in third if isinstance(one, TaskChanged)] == [0, 1, 2]


def test_an_end_is_held_back_from_whoever_asks_while_the_epilog_runs(world: World) -> None:
    start = world.a_start(epilog=(Hook("tidy"),))
    world.tell(start, after_s=0.02)
    world.live.exit(a_key(), code=3)
    held = world.tell(after_s=0.02)
    asked = [
        *world.tell(start),
        *world.tell(StopTasks(key=a_key(), grace_s=1.0, cause="cancelled")),
    ]
    (snapshot,) = world.tell(Attach(environment={}))
    told = over(world, EPILOG)

    assert world.record().exit_code == 3
    assert isinstance(snapshot, Snapshot)
    alive = replace(world.record(), ended_at=None, exit_code=None)
    assert (held, asked, snapshot.tasks) == ([], [TaskChanged(record=alive)] * 2, (alive,))
    assert told == [TaskChanged(record=world.record())]
    assert len(spawned(world)) == 2  # the job and one epilog
