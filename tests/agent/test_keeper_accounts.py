"""Launches of an account: what its helper is asked for, and what follows from the answers."""

from __future__ import annotations

import pytest

from mgpu_agent.keeper.messages import (
    Attach,
    Discarded,
    StartRefused,
    StopTasks,
)
from mgpu_agent.run_as.cgroups import Share
from mgpu_agent.run_as.requests import Spawn
from mgpu_agent.run_as.spawn import SpawnFailure, Stdin
from tests.agent.keeper_world import ANNE, BROKEN, World, clock, world
from tests.agent.keepers import a_key
from tests.agent.test_keeper_machine import FULL, STOPPED, ended, refused

__all__ = ("clock", "world")  # fixtures


# --- as an account -------------------------------------------------------------------------------------


def test_a_helper_is_asked_for_each_process_of_an_account(world: World) -> None:
    world.stdin.terminal = "/dev/pts/3"
    world.machine.obey(
        Attach(environment={b"LANG": b"C", b"PATH": b"/bin", b"AWS_SECRET": b"root's"}, again=("again",))
    )
    share = Share(2, 1024)
    world.tell(world.a_start(ranks=2, account=ANNE, may_gain=True, share=share, pty=True))

    env = {
        b"LANG": b"C",
        b"PATH": b"/bin",
        b"HOME": b"/home/anne",
        b"USER": b"anne",
        b"LOGNAME": b"anne",
        b"SHELL": b"/bin/sh",
        b"SAME": b"rank",
    }
    requests = [request for request, _ in world.host.helpers]
    assert requests == [
        Spawn(
            number=0,
            group=1,
            argv=(b"run",),
            env={
                **env,
                b"RANK": b"%d" % rank,
                b"MGPU_TASK": f"{world.ledger.ledger_id}/{a_key()}/{rank}".encode(),
            },
            cwd="/place",
            pipe=False,
            terminal="/dev/pts/3" if rank == 0 else "",
        )
        for rank in (0, 1)
    ]
    assert world.host.asked == [
        ("spawn as", "anne", "ab-1", Stdin("/dev/pts/3", 9), True, str(a_key()), share),
        ("spawn as", "anne", "ab-2", None, True, str(a_key()), share),
        ("leave",),
    ]
    world.host.helpers[0][1](601)
    assert [(task.pid, task.uid) for task in world.live.tasks.values()] == [(601, 1001)]


@pytest.mark.parametrize(
    ("answers", "refusal", "failed", "stops"),
    [
        ([601, 602], None, [], []),
        ([BROKEN, BROKEN], BROKEN, [], []),
        ([BROKEN, FULL], BROKEN, [], []),
        ([601, BROKEN], None, [1], [BROKEN.message]),
    ],
)
def test_what_follows_from_the_answers_of_a_helper(
    world: World,
    answers: list[int | SpawnFailure],
    refusal: SpawnFailure | None,
    failed: list[int],
    stops: list[str],
) -> None:
    world.tell(world.a_start(ranks=2, account=ANNE))
    heard = []
    for (_, then), answer in zip(world.host.helpers, answers, strict=True):
        heard.append(world.machine.has_attempt(a_key()))
        then(answer)
    told = world.tell()

    assert heard == [True, True]
    assert [one for one in told if isinstance(one, StartRefused)] == ([refused(refusal)] if refusal else [])
    assert [one for one in told if isinstance(one, Discarded)] == (
        [Discarded(stems=("ab-1", "ab-2"))] if refusal else []
    )
    assert [rank for rank, *_ in ended(told)] == failed
    assert [reason for _, _, reason, _, _ in world.live.stops] == stops
    assert world.machine.has_attempt(a_key()) == (refusal is None)


@pytest.mark.parametrize("answers", [[601, 602], [BROKEN, 602], [BROKEN, BROKEN]])
def test_a_stop_while_a_helper_is_asked_ends_what_it_starts(
    world: World, answers: list[int | SpawnFailure]
) -> None:
    world.tell(world.a_start(ranks=2, account=ANNE))
    world.tell(StopTasks(key=a_key(), grace_s=4.0, reason="cancelled"))
    for (_, then), answer in zip(world.host.helpers, answers, strict=True):
        then(answer)
    told = world.tell()

    first = (a_key(), 4.0, "cancelled", 100.0, False)  # the stop itself, then one for each that began
    begun = sum(isinstance(answer, int) for answer in answers)
    assert world.live.stops[: begun + 1] == [first] * (begun + 1)
    assert [one for one in told if isinstance(one, StartRefused)] == ([] if begun else [refused(STOPPED)])
