"""Hooks of attempts that are ended, that could not start or that an earlier keeper left, on a machine that a
test makes up.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu_agent.keeper.hooks import HookRunner
from mgpu_agent.keeper.live_tasks import LiveTask
from mgpu_agent.keeper.messages import Attach, Hook, Snapshot, StartRefused, StopTasks, TaskChanged
from mgpu_agent.keeper.recovery import end_lost_tasks
from mgpu_agent.protocol.failpoints import arm
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.run_as.spawn import SpawnFailure
from tests.agent.keeper_world import ANNE, BROKEN, Clock, World, clock, world
from tests.agent.keepers import a_key
from tests.agent.test_attempt_hooks import EPILOG, PROLOG, over, states

__all__ = ("clock", "world")  # fixtures


@pytest.mark.parametrize("how", ["stop", "lease"])
def test_an_attempt_that_is_ended_in_its_prolog_never_starts(world: World, how: str) -> None:
    world.tell(world.with_hooks(lease_s=10.0, grace_s=3.0, alive_at=5_100.0))
    told: list[list[object]] = []
    if how == "stop":
        told.append([*world.tell(StopTasks(key=a_key(), grace_s=3.0, cause="cancelled"))])
    else:
        told.append([*world.tell(after_s=10.0)])
    stops = list(world.live.stops)
    told += [over(world, PROLOG, code=None, signal=15), over(world, EPILOG), over(world, EPILOG)]

    at = 100.0 if how == "stop" else 110.0
    expected = [(PROLOG, 3.0, "stopped", at, False)]
    if how == "lease":
        expected.append((a_key(), 3.0, "its lease ran out", at, True))
    assert stops == expected
    assert told == [
        [],
        [],
        [],
        [
            StartRefused(
                key=a_key(), code="stopped", message="It was stopped before it started.", fault="stale"
            )
        ],
    ]
    assert states(world) == [(b"epilog", b"cancelled", b"1")] * 2


@pytest.mark.parametrize("why", ["stopped", "late"])
def test_a_hook_that_is_to_end_before_it_began_is_ended_at_once(world: World, why: str) -> None:
    world.tell(world.a_start(account=ANNE, prolog=(Hook("own", limit_s=5.0),)))
    if why == "stopped":
        world.tell(StopTasks(key=a_key(), grace_s=3.0, cause="cancelled"))
    else:
        world.tell(after_s=5.0)
    world.host.helpers[0][1](601)

    assert world.live.stops[-1] == (PROLOG, 0.0, "stopped", world.clock.now, False)


def test_a_hook_that_began_in_time_goes_on(world: World) -> None:
    world.tell(world.a_start(account=ANNE, prolog=(Hook("own"),)))
    world.host.helpers[0][1](601)

    assert world.live.stops == []


def test_a_launch_of_an_account_whose_helper_fails_runs_its_epilog(world: World) -> None:
    world.tell(world.a_start(account=ANNE, epilog=(Hook("tidy", site=True),)))
    world.host.helpers[0][1](SpawnFailure("helper-failed", "No helper.", "node"))
    told = [world.tell(), over(world, EPILOG)]

    assert states(world) == [(b"epilog", b"failed", b"1")]
    assert [type(one).__name__ for one in told[1]] == ["Discarded", "StartRefused"]
    assert told[0] == []


def test_ranks_that_end_before_the_helper_answered_for_all_leave_the_epilog_to_the_last_answer(
    world: World,
) -> None:
    world.tell(world.a_start(ranks=2, account=ANNE, epilog=(Hook("tidy", site=True),)))
    world.host.helpers[0][1](601)
    world.live.exit(a_key(), 0)
    first = world.tell()
    before = list(states(world))
    world.host.helpers[1][1](BROKEN)
    world.tell()

    assert [one.record.rank for one in first if isinstance(one, TaskChanged)] == [0]
    assert (before, states(world)) == ([], [(b"epilog", b"failed", b"127")])


@pytest.mark.parametrize("is_known", [True, False])
def test_the_next_keeper_runs_the_epilog_of_a_lost_attempt(
    tmp_path: Path, clock: Clock, is_known: bool
) -> None:
    first = World(tmp_path, clock)
    first.tell(first.a_start(epilog=(Hook("tidy"),)), first.a_start(a_key(2)))
    first.ledger.close()
    second = World(tmp_path, clock, attached=False)
    if is_known:
        end_lost_tasks(second.ledger, Recovery(), "The keeper was killed.")
    (snapshot,) = second.tell(Attach(environment={}))
    told = second.tell() if not is_known else over(second, EPILOG)

    assert isinstance(snapshot, Snapshot)
    assert [record.ended_at is None for record in snapshot.tasks] == [True, not is_known]
    assert states(second) == [
        (b"epilog", b"lost" if is_known else b"completed", b"137" if is_known else b"0")
    ]
    if is_known:
        assert told == [TaskChanged(record=second.record())]
        assert (second.record().lost, second.record().reason) == (True, "The keeper was killed.")


class Recovery:
    """A machine on which nothing is left."""

    def end_all(self, *_: object) -> None:
        """There is nothing."""

    def sizes(self, stem: str) -> tuple[int, int]:
        return 0, 0


def test_a_runner_knows_what_it_runs(world: World) -> None:
    runner = HookRunner("ledger", world.live, world.host, dict)
    world.tell(world.with_hooks())
    hooks = world.ledger.hooks[a_key()]
    heard: list[tuple[str, bool]] = []
    runner.begin(a_key(2), "epilog", hooks, {}, lambda problem, is_sites: heard.append((problem, is_sites)))

    second = AttemptKey(JobId("epilog-JOB00002"), 1, 5)
    assert [
        runner.owns(second),
        runner.owns(a_key(2)),
        runner.is_running(a_key(2), "epilog"),
        runner.is_running(a_key(2), "prolog"),
        runner.is_busy(a_key(2)),
        runner.is_busy(a_key(1)),
        list(runner.moments()),
        heard,
    ] == [True, False, True, False, True, False, [130.0], []]
    for _ in range(2):
        runner.finished(world.live.tasks[second, 0])
    assert (runner.owns(second), runner.is_busy(a_key(2)), heard) == (False, False, [("", False)])


def test_one_lost_rank_makes_an_attempt_lost(world: World) -> None:
    world.tell(world.a_start(ranks=2, epilog=(Hook("tidy"),)), after_s=0.02)
    world.live.tasks[a_key(), 1].lost = True
    world.live.exit(a_key(), 0)
    world.live.exit(a_key(), 1)
    world.tell()

    assert states(world) == [(b"epilog", b"lost", b"0")]


def test_every_place_of_a_keepers_decisions_can_fail_in_a_test(world: World) -> None:
    """Tests of crashes stop a keeper at these places."""
    places = ["keeper.spawn.before", "keeper.spawn.after", "keeper.hook", "keeper.end", "keeper.tidied"]
    failed = []
    world.tell(world.a_start(epilog=(Hook("one"),)))
    world.live.exit(a_key())
    try:
        for name in (places[3], places[2]):
            arm(f"{name}=error")
            with pytest.raises(OSError, match=name):
                world.tell()
            failed.append(name)
            arm(None)
            world.live.add(LiveTask(a_key(), 0, 501, b""))
            world.live.exit(a_key())
        world.tell()
        arm("keeper.tidied=error")
        with pytest.raises(OSError, match=r"keeper\.tidied"):
            over(world, EPILOG)
        for name in places[:2]:
            arm(f"{name}=error")
            with pytest.raises(OSError, match=name):
                world.tell(world.a_start(a_key(len(failed) + 2)))
            failed.append(name)
    finally:
        arm(None)
    assert sorted(failed) == sorted(set(places) - {"keeper.tidied"})
