"""Row 18: rank 3 of a job with two processes on each of two nodes ends badly, is killed, loses its agent or
its node, at random moments.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from functools import partial
from pathlib import Path

from tests.chaos.nodes import NodeStage
from tests.chaos.result import Findings, Row
from tests.chaos.rows.gangs import FENCE_S, GANG_LIMIT_S, GRACE_S, LEASE_S, SETTLE_S, TRAITS, free_gpus
from tests.chaos.stage import now
from tests.checker.history import Run, read
from tests.processes import WaitedTooLong, wait_until

NODES, TASKS = 2, 2
RANKS = NODES * TASKS
RANK = RANKS - 1
SPARE = 2
CODE = 7
LIVES_S = 120.0
"""Of ranks that nothing happens to; longer than anything that is waited for."""
AGENT_LIVES_S = 3.0
MARGIN_S = 2.0
SLOW_MACHINE_S = 40.0
FULL_FROM = 200
OVER_S = 60.0

EXITS, KILLED, AGENT, NODE, NODE_FAILS = (
    "exits 7",
    "is killed",
    "agent killed",
    "node gone, requeue",
    "node gone, no requeue",
)
KINDS = (EXITS, KILLED, AGENT, NODE, EXITS, KILLED, AGENT, NODE_FAILS)
"""Each of the four as often; a lost node with and without the wish to run again in turn."""


class Case:
    """One job, to be hurt once."""

    def __init__(self, stage: NodeStage, kind: str, number: int, rng: random.Random, slack_s: float) -> None:
        self.kind = kind
        self._stage, self._rng, self._slack_s = stage, rng, slack_s
        self._moment_s = rng.uniform(0.05, 1.5)
        words = ("talk", f"{RANK}:{self._moment_s:.3f}:{CODE}") if kind == EXITS else ("talk",)
        life_s = AGENT_LIVES_S if kind == AGENT else LIVES_S
        policy = (
            "keep" if kind == AGENT else "fence"
        )  # it goes on, however long the start of an agent takes on a busy machine
        request = {
            "nodes": NODES,
            "gpus_per_node": TASKS,
            "ntasks_per_node": TASKS,
            "requeue": kind != NODE_FAILS,
        }
        self.job = stage.submit(f"ranks-{number}", life_s, words=words, on_disconnect=policy, **request)
        self._hurt_at = 0.0
        self._before = 0

    def run(self) -> None:
        """Hurt it and see what becomes of it."""
        {EXITS: self._exits, KILLED: self._killed, AGENT: self._agent}.get(self.kind, self._node)()

    def _exits(self) -> None:
        self._expect_failure(CODE, f"Rank {RANK} ended with exit code {CODE}")

    def _killed(self) -> None:
        pid = wait_until(self._pid, f"rank {RANK} has begun", 30, 0.01)
        time.sleep(self._moment_s)
        os.kill(pid, signal.SIGKILL)
        self._expect_failure(128 + signal.SIGKILL, f"Rank {RANK} ended with signal {int(signal.SIGKILL)}")

    def _agent(self) -> None:
        node = self._node_of_rank()
        time.sleep(self._moment_s)
        self._stage.kill(node)
        time.sleep(self._rng.uniform(0.0, 0.5))
        self._stage.fork_node(node, TASKS)
        if self._wait_over("completed"):
            for rank in range(RANKS):
                self._stage.compare_output(self.job, rank)

    def _node(self) -> None:
        node = self._node_of_rank()
        time.sleep(self._moment_s)
        self._hurt_at = now()
        self._before = self._stage.client.job(self.job).info.attempt
        had_begun = len(self._runs(self._before)) == RANKS
        self._stage.kill_node(node)
        if self.kind == NODE:
            with contextlib.suppress(WaitedTooLong):
                wait_until(
                    lambda: self._stage.client.job(self.job).info.attempt > self._before,
                    "it runs again",
                    FENCE_S + SETTLE_S,
                )
            if self._stage.client.job(self.job).info.attempt != self._before + 1:
                self._complain(f"was to run once more: {self._stage.client.job(self.job).info}")
            self._stage.client.cancel(self.job)
            self._wait_over("cancelled")
        elif had_begun:
            self._wait_over("failed")
        else:
            self._stage.client.cancel(self.job)
            self._wait_over("cancelled", "failed")
        if self._rng.random() < 0.5:
            self._stage.boot(node)
        self._stage.fork_node(node, TASKS)
        limit = LEASE_S + GRACE_S + MARGIN_S + self._slack_s
        self._expect_dead(self._runs(self._before), self._hurt_at, limit)

    # --- looking -------------------------------------------------------------------------------------

    def _node_of_rank(self) -> str:
        def node() -> str | None:
            placements = self._stage.client.job(self.job).info.placements
            return next((str(placement.node) for placement in placements if placement.rank == RANK), None)

        return wait_until(node, "it is placed", 30, 0.02)

    def _pid(self) -> int | None:
        return next((run.pid for run in self._runs(1) if run.rank == RANK), None)

    def _runs(self, attempt: int) -> list[Run]:
        return [run for run in read(self._stage.record).runs if (run.job, run.attempt) == (self.job, attempt)]

    def _wait_over(self, *states: str) -> bool:
        def over() -> bool:
            self._stage.look()
            return str(self._stage.client.job(self.job).state) in (
                "completed",
                "failed",
                "cancelled",
                "timeout",
            )

        with contextlib.suppress(WaitedTooLong):
            wait_until(over, "it is over", OVER_S)
        info = self._stage.client.job(self.job).info
        if str(info.state) not in states:
            self._complain(f"is {info.state} and was to be {' or '.join(states)}: {info.reason}")
        return str(info.state) in states

    def _expect_failure(self, code: int, sentence: str) -> None:
        if not self._wait_over("failed"):
            return
        info = self._stage.client.job(self.job).info
        if info.exit_code != code or not info.reason.startswith(sentence):
            self._complain(f"ended with {info.exit_code} and the words {info.reason!r}")
        if self.kind == EXITS:
            self._stage.compare_output(self.job, RANK)
        runs = self._runs(1)
        gone_at = next((run.seen_at for run in runs if run.rank == RANK), 0.0)
        self._expect_dead(runs, gone_at, GRACE_S + MARGIN_S + self._slack_s)

    def _expect_dead(self, runs: list[Run], since: float, limit_s: float) -> None:
        for run in runs:
            if run.seen_at > since + limit_s:
                self._complain(
                    f"left {run.name} alive for {run.seen_at - since:.1f} s, and {limit_s:g} are allowed"
                )

    def _complain(self, what: str) -> None:
        self._stage.problems.append(f"the job {self.job} whose rank {RANK} {self.kind} {what}")


def hurt_ranks(directory: Path, times: int, rng: random.Random) -> Findings:
    """Hurt one job after the other."""
    slack_s = 0.0 if times >= FULL_FROM else SLOW_MACHINE_S
    done: dict[str, int] = {}
    with NodeStage(
        directory, rng, settings={"kill_grace_s": GRACE_S, "gang_limit_s": GANG_LIMIT_S}, boots=True
    ) as stage:
        stage.warm_master(*TRAITS)
        names = stage.start_nodes(NODES + SPARE, TASKS)
        for number, kind in enumerate(itertools.islice(itertools.cycle(KINDS), times)):
            Case(stage, kind, number, rng, slack_s).run()
            done[kind] = done.get(kind, 0) + 1
            try:
                wait_until(partial(free_gpus, stage), "all GPUs are free", SETTLE_S)
            except WaitedTooLong:
                stage.problems.append(f"after the case {kind} GPUs are still held")
            stage.wait_online(names, SETTLE_S)
        stage.drain(180)
        stage.survey()
        runs = read(stage.record).runs
        figures: dict[str, object] = {
            "cases": done,
            "ranks": RANKS,
            "nodes": len(names),
            "processes": len(runs),
        }
        return Findings(stage.judge(), figures)


ROWS = (
    Row(
        18, "rank 3 of 4, two on each node: exits 7, is killed, loses its agent, its node", 4, 200, hurt_ranks
    ),
)
