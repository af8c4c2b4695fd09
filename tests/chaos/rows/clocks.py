"""Row 10: the wall clock of master, agent and keeper jumps while jobs run and wait."""

from __future__ import annotations

import contextlib
import itertools
import random
import shutil
import struct
import subprocess
import time
from functools import partial
from pathlib import Path
from typing import Any

from tests.chaos.result import Findings, Row
from tests.chaos.stage import Stage
from tests.checker.history import read
from tests.e2e.cluster import ROOT
from tests.processes import WaitedTooLong, wait_until

SOURCE = ROOT / "tests" / "chaos" / "clock.c"
JUMPS_S = (3_600, -3_600, 86_400, -86_400)
NODES = 2
LIMIT_S = 1.5
SLOW_S = 30.0
"""Signals and reports of a machine with other work come late; an end before its time is what this row is
about.
"""
GRACE_S = 1.0
LIMITED, FREE = "limited", "free"


def can_preload() -> bool:
    """Tell whether the clock can be built."""
    return shutil.which("gcc") is not None


class Clock:
    """The offset that all programs of a stage add to the time of day."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._file = directory / "offset"
        self.library = directory / "clock.so"
        self._seconds = 0
        self._slept = 0
        self.jump(0)
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", str(self.library), str(SOURCE), "-ldl"], check=True
        )

    @property
    def env(self) -> dict[str, str]:
        """What programs need to see this clock."""
        return {"LD_PRELOAD": str(self.library), "MGPU_TEST_CLOCK": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Set the clock, in one write."""
        self._seconds += seconds
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("=2q", self._seconds * 1_000_000_000, self._slept * 1_000_000_000))

    def sleep(self, seconds: int) -> None:
        """Let the machine sleep: the time of day and the time since boot go on, what programs wait for does
        not.
        """
        self._slept += seconds
        self.jump(seconds)


class ClockStage(Stage):
    """A stage whose programs have a clock of their own."""

    def __init__(self, directory: Path, clock: Clock, **more: Any) -> None:
        self._clock = clock
        super().__init__(directory, **more)

    @property
    def env(self) -> dict[str, str]:
        """The environment of every program."""
        return super().env | self._clock.env


def jump(directory: Path, times: int, rng: random.Random) -> Findings:
    """Jump with jobs running, and start more afterwards; each ends when it should, in its first attempt."""
    jumps = list(itertools.islice(itertools.cycle(rng.sample(JUMPS_S, len(JUMPS_S))), times))
    clock = Clock(directory / "clock")
    with ClockStage(directory, clock, settings={"kill_grace_s": GRACE_S}) as stage:
        stage.warm_master(f"--MgpuApp.kill_grace={GRACE_S}", "--MgpuApp.timeout=10")
        stage.start_nodes(NODES, 4)
        for number, seconds in enumerate(jumps):
            pair = _submit_pair(stage, f"{number}-before")
            wait_until(partial(_have_begun, stage, pair), "both jobs run", 30)
            clock.jump(seconds)
            _submit_pair(stage, f"{number}-after")
            time.sleep(0.3)
            stage.look()
            states = stage.node_states()
            if set(states.values()) != {"online"}:
                stage.problems.append(f"after a jump of {seconds} s nodes are {states}")
            with contextlib.suppress(WaitedTooLong):
                wait_until(
                    lambda: not _active(stage), "all four jobs are over", LIMIT_S + GRACE_S + 4 * SLOW_S
                )
            stage.drain(1.0)
        longest = _judge(stage)
        stage.survey()
        figures = {
            "jumps": len(jumps),
            "jobs": len(stage.acknowledged),
            "limit_s": LIMIT_S,
            "ended_by_limit_after_s": longest,
        }
        return Findings(stage.judge(), figures)


def _submit_pair(stage: Stage, name: str) -> set[str]:
    limited = stage.submit(f"{LIMITED}-{name}", 120.0, gpus=1, time_limit=LIMIT_S)
    return {limited, stage.submit(f"{FREE}-{name}", 1.0, gpus=1, time_limit=60.0)}


def _have_begun(stage: Stage, jobs: set[str]) -> bool:
    return jobs <= {path.name.partition(".")[0] for path in stage.witness.iterdir()}


def _active(stage: Stage) -> bool:
    stage.look()
    return bool(list(stage.client.jobs(state="active", limit=1)))


def _judge(stage: Stage) -> list[float]:
    """Note every job that did not end as it should; return the shortest and the longest life under the
    limit.
    """
    history = read(stage.record)
    finals = history.finals()
    lives: list[float] = []
    for key, job in stage.acknowledged.items():
        final = finals.get(job)
        told = "nothing" if final is None else f"{final.state} in attempt {final.attempt}"
        wanted = "timeout in attempt 1" if key.startswith(LIMITED) else "completed in attempt 1"
        if told != wanted:
            stage.problems.append(f"{key} was to be {wanted}, and was {told}")
        lives += [
            round(run.seen_at - run.started_at, 2)
            for run in history.runs
            if run.job == job and key.startswith(LIMITED)
        ]
    for life in lives:
        if not LIMIT_S - 0.2 <= life <= LIMIT_S + GRACE_S + SLOW_S:
            stage.problems.append(f"a job with a limit of {LIMIT_S} s lived for {life} s")
    return [min(lives, default=0.0), max(lives, default=0.0)]


ROWS = (Row(10, "clock jumps of ±1 h and ±1 day", 4, 80, jump),)
