"""What a keeper does when it is told to: stops, leases that run out, agents that attach, input."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.keeper.machine import KeeperMachine
from mgpu_agent.keeper.messages import (
    Attach,
    ForgetTasks,
    FromKeeper,
    Leave,
    MasterAlive,
    RankStart,
    Snapshot,
    StopTasks,
    TaskChanged,
)
from mgpu_agent.protocol.messages import Input, InputAck, Resize, Warn
from mgpu_agent.run_as.account import Confinement
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin
from tests.agent.keeper_world import ANNE, BROKEN, Clock, World, clock, world
from tests.agent.keepers import a_key
from tests.agent.test_keeper_machine import STOPPED, ended, refused

__all__ = ("clock", "world")  # fixtures


# --- stops ---------------------------------------------------------------------------------------------


def test_a_stop_takes_its_own_launch_out_of_the_row(world: World) -> None:
    told = world.tell(world.a_start(a_key(1)), world.a_start(a_key(2)), StopTasks(key=a_key(1), grace_s=1.0))
    late = world.tell(world.a_start(a_key(1)))
    again = world.tell(StopTasks(key=a_key(1), grace_s=1.0))

    assert (told, late, again) == ([refused(STOPPED)], [refused(STOPPED)], [refused(STOPPED)])
    assert list(world.live.tasks) == [(a_key(2), 0)]


def test_a_stop_of_what_is_over_is_answered_with_its_end(world: World) -> None:
    world.tell(world.a_start(ranks=2))
    world.live.exit(a_key(), 0)
    world.live.exit(a_key(), 1, code=2)
    world.tell()
    told = world.tell(StopTasks(key=a_key(), grace_s=1.0))

    assert (ended(told), world.live.stops) == ([(0, 0, None, "", False), (1, 2, None, "", False)], [])


def test_a_stopped_keeper_ends_everything_and_starts_nothing(world: World) -> None:
    world.tell(world.a_start(a_key(1)), world.a_start(a_key(2), account=ANNE))
    world.machine.obey(world.a_start(a_key(3)))
    world.machine.shut_down()
    world.tell()
    world.host.helpers[0][1](601)

    assert world.live.stops == [
        (a_key(number), 5.0, "The keeper was stopped.", 100.0, True) for number in (1, 2)
    ]
    assert [key for key, _ in world.live.tasks] == [a_key(1), a_key(2)]


# --- leases --------------------------------------------------------------------------------------------


def test_a_lease_that_runs_out_ends_its_attempt_as_lost(world: World) -> None:
    world.tell(
        world.a_start(a_key(1), lease_s=10.0, grace_s=3.0, alive_at=5_100.0),
        world.a_start(a_key(2), lease_s=60.0, grace_s=3.0, alive_at=5_100.0),
        world.a_start(a_key(3), account=ANNE, lease_s=10.0, grace_s=2.0, alive_at=5_100.0),
    )
    first = world.machine.lease_at()
    world.tell(after_s=5.0)
    world.tell(MasterAlive(alive_at=5_104.0))
    renewed = world.machine.lease_at()
    world.tell(after_s=9.0)
    world.host.helpers[0][1](601)

    assert (first, renewed, world.machine.lease_at()) == (5_110.0, 5_114.0, 5_164.0)
    assert world.live.stops == [
        (a_key(1), 3.0, "its lease ran out", 114.0, True),
        (a_key(3), 2.0, "its lease ran out", 114.0, True),
        (a_key(3), 2.0, "its lease ran out", 114.0, True),
    ]


def test_a_master_cannot_be_alive_later_than_now(world: World) -> None:
    world.tell(world.a_start(lease_s=10.0, alive_at=9_000.0))

    assert world.machine.lease_at() == 5_110.0


# --- the agent -----------------------------------------------------------------------------------------


def test_an_agent_that_attaches_hears_all_there_is_and_nothing_of_it_again(
    tmp_path: Path, clock: Clock
) -> None:
    world = World(tmp_path, clock, attached=False)
    before = world.tell(world.a_start(a_key(1)), world.a_start(a_key(2)), StopTasks(key=a_key(9), grace_s=0))
    world.live.exit(a_key(2), code=4)
    world.tell()
    confinement = Confinement(umask=0o077)
    attached = world.machine.is_attached
    told = world.tell(Attach(environment={}, confinement=confinement, again=("mgpu_node", "x")), after_s=1.0)

    assert (before, attached, world.machine.is_attached) == ([], False, True)
    assert told == [
        Snapshot(
            boot_id="boot",
            ledger_id=world.ledger.ledger_id,
            pid=77,
            tasks=(world.record(a_key(1)), world.record(a_key(2))),
        )
    ]
    assert (world.confined, world.machine.again, world.machine.is_leaving) == (
        [confinement],
        ("mgpu_node", "x"),
        False,
    )
    assert world.tell(after_s=1.0) == []
    world.tell(Leave())
    assert world.machine.is_leaving


def test_spare_files_are_a_part_of_the_snapshot(world: World) -> None:
    world.tell(world.a_start())
    world.live.exit(a_key())
    world.tell()
    world.tell(ForgetTasks(keys=(a_key(),)))
    (snapshot,) = world.tell(Attach(environment={}))

    assert snapshot == Snapshot(
        boot_id="boot", ledger_id=world.ledger.ledger_id, pid=77, tasks=(), spare=("ab-1",)
    )


def test_typed_input_sizes_and_warnings_are_handed_on(world: World) -> None:
    warning = Warn(key=a_key(), signal=10, serial=1.0)
    told = world.tell(
        Input(key=a_key(), rank=0, writer="w", offset=0, data=b"abc"),
        Resize(key=a_key(), rank=0, rows=30, columns=100),
        warning,
    )

    assert told == [InputAck(key=a_key(), rank=0, writer="w", offset=3)]
    assert (world.stdin.done, world.live.warned) == ([("resize", 30, 100)], [warning])


@pytest.mark.parametrize(("asked", "opened"), [({}, False), ({"stdin": True}, True), ({"pty": True}, True)])
def test_the_first_rank_reads_if_the_launch_says_so(
    world: World, asked: dict[str, bool], opened: bool
) -> None:
    world.tell(world.a_start(ranks=2, **asked))

    assert [one for one in world.stdin.done if one[0] == "open"] == [("open", a_key(), 0, "ab-1")] * opened
    assert [stdin for *_, stdin in world.host.did("spawn")] == [Stdin("", 9) if opened else None, None]


@pytest.mark.parametrize("account", [None, ANNE])
def test_without_something_to_read_the_launch_is_refused(world: World, account: object) -> None:
    world.stdin.cannot = SpawnFailure("no-terminal", "No terminal.", "node")
    told = world.tell(world.a_start(pty=True, account=account))

    assert told[-1] == refused(world.stdin.cannot)
    assert world.host.did("spawn", "spawn as") == []


@pytest.mark.parametrize("account", [None, ANNE])
def test_what_a_failed_start_would_have_read_is_closed(world: World, account: object) -> None:
    world.host.answers = [BROKEN]
    world.tell(world.a_start(stdin=True, account=account))
    for request, then in world.host.helpers:
        assert (request.pipe, request.terminal) == (True, "")
        then(BROKEN)

    assert world.stdin.done == [("open", a_key(), 0, "ab-1"), ("remove", a_key(), 0)]


def test_a_keeper_without_consoles_takes_no_input(tmp_path: Path, world: World) -> None:
    told: list[FromKeeper] = []
    machine = KeeperMachine(world.ledger, world.live, world.host, told.append)
    for message in (
        Attach(environment={}),
        Input(key=a_key(), rank=0, writer="w", offset=0),
        Resize(key=a_key(), rank=0, rows=1, columns=1),
        replace(world.a_start(stdin=True), ranks=(RankStart(0, {}),)),
    ):
        machine.obey(message)
    machine.turn()
    world.live.exit(a_key())
    machine.turn()

    assert [type(one) for one in told] == [Snapshot, TaskChanged]
    assert [stdin for *_, stdin in world.host.did("spawn")] == [None]
