"""Rows 3 and 16: agents, and then keepers, that are killed while jobs run, at random moments and at every
failpoint.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from mgpu_agent.keeper.messages import LOCK_NAME
from mgpu_agent.protocol.failpoints import AGENT, KEEPER, VARIABLE
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Busy, Stage, now
from tests.checker.history import read
from tests.processes import WaitedTooLong, wait_until

NODES = 4
GPUS = 4
RANDOM_KILLS = 10
PAUSE_S = 0.3
FAILPOINT_LIMIT_S = 2.0
KEEPER_LIMIT_S = 5.0  # its reaper ends what it left before it is gone itself
LOCK_LIMIT_S = 40.0
DRAIN_S = 120.0
GRACE_S = 2.0
LEFT_S = 10.0  # the reaper waits a second between TERM and KILL; the rest is for a busy machine
LOST = "node-lost"
FIRST_START = ("agent.keeper", "agent.enrolment.before", "agent.enrolment.after")
"""Reached by a node that is new."""
SELDOM = (*FIRST_START, "agent.script", "keeper.recover", "keeper.compact.before", "keeper.compact.after")

Life = Callable[[Stage, str, str, random.Random], bool]
"""Hurts a node at a failpoint, or at any moment; tells whether it died there."""


def kill_agents(directory: Path, kills: int, rng: random.Random) -> Findings:
    """Kill agents; their jobs go on, are adopted, and run once."""
    return _hurt(directory, kills, rng, AGENT, _agent_life)


def kill_keepers(directory: Path, kills: int, rng: random.Random) -> Findings:
    """Kill keepers: what they kept is ended and runs again, never beside its first attempt."""
    return _hurt(directory, kills, rng, KEEPER, _keeper_life)


def _hurt(
    directory: Path, kills: int, rng: random.Random, failpoints: dict[str, str], live: Life
) -> Findings:
    plan = itertools.cycle([*rng.sample(sorted(failpoints), len(failpoints)), *[""] * RANDOM_KILLS])
    reached: set[str] = set()
    choices = random.Random(rng.random())
    with Stage(directory, settings={"kill_grace_s": GRACE_S}) as stage:
        stage.warm_master(
            f"--MgpuApp.kill_grace={GRACE_S}", "--MgpuApp.probe_after=1", "--MgpuApp.probe_cap=2"
        )
        names = stage.start_nodes(NODES, GPUS)

        def submit(number: int) -> None:
            stage.submit(
                f"job-{number}",
                choices.uniform(0.1, 2.0),
                code=choices.choice([0, 0, 0, 5]),
                gpus=choices.choice([0, 1, 1, 2]),
            )

        with Busy(stage, submit, pause_s=PAUSE_S):
            for failpoint in itertools.islice(plan, kills):
                node = rng.choice(names)
                if live(stage, node, failpoint, rng):
                    reached.add(failpoint)
                stage.fork_node(node, GPUS)
                time.sleep(rng.uniform(0.0, 0.5))
        stage.drain(DRAIN_S)
        stage.survey()
        history = read(stage.record)
        figures: dict[str, object] = {
            "kills": kills,
            "nodes": NODES,
            "jobs": len(stage.acknowledged),
            "processes": len(history.runs),
        }
        figures |= {
            "run_again": sum(run.attempt > 1 for run in history.runs),
            "failpoints_reached": len(reached),
        }
        figures |= {"failpoints_not_reached": sorted(failpoints.keys() - reached)}
        return Findings(stage.judge(), figures)


def _agent_life(stage: Stage, node: str, failpoint: str, rng: random.Random) -> bool:
    stage.kill(node)
    if not failpoint:
        return False
    name = f"{node}-{rng.randrange(1_000_000)}" if failpoint in FIRST_START else node
    agent = stage.fork_node(name, GPUS, _wish(failpoint, rng))
    with contextlib.suppress(WaitedTooLong):
        wait_until(lambda: agent.poll() is not None, f"the agent dies at {failpoint}", FAILPOINT_LIMIT_S)
    died_by_itself = agent.poll() is not None
    stage.kill(name)
    return died_by_itself


def _keeper_life(stage: Stage, node: str, failpoint: str, rng: random.Random) -> bool:
    if not failpoint:
        _kill_keeper(stage, node)
        stage.kill(node)
        if rng.random() < 0.5:  # else an agent is back before all has ended
            _expect_nothing_left(stage, node)
        return False
    stage.kill(node)
    _kill_keeper(stage, node)
    directory = stage.state / "nodes" / node
    wait_until(lambda: not _is_kept(directory), f"the reaper of {node} is done", LOCK_LIMIT_S)
    # Started here and not by the agent, whose later keepers would die at the same place again and again.
    command = [sys.executable, "-P", "-m", "mgpu_agent.keeper", "--dir", str(directory), "--idle", "30"]
    keeper = stage.start(
        f"keeper-{node}-{rng.randrange(1_000_000)}",
        [*command, "--lost-reason", "It was killed."],
        env={VARIABLE: _wish(failpoint, rng)},
    )
    wait_until(
        lambda: _is_kept(directory) or keeper.poll() is not None,
        f"the keeper of {node} is there",
        LOCK_LIMIT_S,
        0.01,
    )
    began = now()
    stage.fork_node(node, GPUS)
    with contextlib.suppress(WaitedTooLong):
        wait_until(lambda: keeper.poll() is not None, f"the keeper dies at {failpoint}", KEEPER_LIMIT_S, 0.01)
    died_by_itself = keeper.poll() is not None
    time.sleep(rng.uniform(0.0, 0.5))
    if not died_by_itself or rng.random() < 0.5:  # the agent goes on with a new keeper, or dies soon after
        stage.kill(node)
        _kill_keeper(stage, node)
    else:
        stage.kill(node)
    # When it died is known only roughly: it may have reached its failpoint a moment after it was last looked
    # at.
    stage.write("fault", kind=LOST, node=node, since=began)
    return died_by_itself


def _is_kept(directory: Path) -> bool:
    """Tell whether a keeper or its reaper holds the lock of a node's directory."""
    with (directory / LOCK_NAME).open("ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _expect_nothing_left(stage: Stage, node: str) -> None:
    """With agent and keeper gone and nobody to start them, all that ran there ends all the same."""
    with contextlib.suppress(WaitedTooLong):
        wait_until(lambda: not stage.jobs_on(node), f"nothing runs on {node}", LEFT_S)
        return
    stage.problems.append(
        f"{LEFT_S:.0f} s after agent and keeper of {node} were killed, {stage.jobs_on(node)} still ran there"
    )


def _wish(failpoint: str, rng: random.Random) -> str:
    return f"{failpoint}=kill" if failpoint in SELDOM else f"{failpoint}=kill:{rng.randint(1, 6)}"


def _kill_keeper(stage: Stage, node: str) -> None:
    """Kill the keeper of a node and no other process."""
    keeper = stage.keeper_of(node)
    if keeper is not None:
        began = now()
        with contextlib.suppress(psutil.NoSuchProcess):
            keeper.kill()
        stage.write("fault", kind=LOST, node=node, since=began)


ROWS = (
    Row(3, "kill -9 of an agent with jobs running, restart", 15, 500, kill_agents),
    Row(16, "kill -9 of a keeper with jobs running (beyond the table)", 10, 200, kill_keepers),
)
