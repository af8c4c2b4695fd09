"""Rows 5 and 6: nodes that are cut off from the master and heal again, while they themselves and their jobs
are well.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.nodes import LOST, NodeStage
from tests.chaos.proxy import BOTH, TO_AGENT, TO_MASTER
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Busy
from tests.checker.history import History, Run, read
from tests.processes import WaitedTooLong, wait_until

WAYS = ((TO_MASTER,), (TO_AGENT,), BOTH)
GRACE_S, MARGIN_S = 1.0, 1.0
BROKEN = 0.3
"""So many of the connections that there were do not outlive their cut."""
GPUS = 2  # of each node, and all of them for each job
FOREVER_S = 7200.0
SETTLE_S = 60.0
DRAIN_S = 180.0


@dataclass(frozen=True)
class Size:
    """How long cuts are, and how many nodes suffer them side by side."""

    lease_s: float
    seconds: tuple[float, ...]
    nodes: int
    at_once: int
    """The others take what had to be ended."""

    @property
    def fence_s(self) -> float:
        """From when on the master counts a job on a silent node as over."""
        return self.lease_s + GRACE_S + MARGIN_S

    @property
    def traits(self) -> tuple[str, ...]:
        """What the master is told."""
        return (
            f"--MgpuApp.lease={self.lease_s}",
            f"--MgpuApp.kill_grace={GRACE_S}",
            f"--MgpuApp.lease_margin={MARGIN_S}",
            "--MgpuApp.heartbeat_interval=0.5",
            "--MgpuApp.timeout=2",
            "--MgpuApp.default_policy=spread",
        )


SMALL = Size(lease_s=8.0, seconds=(1.0, 16.0), nodes=6, at_once=4)
FULL = Size(lease_s=20.0, seconds=(1.0, 10.0, 60.0), nodes=24, at_once=18)
FULL_FROM = 100


@dataclass(frozen=True)
class Place:
    """Where a job of one rank runs."""

    attempt: int
    node: str
    pid: int


@dataclass(frozen=True)
class Cut:
    """One node that is cut off."""

    seconds: float
    ways: tuple[str, ...]


def partition(directory: Path, times: int, rng: random.Random) -> Findings:
    """Cut nodes off, many at a time, for shorter and for longer than a lease."""
    size = SMALL if times < FULL_FROM else FULL
    gaps: list[float] = []
    same = again = 0
    with NodeStage(directory, rng, settings={"kill_grace_s": GRACE_S, "gang_limit_s": 60.0}) as stage:
        stage.warm_master(*size.traits)
        names = stage.join_nodes(size.nodes, GPUS)
        for number in range(size.at_once):
            stage.submit(f"job-{number}", FOREVER_S, gpus=GPUS)
        for cuts in _rounds(times, size):
            before = _wait_until_all_run(stage, size)
            if before is None:
                break
            jobs = dict(zip(rng.sample(sorted(before), len(cuts)), cuts, strict=True))
            _one_round(stage, size, {before[job].node: cut for job, cut in jobs.items()}, rng)
            stage.wait_online(names, SETTLE_S)
            after = _wait_until_all_run(stage, size)
            if after is None:
                break
            for job, cut in jobs.items():
                if _goes_on(stage, size, job, cut, before[job], after[job]):
                    same += 1
                else:
                    again += 1
            if moved := [job for job in before.keys() - jobs.keys() if before[job] != after[job]]:
                stage.problems.append(f"the jobs {moved} moved, and nobody had cut off their nodes")
        stage.cancel_all(60)
        stage.survey()
        history = read(stage.record)
        gaps = list(_gaps(history))
        kinds = sorted({f"{seconds:g} s" for seconds in size.seconds})
        figures: dict[str, object] = {
            "partitions": times,
            "lasting": kinds,
            "nodes": len(names),
            "lease_s": size.lease_s,
        }
        figures |= {"jobs_that_went_on": same, "jobs_that_ran_again": again}
        figures |= {"old_dead_before_new_s_least": round(min(gaps), 2) if gaps else None}
        return Findings(stage.judge(), figures)


def _rounds(times: int, size: Size) -> Iterator[list[Cut]]:
    """Yield what is cut at once: the same time for all, every direction as often."""
    ways = itertools.cycle(WAYS)
    share, rest = divmod(times, len(size.seconds))
    for number, seconds in enumerate(size.seconds):
        left = share + (number < rest)
        while left > 0:
            count = min(left, size.at_once)
            yield [Cut(seconds, next(ways)) for _ in range(count)]
            left -= count


def _one_round(stage: NodeStage, size: Size, cuts: dict[str, Cut], rng: random.Random) -> None:
    """Cut these nodes one soon after the other, and heal each after its time."""
    healed_at: list[tuple[float, str]] = []
    for node, cut in cuts.items():
        stage.write("fault", kind=LOST if cut.seconds > size.lease_s else "cut", node=node)
        stage.cut(node, cut.ways)
        healed_at.append((time.monotonic() + cut.seconds, node))
        time.sleep(rng.uniform(0.0, 0.05))
    for moment, node in healed_at:
        while time.monotonic() < moment:
            time.sleep(min(0.5, max(0.0, moment - time.monotonic())))
            stage.look()
        stage.heal(node, broken=rng.random() < BROKEN)


def _wait_until_all_run(stage: NodeStage, size: Size) -> dict[str, Place] | None:
    def all_run() -> dict[str, Place] | None:
        found = {job: Place(attempt, *ranks[0]) for job, (attempt, ranks) in stage.running().items()}
        return found if len(found) == size.at_once else None

    try:
        return wait_until(all_run, f"{size.at_once} jobs run", SETTLE_S, 0.1)
    except WaitedTooLong as error:
        stage.problems.append(f"{error}: {stage.job_states()} on {stage.node_states()}")
        return None


def _goes_on(stage: NodeStage, size: Size, job: str, cut: Cut, before: Place, after: Place) -> bool:
    """Tell whether a job went on; a problem if it should have and did not, or should not and did."""
    goes_on = before == after
    if goes_on != (cut.seconds < size.lease_s):
        how = f"cut off for {cut.seconds:g} s ({' and '.join(cut.ways)}) with a lease of {size.lease_s:g} s"
        stage.problems.append(f"the node of job {job} was {how}, and {before} became {after}")
    return goes_on


def _gaps(history: History) -> Iterator[float]:
    """Yield how long each attempt was dead before the next one began."""
    for runs in history.runs_of().values():
        ordered: list[Run] = sorted(runs, key=lambda run: run.attempt)
        for earlier, later in itertools.pairwise(ordered):
            yield later.started_at - earlier.seen_at


# --- row 6 -------------------------------------------------------------------------------------------

NODES = 6
MOST_CUT = 5
SHORT = Size(lease_s=3.0, seconds=(), nodes=NODES, at_once=MOST_CUT)


def cut_at_random(directory: Path, times: int, rng: random.Random) -> Findings:
    """Cut agents one by one and heal them in another order, with jobs of 0.1 to 2 s coming all the time; half
    of them are fenced.
    """
    choices = random.Random(rng.random())
    with NodeStage(directory, rng, settings={"kill_grace_s": GRACE_S, "gang_limit_s": 60.0}) as stage:
        stage.warm_master(*SHORT.traits)
        names = stage.join_nodes(NODES, 4)
        kept: set[str] = set()

        def submit(number: int) -> None:
            policy = choices.choice(["keep", "fence"])
            job = stage.submit(
                f"job-{number}",
                choices.uniform(0.1, 2.0),
                gpus=choices.choice([0, 1, 1, 2]),
                on_disconnect=policy,
            )
            if policy == "keep":
                kept.add(job)

        cut: list[str] = []
        with Busy(stage, submit, pause_s=0.2):
            for left in range(times, 0, -1):
                node = rng.choice([name for name in names if name not in cut])
                stage.cut(node, rng.choice(WAYS))
                cut.append(node)
                _bide(stage, cut, rng.uniform(0.2, 1.5))
                # Now and then all are healed, so that the queue gets through; the order has nothing to do
                # with that of the cuts.
                keep = 0 if rng.random() < 0.2 or left == 1 else rng.randint(0, MOST_CUT - 1)
                while len(cut) > keep:
                    stage.heal(cut.pop(rng.randrange(len(cut))), broken=rng.random() < BROKEN)
                    _bide(stage, cut, rng.uniform(0.0, 0.5))
        with contextlib.suppress(WaitedTooLong):
            stage.wait_online(names, SETTLE_S)
        stage.drain(DRAIN_S)
        stage.survey()
        history = read(stage.record)
        for job in sorted(kept & {run.job for run in history.runs if run.attempt > 1}):
            stage.problems.append(f"job {job} is to be kept, and ran again")
        if (states := set(stage.node_states().values())) != {"online"}:
            stage.problems.append(f"after all was healed nodes are {states}")
        figures: dict[str, object] = {
            "cuts": times,
            "nodes": NODES,
            "jobs": len(stage.acknowledged),
            "processes": len(history.runs),
        }
        return Findings(stage.judge(), figures | {"run_again": sum(run.attempt > 1 for run in history.runs)})


def _bide(stage: NodeStage, cut: list[str], seconds: float) -> None:
    """Let time pass, and write down which nodes are away: what runs there by then may be lost."""
    end = time.monotonic() + seconds
    while True:
        for node in cut:
            stage.write("fault", kind=LOST, node=node)
        if (left := end - time.monotonic()) <= 0:
            return
        time.sleep(min(0.25, left))


ROWS = (
    Row(5, "partition of 1, 10 and 60 s, one way, the other and both, then heal", 8, 1800, partition),
    Row(6, "random agents cut one by one, healed in random order", 5, 200, cut_at_random),
)
