"""Row 4: whole nodes that are gone (agent, keeper and jobs at once), for good or until they come back in a
new boot.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.chaos.nodes import NodeStage
from tests.chaos.result import Findings, Row
from tests.checker.history import read
from tests.processes import WaitedTooLong, wait_until

LEASE_S, GRACE_S, MARGIN_S = (
    8.0,
    1.0,
    1.0,
)  # an agent that is only slow, on a machine that is busy, must not lose it
FENCE_S = LEASE_S + GRACE_S + MARGIN_S
LATER_S = 5.0
"""So much later than the fence, or than its node's return, a job may be back in the queue at most."""
SLOW_MACHINE_S = 60.0  # in `make test` other work may take most of the machine
TRAITS = (
    f"--MgpuApp.lease={LEASE_S}",
    f"--MgpuApp.kill_grace={GRACE_S}",
    f"--MgpuApp.lease_margin={MARGIN_S}",
    "--MgpuApp.heartbeat_interval=0.5",
    "--MgpuApp.timeout=2",
)
BEAT_S = 1.0  # a node may have been heard last so long before it was lost
GPUS = 2
SPARE = 2
AT_ONCE = 5
FOREVER_S = 600.0


class Loss:
    """One node that is lost with the one job on it, and what must become of that job."""

    def __init__(self, stage: NodeStage, kind: str, number: int) -> None:
        self.kind = kind
        self.took_s: float | None = None
        policy, self._how = KINDS[kind]
        self._stage = stage
        self._job = stage.submit(f"{kind}-{number}", FOREVER_S, gpus=GPUS, on_disconnect=policy)

    def place(self) -> None:
        """Find out where it runs."""
        self._attempt, ((self.node, self._pid),) = wait_until(
            lambda: self._stage.running().get(self._job), f"{self._job} runs", 60
        )

    def run(self, pause_s: float, limit_s: float) -> None:
        """Lose the node and see what follows; times count from where the promise does."""
        counted_from = self._how(self._stage, self.node, pause_s, self._is_untouched)
        if self.kind == ADOPTED:
            self._expect_same()
            return
        with_limit = limit_s + (FENCE_S if self.kind == GONE else 0.0)
        try:
            wait_until(
                self._is_again, "it runs again", max(0.0, counted_from + with_limit - time.monotonic()), 0.02
            )
        except WaitedTooLong:
            self._complain(f"was not back after {with_limit:g} s: {self._stage.client.job(self._job).info}")
            return
        self.took_s = time.monotonic() - counted_from
        if self.kind == GONE and self.took_s < FENCE_S - BEAT_S:
            self._complain(f"was given up after {self.took_s:.1f} s already")

    def _is_again(self) -> bool:
        info = self._stage.client.job(self._job).info
        if info.attempt > self._attempt + 1:
            self._complain(f"came to attempt {info.attempt}")
        # Requeued is what counts; with a node free it is placed in the same turn.
        return info.attempt == self._attempt + 1 or str(info.state) == "queued"

    def _is_untouched(self) -> None:
        info = self._stage.client.job(self._job).info
        if (info.attempt, str(info.state)) != (self._attempt, "running"):
            self._complain(f"was not waited for: it is {info.state} in attempt {info.attempt}")

    def _expect_same(self) -> None:
        self._is_untouched()
        pids = [placement.pid for placement in self._stage.client.job(self._job).info.placements]
        if pids != [self._pid]:
            self._complain(f"was not adopted: it had pid {self._pid} and has {pids}")

    def expect_once_more(self) -> None:
        """See at the end that it was placed exactly once more."""
        attempt = self._stage.client.job(self._job).info.attempt
        wanted = self._attempt + (self.kind != ADOPTED)
        if attempt != wanted:
            self._complain(f"ended with attempt {attempt}, and {wanted} was to be its last")

    def _complain(self, what: str) -> None:
        self._stage.problems.append(f"the job {self._job} of a node that was lost ({self.kind}) {what}")


Way = Callable[[NodeStage, str, float, Callable[[], None]], float]
"""Hurts a node, brings it back if that belongs to it, and returns from when on time counts."""


def _gone(stage: NodeStage, node: str, pause_s: float, check: Callable[[], None]) -> float:
    began = time.monotonic()
    stage.kill_node(node)
    return began


def _back(
    stage: NodeStage, node: str, pause_s: float, check: Callable[[], None], *, new_boot: bool, away_s: float
) -> float:
    stage.kill_node(node)
    time.sleep(away_s + pause_s)
    if away_s > FENCE_S:
        check()
    if new_boot:
        stage.boot(node)
    stage.fork_node(node, GPUS)
    wait_until(
        lambda: "joined" in stage.log(node).rpartition("keeper_attached")[2], f"{node} is back", 60, 0.02
    )
    return time.monotonic()


def _agent_away(stage: NodeStage, node: str, pause_s: float, check: Callable[[], None]) -> float:
    stage.kill(node)
    time.sleep(FENCE_S + 0.5 + pause_s)
    check()
    stage.fork_node(node, GPUS)
    stage.wait_online([node])
    return time.monotonic()


GONE, ADOPTED = "fence, gone for good", "keep, agent away longer than the fence"
KINDS: dict[str, tuple[str, Way]] = {
    GONE: ("fence", _gone),
    "fence, back in a new boot": ("fence", partial(_back, new_boot=True, away_s=0.0)),
    ADOPTED: ("keep", _agent_away),
    "keep, back in a new boot": ("keep", partial(_back, new_boot=True, away_s=FENCE_S + 0.5)),
    "keep, back in the same boot": ("keep", partial(_back, new_boot=False, away_s=0.0)),
}


def lose_nodes(directory: Path, times: int, rng: random.Random) -> Findings:
    """Lose nodes a few at a time, each in its own way; each job is where it should be, and no sooner and no
    later.
    """
    kinds = list(itertools.islice(itertools.cycle(KINDS), times))
    limit_s = LATER_S + (0.0 if times >= 200 else SLOW_MACHINE_S)
    took: dict[str, float] = {}
    with NodeStage(directory, rng, settings={"kill_grace_s": GRACE_S}, boots=True) as stage:
        stage.warm_master(*TRAITS)
        names = stage.start_nodes(min(times, AT_ONCE) + SPARE, GPUS)
        numbers = itertools.count()
        for first in range(0, times, AT_ONCE):
            losses = [Loss(stage, kind, next(numbers)) for kind in kinds[first : first + AT_ONCE]]
            for loss in losses:
                loss.place()
            with ThreadPoolExecutor(AT_ONCE) as pool:
                list(pool.map(lambda loss: loss.run(rng.uniform(0.0, 0.5), limit_s), losses))
            stage.look()
            for loss in losses:
                loss.expect_once_more()
                if loss.took_s is not None:
                    took[loss.kind] = max(took.get(loss.kind, 0.0), round(loss.took_s, 2))
            for loss in losses:
                if loss.kind == GONE:
                    stage.boot(loss.node)
                    stage.fork_node(loss.node, GPUS)
            stage.cancel_all(60)
            stage.wait_online(names, 60)
        stage.survey()
        history = read(stage.record)
        figures: dict[str, object] = {
            "losses": times,
            "nodes": len(names),
            "processes": len(history.runs),
            "fence_s": FENCE_S,
        }
        return Findings(stage.judge(), figures | {"queued_again_after_s_most": took})


ROWS = (Row(4, "a node gone for good (agent, keeper and jobs), and back in a new boot", 5, 200, lose_nodes),)
