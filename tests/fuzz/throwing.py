"""Throwing: so many frames by so many processes, and what came of it. A round that breaks something is kept
with the way to run it alone.

A worker throws rounds: each learns true messages from its target, throws mutants of them, and now and then
looks whether the target is well. Memory is compared between the middle and the end of a worker's part, by
when all that grows to a bound has grown.
"""

from __future__ import annotations

import faulthandler
import gc
import logging
import multiprocessing
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS

FRAMES = 10_000_000
ROUND = 500
WELL_EVERY = 20
HANG_S = 120.0
GROWTH_BYTES = 32_000_000
SHARES = {"master": 0.4, "agent": 0.3, "keeper": 0.3}
KEPT = Path("fuzz-failures")


@dataclass(frozen=True)
class Part:
    """What one worker did to one target."""

    target: str
    seed: int
    frames: int
    seconds: float
    """Of processor time: others may use the machine too."""
    grown: int
    """Bytes, from the middle to the end."""
    failure: str = ""

    @property
    def is_well(self) -> bool:
        """Whether nothing broke and memory is flat."""
        return not self.failure and self.grown < GROWTH_BYTES


def throw(name: str, seed: int, frames: int) -> Part:
    """Throw so many frames at a new target."""
    began = time.process_time()
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    target = TARGETS[name](seed)
    mutator = Mutator(seed, target.envelope)
    thrown, rounds, middle = 0, 0, 0
    batch: list[bytes] = []
    try:
        while thrown < frames:
            faulthandler.dump_traceback_later(HANG_S, exit=True)
            mutator.learn(target.true_ones())
            batch = mutator.frames(min(ROUND, frames - thrown))
            target.feed(batch)
            thrown += len(batch)
            rounds += 1
            if rounds % WELL_EVERY == 0:
                target.is_well()
            if not middle and thrown >= frames // 2:
                middle = _resident()
        target.is_well()
    except Exception:  # that is what is looked for
        return Part(
            name,
            seed,
            thrown,
            time.process_time() - began,
            0,
            _keep(name, seed, thrown, batch) + traceback.format_exc(),
        )
    finally:
        faulthandler.cancel_dump_traceback_later()
        target.close()
        logging.disable(level)  # last: what the target replaced, it puts back as it was disabled here
    return Part(name, seed, thrown, time.process_time() - began, _resident() - middle)


def _resident() -> int:
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def _keep(name: str, seed: int, thrown: int, batch: list[bytes]) -> str:
    KEPT.mkdir(exist_ok=True)
    path = KEPT / f"{name}-{seed}-{thrown}.hex"
    path.write_text("".join(frame.hex() + "\n" for frame in batch))
    return (
        f"{name} broke after {thrown} frames of seed {seed}. Its round is in {path}; these frames alone: "
        f"python -m tests.fuzz --only {name} --replay {path}; all that led there: "
        f"python -m tests.fuzz --only {name} --first {seed} --frames {thrown + ROUND} --processes 1\n"
    )


def replay(name: str, path: Path, seed: int) -> None:
    """Throw the frames of a file one at a time at a new target and say at which it breaks."""
    target = TARGETS[name](seed)
    for number, line in enumerate(path.read_text().splitlines()):
        print(number, line[:200], flush=True)
        target.feed([bytes.fromhex(line)])
    target.is_well()
    target.close()
    print("It holds.")


def run(frames: int, first: int, processes: int, only: str | None) -> list[Part]:
    """Share the frames out among targets and processes, and wait for all."""
    shares = {only: 1.0} if only else SHARES
    orders = [
        (name, first + worker, max(1, round(frames * share / processes)))
        for name, share in shares.items()
        for worker in range(processes)
    ]
    parts: list[Part] = []
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
        for done in as_completed([pool.submit(throw, *order) for order in orders]):
            part = done.result()  # a worker that hung has ended itself, with a traceback
            parts.append(part)
            rate = part.frames / part.seconds
            print(
                f"{part.target:<7} seed {part.seed:<3} {part.frames:>10,} frames in {part.seconds:6.1f} CPU "
                f"s ({rate:8,.0f}/s), "
                f"memory {part.grown / 1e6:+.1f} MB in the second half: "
                f"{'well' if part.is_well else 'BROKEN'}",
                flush=True,
            )
            if part.failure:
                print(part.failure, flush=True)
    return parts
