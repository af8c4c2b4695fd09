"""`make bench-scheduler`: what a pass and an event cost the core at scale, beside a plain scan over jobs and
nodes, and how that grows.

All in one run on one thread: the core that the master runs, fed with the same events. No thresholds; the
table and the JSON say what was seen. The plain scan looks at each waiting job in order and takes the first
nodes that fit; it makes no promises.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import platform
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.events import JobSubmitted, NodeJoined, PassDue, TaskReported
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import facts, job_id

GPUS = 8
USERS = 50
NODES = (1, 1, 1, 1, 1, 1, 2, 2, 3, 4, 6, 8)
CPUS = (0, 0, 4, 8, 16)
"""What jobs ask for is drawn from these, with 1 to 8 GPUs on each node: some two hundred different wishes."""


class Load:
    """A cluster whose GPUs are all held, with so many jobs waiting."""

    def __init__(self, nodes: int, queued: int, seed: int) -> None:
        self.random = random.Random(seed)
        self.state = ClusterState()
        self.at = 1_000_000.0
        self.count = 0
        for number in range(nodes):
            name = f"node{number:05d}"
            self._tell(NodeJoined(at=self.at, node_id=NodeId(name), facts=facts(name, GPUS, cpus=128)))
        while self.state.pool.buckets[1:] and any(self.state.pool.buckets[1:]):
            self.submit(max(1, nodes // 4))
            self.schedule()
        self.submit(max(0, queued - len(self.state.queue)))
        self.schedule()

    def submit(self, count: int = 1) -> None:
        for _ in range(count):
            self.count += 1
            limit = 60.0 * round(math.exp(self.random.gauss(4.0, 1.5)) + 1)
            spec = JobSpec(
                command=("true",),
                nodes=self.random.choice(NODES),
                gpus_per_node=self.random.randint(1, GPUS),
                cpus=self.random.choice(CPUS),
                time_limit_s=limit,
            )
            user = f"user{self.random.randrange(USERS)}"
            self._tell(JobSubmitted(at=self.at, job_id=job_id(self.count), user=user, spec=spec))

    def schedule(self) -> float:
        started = time.perf_counter()
        self._tell(PassDue(at=self.at))
        return time.perf_counter() - started

    def end_one(self) -> None:
        """Let one that runs tell that it started, and then that it is over."""
        job = self.state.jobs[self.random.choice(list(self.state.pool.held))]
        for over in (None, self.at):
            for placement in job.placements:
                status = TaskStatus(
                    key=job.attempt_key,
                    rank=placement.rank,
                    node_id=placement.node_id,
                    host="h",
                    address="a",
                    pid=1,
                    started_at=self.at,
                    gpus=placement.gpus,
                    ended_at=over,
                    exit_code=None if over is None else 0,
                )
                self._tell(TaskReported(at=self.at, status=status))

    def _tell(self, event: Any) -> None:
        handle(self.state, event)


def measure(nodes: int, queued: int, rounds: int, seed: int = 1) -> dict[str, Any]:
    """Return what passes cost after an end, and after an arrival that changes nothing for the others, in
    milliseconds.
    """
    load = Load(nodes, queued, seed)
    passes, arrivals = [], []
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        load.at += 7.0
        load.end_one()
        passes.append(load.schedule())
        started = time.perf_counter()
        load.submit()
        load.schedule()
        arrivals.append(time.perf_counter() - started)
        load.submit(max(0, queued - len(load.state.queue)))
        load.schedule()
    gc.unfreeze()
    scan = plain_scan(load.state)
    return {
        "nodes": nodes,
        "gpus": nodes * GPUS,
        "queued": len(load.state.queue),
        "running": len(load.state.pool.held),
        "shapes": len(load.state.queue.lanes),
        "rounds": rounds,
        "pass_ms": _figures(passes),
        "event_ms": _figures(arrivals),
        "plain_scan_ms": round(scan * 1000, 3),
        "pass_to_plain_scan": round(statistics.median(passes) / scan, 4),
    }


def plain_scan(state: ClusterState) -> float:
    """Return the seconds that the simplest possible pass takes: every waiting job against every node."""
    free = [slot.free for slot in state.pool.slots.values()]
    wishes = [(entry.lane.shape.nodes, entry.lane.shape.groups[0].need.gpus) for entry in state.queue.order]
    started = time.perf_counter()
    for nodes, gpus in wishes:
        fitting = [index for index, number in enumerate(free) if number >= gpus]
        if len(fitting) >= nodes:
            for index in fitting[:nodes]:
                free[index] -= gpus
    return time.perf_counter() - started


def exponent(points: list[tuple[float, float]]) -> float:
    """Return the slope of a straight line through the logarithms: 1 means that twice the size costs twice the
    time.
    """
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - mean_x) ** 2 for x in xs
    )


def _figures(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(1000 * one for one in seconds)
    return {
        "median": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, math.ceil(0.99 * len(ordered)) - 1)], 3),
        "max": round(ordered[-1], 3),
    }


def main() -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench-scheduler")
    parser.add_argument("--small", action="store_true", help="a quick run that only shows that it works")
    parser.add_argument("--rounds", type=int, help="passes for each figure (default 300, small 20)")
    parser.add_argument("--out", type=Path, default=Path("bench-scheduler.json"))
    options = parser.parse_args()
    rounds = options.rounds or (20 if options.small else 300)
    sizes = [(1000, 1_000), (1000, 10_000), (1000, 100_000), (100, 10_000), (10_000, 10_000)]
    if options.small:
        sizes = [(100, 100), (100, 1_000), (400, 1_000)]
    rows = []
    print(
        f"{'nodes':>6} {'queued':>7} {'running':>7} {'pass p50':>9} {'p99':>8} {'event p50':>10} {'p99':>8} "
        f"{'plain scan':>11} {'ratio':>7}"
    )
    for nodes, queued in sizes:
        row = measure(nodes, queued, rounds)
        rows.append(row)
        print(
            f"{row['nodes']:>6} {row['queued']:>7} {row['running']:>7} {row['shapes']:>6}"
            f" {row['pass_ms']['median']:>9.2f} {row['pass_ms']['p99']:>8.2f}"
            f" {row['event_ms']['median']:>10.3f} {row['event_ms']['p99']:>8.3f} "
            f"{row['plain_scan_ms']:>11.1f}"
            f" {row['pass_to_plain_scan']:>7.3f}",
            flush=True,
        )
    by_queue = [(row["queued"], row["pass_ms"]["median"]) for row in rows if row["nodes"] == sizes[0][0]]
    by_nodes = [(row["nodes"], row["pass_ms"]["median"]) for row in rows if row["queued"] == sizes[1][1]]
    growth = {"queue": round(exponent(by_queue), 2), "nodes": round(exponent(by_nodes), 2)}
    print(
        f"Times in ms. A pass grows with the queue to the power {growth['queue']}, with the nodes to the "
        f"power {growth['nodes']}."
    )
    result = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "rows": rows,
        "exponents": growth,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"Written to {options.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
