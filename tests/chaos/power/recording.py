"""One recording of a master and two nodes at work, stopped and started once in between: the trace, and what
the client was told.
"""

from __future__ import annotations

import json
import random
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.chaos.power.trace import Deed, build, read_trace
from tests.chaos.stage import Stage
from tests.checker.history import TOLD, WITNESS

NODES = ("n0", "n1")
GPUS = 4
GRACE_S = 2.0
TRAITS = (f"--MgpuApp.kill_grace={GRACE_S}",)
CANCELLED = 0.2
BOOT_BEFORE, BOOT_AFTER = "before the cut", "after the cut"
DRAIN_S = 60.0


class PowerStage(Stage):
    """A stage whose keepers have a boot id of the test's own; with a trace, all that programs do to the disk
    is recorded.
    """

    def __init__(
        self,
        directory: Path,
        library: Path,
        boot: str,
        trace: Path | None = None,
        ports: tuple[int, int] | None = None,
    ) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._preload = {"LD_PRELOAD": str(library), "MGPU_TEST_BOOT": str(directory / "boot_id")}
        (directory / "boot_id").write_text(boot + "\n")
        if trace is not None:
            self._preload |= {
                "MGPU_TEST_TRACE": str(trace),
                "MGPU_TEST_ROOT": str(directory / "cluster" / "state"),
            }
        super().__init__(directory, settings={"kill_grace_s": GRACE_S})
        self._warmed_by: Stage | None = None
        if ports is not None:
            self.port, self._link_port = ports

    def share_warmth(self, other: Stage) -> None:
        """Have masters forked by the parent that another stage started and will end."""
        self._warmed_by = other
        self._warm = other._warm

    def cool_down(self) -> None:
        """End the parent of masters, if it is this stage's own."""
        if self._warmed_by is None:
            super().cool_down()

    @property
    def env(self) -> dict[str, str]:
        """The environment of every program."""
        return super().env | self._preload

    @property
    def ports(self) -> tuple[int, int]:
        """Where the master listens: addresses are kept in its database."""
        return self.port, self._link_port


@dataclass(frozen=True)
class Recording:
    """What was recorded."""

    library: Path
    deeds: list[Deed]
    record: Path
    """Where the jobs write down their lives, those that run again after a cut as well."""
    saved: Path
    """The record of the whole run."""
    told: list[dict[str, Any]]
    ports: tuple[int, int]


def make_recording(directory: Path, jobs: int, rng: random.Random) -> Recording:
    """Run `jobs` jobs, half of them before the master is stopped and started, and return what happened."""
    directory.mkdir(parents=True)
    library, trace = build(directory), directory / "trace"
    with PowerStage(directory / "stage", library, BOOT_BEFORE, trace) as stage:
        stage.warm_master(*TRAITS)
        for node in NODES:
            stage.fork_node(node, GPUS)
        _submit_some(stage, range(jobs // 2), rng)
        stage.wait_until(
            lambda: set(stage.node_states().values()) == {"online"} or None, "all nodes are online", DRAIN_S
        )
        stage.stop("master")
        stage.warm_master(*TRAITS)
        _submit_some(stage, range(jobs // 2, jobs), rng)
        stage.drain(DRAIN_S)
        problems = stage.judge()
        assert problems == [], problems
        record, ports = stage.record, stage.ports
    saved = record.rename(directory / "saved")
    told = [json.loads(line) for line in (saved / TOLD).read_text().splitlines()]
    return Recording(library, read_trace(trace), record, saved, told, ports)


def _submit_some(stage: Stage, numbers: range, rng: random.Random) -> None:
    """Submit from several sides, cancel some, look at all of them meanwhile."""
    wishes = {
        number: {
            "seconds": rng.uniform(0.05, 0.4),
            "code": rng.choice([0, 0, 0, 3]),
            "gpus": 0 if number % 8 == 5 else rng.choice([0, 1, 1, 2]),
            "nodes": 2 if number % 8 == 5 else 1,
            "wait_for_nodes": True,  # with one node known and the other on its way, two would be refused
        }
        for number in numbers
    }
    cancelled = {number for number in numbers if rng.random() < CANCELLED}

    def submit(mine: range) -> None:
        for number in mine:
            job = stage.submit(f"job-{number}", **wishes[number])
            if number in cancelled:
                stage.client.cancel(job)

    threads = [threading.Thread(target=submit, args=(numbers[side::2],)) for side in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        stage.look()
        time.sleep(0.05)
    for thread in threads:
        thread.join()
    stage.look()


def cut_record(recording: Recording, at: float, acknowledged: dict[str, float]) -> None:
    """Bring the checker's record back to a moment; what was answered by then counts as told, read or not."""
    target = recording.record
    shutil.rmtree(target, ignore_errors=True)
    (target / WITNESS).mkdir(parents=True)
    lines = [line for line in recording.told if line["at"] <= at and line["what"] != "acknowledged"]
    keys = {line["job"]: line["key"] for line in recording.told if line["what"] == "acknowledged"}
    lines += [
        {"what": "acknowledged", "at": when, "key": keys[job], "job": job}
        for job, when in acknowledged.items()
    ]
    with (target / TOLD).open("a") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    for path in (recording.saved / WITNESS).iterdir():
        kept = [line for line in path.read_text().splitlines() if json.loads(line)["at"] <= at]
        if kept:
            (target / WITNESS / path.name).write_text("\n".join(kept) + "\n")
