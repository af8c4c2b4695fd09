"""Row 15: a process, an agent or a whole node is lost in a gang of four, from before it is prepared until it
ends.

To hurt gangs of another shape, give `hurt_gangs` another `Shape`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

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
SLOW_S = 0.05
"""So long the master needs for each `Prepare` and each `Start`: wide enough to hit what lies before, between
and after them.
"""
TRAITS = (
    f"--MgpuApp.lease={LEASE_S}",
    f"--MgpuApp.kill_grace={GRACE_S}",
    f"--MgpuApp.lease_margin={MARGIN_S}",
    "--MgpuApp.heartbeat_interval=0.5",
    "--MgpuApp.timeout=2",
    "--MgpuApp.prepare_timeout=2",
    "--MgpuApp.node_failures=1000",
    "--MgpuApp.max_failed_starts=1000",
)
GANG_LIMIT_S = 60.0
LIVES_S = 0.6
OVER_S = 60.0
SETTLE_S = 60.0
STAYS_AWAY = 0.15
"""So many agents stay away until the lease is over."""

PROCESS, AGENT, NODE = "process", "agent", "node"
BEFORE, BETWEEN, RUNNING, ENDING = "before prepare", "between prepare and start", "running", "ending"


@dataclass(frozen=True)
class Shape:
    """What a gang looks like and what is done to it."""

    nodes: int = 4
    spare: int = 2
    gpus: int = 2
    """Of each node."""
    ranks: int = 4
    request: dict[str, Any] = field(default_factory=lambda: {"nodes": 4, "gpus_per_node": 1})
    kinds: tuple[tuple[str, str], ...] = tuple(
        itertools.product((PROCESS, AGENT, NODE), (BEFORE, BETWEEN, RUNNING, ENDING)),
    )


class Gang:
    """One job on several nodes, to be hurt once."""

    def __init__(self, stage: NodeStage, shape: Shape, number: int, rng: random.Random, policy: str) -> None:
        self._stage = stage
        self._shape = shape
        self._rng = rng
        self._asked = time.monotonic()
        self.job = stage.submit(f"gang-{number}", LIVES_S, on_disconnect=policy, **shape.request)

    def wait_for(self, moment: str) -> None:
        """Wait for a moment of this kind; by the clock where nothing can be seen from outside."""
        spell_s = SLOW_S * self._shape.ranks
        if moment == BEFORE:
            time.sleep(self._rng.uniform(0.0, spell_s))
        elif moment == BETWEEN:
            time.sleep(
                max(0.0, self._asked + spell_s + self._rng.uniform(0.0, 1.2 * spell_s) - time.monotonic())
            )
        else:
            # Seen by what the processes write down, not by what the master knows.
            with contextlib.suppress(WaitedTooLong):
                wait_until(lambda: len(self._pids()) == self._shape.ranks, "all ranks have begun", 10, 0.01)
            time.sleep(
                self._rng.uniform(0.0, LIVES_S / 2)
                if moment == RUNNING
                else LIVES_S + self._rng.uniform(-0.1, 0.2)
            )

    def node(self) -> str | None:
        """Return a node of this gang."""
        placements = self._stage.client.job(self.job).info.placements
        return str(self._rng.choice(placements).node) if placements else None

    def kill_process(self) -> bool:
        """Kill one rank as soon as there is one; tell whether there was."""
        with contextlib.suppress(WaitedTooLong):
            wait_until(
                lambda: (
                    self._pids() or str(self._stage.client.job(self.job).state) in ("completed", "failed")
                ),
                "a rank",
                10,
                0.01,
            )
        alive = self._pids()
        if not alive:
            return False
        pid, born = self._rng.choice(sorted(alive))
        with contextlib.suppress(OSError, IndexError):
            if _born_at(pid) == born:
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _pids(self) -> set[tuple[int, int]]:
        """Return pid and birth of the ranks that have begun, by the names of their files."""
        words = [path.name.split(".") for path in self._stage.witness.glob(f"{self.job}.*")]
        newest = max((int(word[1]) for word in words), default=0)
        return {(int(word[3]), int(word[4])) for word in words if int(word[1]) == newest}


def _born_at(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


Revive = Callable[[], None]


def _hurt(
    stage: NodeStage, gang: Gang, shape: Shape, kind: str, rng: random.Random, *, stays_away: bool
) -> Revive | None:
    """Do what is to be done; return how to bring back what was taken, or None if there was nothing to
    hurt.
    """
    if kind == PROCESS:
        return (lambda: None) if gang.kill_process() else None
    # Before it is placed any node may be one of its nodes.
    node = gang.node() or rng.choice([f"n{number}" for number in range(shape.nodes)])
    away_s = rng.uniform(0.0, 0.5)
    if kind == NODE:
        stage.kill_node(node)
        if rng.random() < 0.5:
            stage.boot(node)
    elif stays_away:
        # Without an agent for longer than the lease, the keeper ends its fenced ranks by itself.
        stage.lose_agent(node, FENCE_S)
    else:
        stage.kill(node)

    def revive() -> None:
        time.sleep(away_s)
        stage.fork_node(node, shape.gpus)

    return revive


def hurt_gangs(directory: Path, times: int, rng: random.Random, shape: Shape | None = None) -> Findings:
    """Hurt one gang after the other; all of its ranks run, or none, and nothing of it stays behind."""
    shape = shape or Shape()
    done: dict[str, int] = {}
    kinds = itertools.chain.from_iterable(
        rng.sample(shape.kinds, len(shape.kinds)) for _ in itertools.count()
    )
    with NodeStage(
        directory, rng, settings={"kill_grace_s": GRACE_S, "gang_limit_s": GANG_LIMIT_S}, boots=True
    ) as stage:
        master = stage.fork_master(
            *TRAITS, failpoints=f"master.prepare=sleep:{SLOW_S},master.start=sleep:{SLOW_S}"
        )
        assert stage.wait_for_master_or_end(master)
        names = stage.start_nodes(shape.nodes + shape.spare, shape.gpus)
        for number, (kind, moment) in enumerate(itertools.islice(kinds, times)):
            stays_away = kind == AGENT and rng.random() < STAYS_AWAY
            # An agent that comes back finds its ranks alive, however long its start takes on a busy machine.
            gang = Gang(stage, shape, number, rng, "keep" if kind == AGENT and not stays_away else "fence")
            gang.wait_for(moment)
            revive = _hurt(stage, gang, shape, kind, rng, stays_away=stays_away)
            if revive is not None:
                done[f"{kind}, {moment}"] = done.get(f"{kind}, {moment}", 0) + 1
                revive()
            try:
                wait_until(partial(_is_over, stage, gang), "the gang is over", OVER_S, 0.05)
            except WaitedTooLong:
                stage.problems.append(
                    f"gang {gang.job} ({kind}, {moment}) is not over: {stage.client.job(gang.job).info}"
                )
            _wait_until_free(stage, f"{kind}, {moment}")
        stage.wait_online(names, SETTLE_S)
        _use_all(stage, shape, len(names))
        stage.drain(180)
        stage.survey()
        history = read(stage.record)
        figures: dict[str, object] = {
            "gangs": times,
            "ranks": shape.ranks,
            "hurt": dict(sorted(done.items())),
        }
        figures |= {
            "processes": len(history.runs),
            "run_again": len({(run.job, run.attempt) for run in history.runs if run.attempt > 1}),
        }
        return Findings(stage.judge(), figures)


def _is_over(stage: NodeStage, gang: Gang) -> bool:
    stage.look()
    return str(stage.client.job(gang.job).state) in ("completed", "failed")


def free_gpus(stage: NodeStage) -> bool:
    """Tell whether no GPU is held."""
    return not any(gpu.job_id for node in stage.client.nodes() for gpu in node.gpus)


def _wait_until_free(stage: NodeStage, what: str) -> None:
    """See that no GPU is held any more."""
    try:
        wait_until(partial(free_gpus, stage), "all GPUs are free", SETTLE_S)
    except WaitedTooLong:
        held = [(node.id, gpu.job_id) for node in stage.client.nodes() for gpu in node.gpus if gpu.job_id]
        stage.problems.append(f"after a gang was hurt ({what}) GPUs are still held: {held}")


def _use_all(stage: NodeStage, shape: Shape, nodes: int) -> None:
    """Run a gang on all GPUs of all nodes: what a node still kept for an earlier one would be missing."""
    job = stage.submit("all", 0.1, nodes=nodes, gpus_per_node=shape.gpus)
    try:
        wait_until(
            lambda: str(stage.client.job(job).state) == "completed", "a gang on all GPUs is over", SETTLE_S
        )
    except WaitedTooLong:
        stage.problems.append(f"a gang on all GPUs did not run afterwards: {stage.client.job(job).info}")


ROWS = (
    Row(15, "a rank's process, agent or node dies in a gang of 4, at random moments", 10, 200, hurt_gangs),
)
