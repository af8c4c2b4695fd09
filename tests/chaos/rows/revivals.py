"""Row 19: agents are killed and come back by themselves, and whole machines are lost, while short jobs come
all the time and other nodes are free: nobody waits for a dead agent, and what a dead machine had been given
waits for the lease and no longer.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from pathlib import Path

from mgpu_jupyter.client.job import Job
from tests.chaos.nodes import NodeStage
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Busy
from tests.checker.history import read
from tests.processes import wait_until

NODES = 4
GPUS = 2
PAUSE_S = 0.1
DRAIN_S = 120.0
NODE_EVERY = 5
"""So many kills make one of a whole machine."""
LEASE_S, GRACE_S, MARGIN_S = 20.0, 1.0, 1.0  # an agent that comes back on a busy machine must not lose it
FENCE_S = LEASE_S + GRACE_S + MARGIN_S
TRAITS = (
    f"--MgpuApp.lease={LEASE_S}",
    f"--MgpuApp.kill_grace={GRACE_S}",
    f"--MgpuApp.lease_margin={MARGIN_S}",
)
P99_LIMIT_S = 5.0
LATER_S = 5.0
"""So much later than the fence what a machine took with it may start elsewhere at most."""
JUDGED_FROM = 100
"""In fewer kills than these one slow moment of the machine is the whole tail: figures only."""


class Machines:
    """The nodes of the row: which of them is lost now, and since when."""

    def __init__(self, stage: NodeStage, names: list[str], rng: random.Random) -> None:
        self._stage = stage
        self._names = names
        self._rng = rng
        self._lost: tuple[str, float] | None = None
        self.agents_back_s: list[float] = []
        self.lost: list[tuple[str, float]] = []
        """Each machine that was lost, and when, by the clock of the jobs."""
        self._back_at: list[float] = []
        """When each of them was booted again."""

    @property
    def is_whole(self) -> bool:
        """Tell whether no machine is lost now."""
        return self._lost is None

    def lose(self) -> None:
        """Lose a machine: it is booted anew soon, or later than the fence of what it ran."""
        node = self._rng.choice(self._names)
        away_s = (FENCE_S + LATER_S) * (len(self.lost) % 2)
        self.lost.append((node, time.time()))
        self._stage.kill_node(node)
        self._lost = node, time.monotonic() + away_s

    def bring_back(self, *, wait: bool = False) -> None:
        """Boot the lost machine, if its time has come."""
        if self._lost is None or (time.monotonic() < self._lost[1] and not wait):
            return
        node, at = self._lost
        time.sleep(max(0.0, at - time.monotonic()))
        self._back_at.append(time.time())
        self._stage.boot(node)
        self._stage.fork_node(node, GPUS, restart=True)
        self._stage.wait_online([node])
        self._lost = None

    def kill_agent(self) -> None:
        """Kill an agent, and wait until its node has another one and is online."""
        stage = self._stage
        node = self._rng.choice([name for name in self._names if self._lost is None or name != self._lost[0]])
        killed = stage.agent_of(node)
        began = time.monotonic()
        with contextlib.suppress(ProcessLookupError):
            os.kill(killed, signal.SIGKILL)
        wait_until(lambda: stage.agent_of(node) != killed, f"{node} has another agent", every_s=0.02)
        stage.wait_online([node])
        self.agents_back_s.append(time.monotonic() - began)

    def took(self, job: Job) -> bool:
        """Tell whether a job was on a machine when that was lost, or was given to it before the master could
        know.
        """
        return any(
            rank.assigned.node == node
            and (attempt.planned_at or attempt.queued_at) <= back_at
            and (attempt.ended_at is None or lost_at <= attempt.ended_at)
            for attempt in job.trace().attempts
            for rank in attempt.ranks
            for (node, lost_at), back_at in zip(self.lost, self._back_at, strict=True)
        )


def kill_and_wait(directory: Path, kills: int, rng: random.Random) -> Findings:
    """Kill agents and machines at random moments; an agent is back before the next one dies."""
    choices = random.Random(rng.random())
    with NodeStage(directory, rng, settings={"kill_grace_s": GRACE_S}, boots=True) as stage:
        stage.warm_master(*TRAITS)
        machines = Machines(stage, stage.start_nodes(NODES, GPUS, restart=True), rng)

        def submit(number: int) -> None:
            stage.submit(f"job-{number}", choices.uniform(0.05, 0.2), gpus=choices.choice([0, 1, 1]))

        with Busy(stage, submit, pause_s=PAUSE_S):
            for number in range(kills):
                time.sleep(rng.uniform(0.1, 1.0))
                machines.bring_back()
                if number % NODE_EVERY == NODE_EVERY - 1 and machines.is_whole:
                    machines.lose()
                else:
                    machines.kill_agent()
            machines.bring_back(wait=True)
        stage.drain(DRAIN_S)
        stage.survey()
        return _judged(stage, machines, kills)


def _judged(stage: NodeStage, machines: Machines, kills: int) -> Findings:
    jobs = [job for job in stage.client.jobs() if job.info.name.startswith("job-")]
    # Only those that waited for long are asked where they had been: nothing else can have delayed them.
    late = [job for job in jobs if _wait_s(job) >= P99_LIMIT_S or job.info.attempt > 1]
    taken = {job.id for job in late if machines.took(job)}
    waits = sorted(_wait_s(job) for job in jobs if job.id not in taken)
    lost = sorted(_wait_s(job) for job in jobs if job.id in taken)
    p99_s = waits[int(len(waits) * 0.99)]
    figures = {
        "kills_of_agents": len(machines.agents_back_s),
        "machines_lost": len(machines.lost),
        "jobs": len(jobs),
        "processes": len(read(stage.record).runs),
        "wait_p50_s": round(waits[len(waits) // 2], 3),
        "wait_p99_s": round(p99_s, 3),
        "wait_max_s": round(waits[-1], 3),
        "back_after_max_s": round(max(machines.agents_back_s), 2),
        "taken_by_machines": len(lost),
        "taken_wait_max_s": round(max(lost, default=0.0), 2),
        "fence_s": FENCE_S,
    }
    violations = stage.judge()
    if kills >= JUDGED_FROM and p99_s >= P99_LIMIT_S:
        violations.append(f"of 100 jobs one waited {p99_s:.1f} s or longer while other nodes were free")
    if kills >= JUDGED_FROM and lost and lost[-1] >= FENCE_S + LATER_S:
        violations.append(
            f"a job of a machine that was lost waited {lost[-1]:.1f} s, and the fence is {FENCE_S:g} s"
        )
    return Findings(violations, figures)


def _wait_s(job: Job) -> float:
    info = job.info
    assert info.started_at is not None
    return info.started_at - info.submitted_at


ROWS = (
    Row(
        19,
        "kill -9 of agents that are started again and of whole machines, short jobs beside it",
        5,
        500,
        kill_and_wait,
    ),
)
