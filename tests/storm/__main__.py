"""Run seeds: `python -m tests.storm --seeds 10000`. Exits with 1 when a rule was broken, and says how to see
that seed alone.

`--seed N` runs one and prints all that happened. Seeds are shared out to one process for each core.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter

from mgpu_agent.protocol.failpoints import NAMES
from tests.storm.cluster import Outcome, run

CHUNK = 5
SHOWN = 5


def main(words: list[str] | None = None) -> int:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m tests.storm")
    parser.add_argument("--seeds", type=int, default=300, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one")
    parser.add_argument("--seed", type=int, help="run this one alone and print what happened")
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    wanted = parser.parse_args(words)
    if wanted.seed is not None:
        return show(run(wanted.seed, keep_lines=True))
    return run_many(range(wanted.first, wanted.first + wanted.seeds), wanted.processes)


def show(outcome: Outcome) -> int:
    """Print one history."""
    print("\n".join(outcome.lines))
    print(
        f"seed {outcome.seed}: {outcome.jobs} jobs, {outcome.processes} processes, {outcome.seconds:.0f} s, "
        f"digest {outcome.digest}"
    )
    for violation in outcome.violations:
        print(f"  {violation}")
    return 1 if outcome.violations else 0


def _collect_seldom() -> None:
    """Look for garbage only now and then: a seed makes many objects and is over soon."""
    gc.freeze()
    gc.set_threshold(200_000, 50, 50)


def run_many(seeds: range, processes: int) -> int:
    """Run many seeds side by side and print a summary."""
    began, failed, said_at = time.monotonic(), 0, time.monotonic()
    total: Counter[str] = Counter()
    points: Counter[str] = Counter()
    with multiprocessing.get_context("fork").Pool(processes, _collect_seldom) as pool:
        for outcome in pool.imap_unordered(run, seeds, CHUNK):
            total.update(
                seeds=1,
                jobs=outcome.jobs,
                processes=outcome.processes,
                events=outcome.events,
                seconds=round(outcome.seconds),
            )
            points.update(outcome.points)
            if outcome.violations:
                failed += 1
                print(
                    f"seed {outcome.seed} failed; see it all with: .venv/bin/python -m tests.storm --seed "
                    f"{outcome.seed}"
                )
                for violation in outcome.violations[:SHOWN]:
                    print(f"  {violation}", flush=True)
            if time.monotonic() - said_at >= 10.0:
                said_at = time.monotonic()
                print(
                    f"{total['seeds']} of {len(seeds)} seeds, {failed} failed, {said_at - began:.0f} s",
                    flush=True,
                )
    hours = total["seconds"] / 3600
    print(
        f"{total['seeds']} seeds, {failed} failed: {total['jobs']} jobs, {total['processes']} processes, "
        f"{total['events']} events, "
        f"{hours:.1f} hours of virtual time in {time.monotonic() - began:.0f} s; {len(points)} of "
        f"{len(NAMES)} failpoints reached"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
