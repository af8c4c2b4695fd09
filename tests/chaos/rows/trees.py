"""Row 9: cancel of jobs whose processes do not want to end."""

from __future__ import annotations

import contextlib
import itertools
import random
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.chaos.hostile import KINDS, born_at
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Stage
from tests.e2e.cluster import ROOT
from tests.processes import WaitedTooLong, wait_until

HOSTILE = ROOT / "tests" / "chaos" / "hostile.py"
GRACE_S = 1.0
MARGIN_S = 2.0
AT_ONCE = 4
TREE_LIMIT_S = 60.0
SLOW_MACHINE_S = 40.0
"""Signals to a thousand processes, and looking whether they are gone, take a while on a machine with other
work.
"""


def cancel_hostile_trees(directory: Path, times: int, rng: random.Random) -> Findings:
    """Cancel trees a few at a time; nothing of them may live longer than grace + 2 s, not even as a
    zombie.
    """
    kinds = list(itertools.islice(itertools.cycle(rng.sample(sorted(KINDS), len(KINDS))), times))
    limit_s = GRACE_S + MARGIN_S + (0.0 if times >= 500 else SLOW_MACHINE_S)
    took: dict[str, float] = {}
    processes = 0
    with Stage(directory, settings={"kill_grace_s": GRACE_S}) as stage:
        stage.warm_master(f"--MgpuApp.kill_grace={GRACE_S}")
        stage.start_nodes(2, AT_ONCE)
        numbers = itertools.count()
        for first in range(0, times, AT_ONCE):
            group = [_Tree(stage, kind, next(numbers), limit_s) for kind in kinds[first : first + AT_ONCE]]
            with ThreadPoolExecutor(AT_ONCE) as pool:
                for tree in group:
                    tree.wait_until_whole()
                # In any order, some while others are still dying.
                for tree in rng.sample(group, len(group)):
                    tree.cancel()
                    time.sleep(rng.uniform(0.0, 0.2))
                for tree, seconds in zip(group, pool.map(_Tree.wait_until_gone, group), strict=True):
                    took[tree.kind] = max(took.get(tree.kind, 0.0), round(seconds, 2))
                    processes += len(tree.processes())
        stage.drain(180)
        stage.survey()
        return Findings(
            stage.judge(),
            {"trees": times, "processes": processes, "gone_after_s_most": took, "grace_s": GRACE_S},
        )


class _Tree:
    def __init__(self, stage: Stage, kind: str, number: int, limit_s: float) -> None:
        self.kind = kind
        self._limit_s = limit_s
        self._stage = stage
        self._path = stage.record / f"tree-{number}"
        key = f"tree-{number}"
        stage.write("asked", key=key, witness=False)
        self._job = stage.client.submit(
            [sys.executable, "-IS", str(HOSTILE), kind, str(self._path)], gpus=1, name=key
        )
        stage.write("acknowledged", key=key, job=self._job.id)
        stage.acknowledged[key] = self._job.id
        self._from = 0.0

    def processes(self) -> list[tuple[int, int]]:
        """Return pid and start of every process that wrote itself down."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        return [(int(pid), int(born)) for pid, born in (line.split() for line in lines if line != "ready")]

    def wait_until_whole(self) -> None:
        """Wait until all its processes are there."""
        wait_until(
            lambda: "ready" in self._path.read_text().splitlines(),
            f"the tree of kind {self.kind} stands",
            TREE_LIMIT_S,
        )

    def cancel(self) -> None:
        """Ask for its end."""
        self._from = time.monotonic()
        self._job.cancel()

    def wait_until_gone(self) -> float:
        """Wait until no process of it is left, and return how long that took; a survivor is a problem."""
        with contextlib.suppress(WaitedTooLong):
            left_s = self._from + self._limit_s - time.monotonic()
            wait_until(lambda: not self._left(), f"the tree of kind {self.kind} is gone", max(left_s, 0.0))
        seconds = time.monotonic() - self._from
        if left := self._left():
            self._stage.problems.append(
                f"a tree of kind {self.kind} left {len(left)} processes after {seconds:.1f} s: {left[:5]}"
            )
        return seconds

    def _left(self) -> list[str]:
        left = []
        for pid, born in self.processes():
            with contextlib.suppress(OSError, IndexError):
                if born_at(pid) == born:
                    left.append(
                        f"{pid} ({Path(f'/proc/{pid}/stat').read_text().rpartition(')')[2].split()[0]})"
                    )
        return left


ROWS = (Row(9, "cancel of hostile trees", 20, 500, cancel_hostile_trees),)
