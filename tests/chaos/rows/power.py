"""Row 13: the power goes off. One run is recorded; at each point the disks are rebuilt without what was not
synced, and all starts on it.

At every point the master's whole service and every keeper's ledger are started in this process, by their own
code. At every `FULL_EVERY`-th point master, agents and keepers start as processes too, run all that is left,
and the ten rules judge both lives.
"""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from mgpu_agent.protocol.errors import MgpuError
from tests.chaos.power.disk import Disk, Survives
from tests.chaos.power.facts import Facts
from tests.chaos.power.recording import (
    BOOT_AFTER,
    BOOT_BEFORE,
    DRAIN_S,
    GPUS,
    NODES,
    TRAITS,
    PowerStage,
    Recording,
    cut_record,
    make_recording,
)
from tests.chaos.power.starts import answered_too_early, start_ledgers, start_master
from tests.chaos.power.trace import SEND, SYNC, Deed
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Stage
from tests.checker.history import FINAL, WITNESS, read

JOBS = 64
SMALL, FULL = 200, 5_000
FULL_EVERY = 25  # in the small size half as often
LOST = "node-lost"


@dataclass(frozen=True)
class Point:
    """Where the power goes off, and what is left of what was not synced."""

    number: int
    index: int
    """So many deeds were done."""
    share: float
    """Of the changes that were not synced so many survive: 0 for none, 1 for a machine that only lost its
    programs.
    """
    victim: str
    """Whose power goes off: `all`, `master`, `nodes`; programs of the others are killed, and their disks keep
    all.
    """


def cut_power(directory: Path, points: int, rng: random.Random) -> Findings:
    """Record once; cut at `points` points."""
    recording = make_recording(directory / "recording", JOBS, rng)
    chosen = _choose(recording.deeds, points, rng)
    every = FULL_EVERY if points > SMALL else 2 * FULL_EVERY
    disk, facts = Disk(), Facts()
    violations: list[str] = []
    full = done = answers = 0
    with (
        tempfile.TemporaryDirectory(prefix="mgpu-power-", dir=_fast()) as fast,
        Stage(directory / "warm") as warm,
    ):
        warm.warm_up()
        for point in chosen:
            for deed in recording.deeds[done : point.index]:
                answers += _do(disk, facts, deed, Path(fast) / "answered", violations)
            done = point.index
            seed = rng.random()
            found = _start_here(recording, disk, facts, point, Path(fast) / str(point.number), seed)
            if point.number % every == every // 2:
                full += 1
                found += _start_all(
                    recording, disk, facts, point, directory / f"point-{point.number}", seed, warm
                )
            violations += [
                f"point {point.number} ({point.victim}, {point.share:.1f}, deed {point.index}): {sentence}"
                for sentence in found
            ]
        for deed in recording.deeds[done:]:
            answers += _do(disk, facts, deed, Path(fast) / "answered", violations)
    sends = sum(deed.op == SEND for deed in recording.deeds)
    if not _is_caught(recording, rng, directory):
        violations.append("a disk that loses what was synced goes unnoticed")
    figures = {
        "points": points,
        "full_starts": full,
        "deeds": len(recording.deeds),
        "sends": sends,
        "answers_checked": answers,
        "jobs": len(facts.acknowledged),
    }
    return Findings(violations, figures)


def _do(disk: Disk, facts: Facts, deed: Deed, target: Path, violations: list[str]) -> bool:
    """Carry out a deed; if it is an answer that promises something, look whether that is safe already, and
    tell that it is one.
    """
    disk.do(deed)
    before = len(facts.acknowledged) + len(facts.cancelled)
    facts.take(deed)
    if len(facts.acknowledged) + len(facts.cancelled) == before:
        return False
    disk.image(target, lambda: False, random.Random(0))
    violations += answered_too_early(target, facts)
    shutil.rmtree(target)
    return True


def _is_caught(recording: Recording, rng: random.Random, directory: Path) -> bool:
    """Tell whether a master that forgets to sync its log would be found out."""
    disk, facts = Disk(), Facts()
    for deed in recording.deeds:
        facts.take(deed)
        if not (deed.op == SYNC and deed.path.endswith("-wal")):
            disk.do(deed)
        if len(facts.acknowledged) == JOBS // 4:
            break
    point = Point(0, 1, 0.0, "master")
    return bool(_start_here(recording, disk, facts, point, directory / "unsynced", rng.random()))


def _fast() -> str | None:
    """Return where files cost least: these disks are thrown away at once, and nothing of them is ever cut off
    from power.
    """
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _choose(deeds: list[Deed], points: int, rng: random.Random) -> list[Point]:
    """Half of the points are right before a byte leaves for somebody who could see it: what it says must be
    safe by then.
    """
    sends = [index for index, deed in enumerate(deeds, start=1) if deed.op == SEND and deed.data]
    indices = sorted(
        [*rng.choices(sends, k=points // 2), *rng.choices(range(1, len(deeds) + 1), k=points - points // 2)]
    )
    return [
        Point(number, index, rng.choice([0.0, 0.0, 0.5, 0.9]), rng.choice(["all", "master", "nodes"]))
        for number, index in enumerate(indices)
    ]


def _rebuild(disk: Disk, point: Point, target: Path, seed: float) -> None:
    """Write the disks of master and nodes as the cut leaves them."""
    rng = random.Random(seed)
    share = point.share

    def some() -> bool:
        return share > 0 and rng.random() < share

    def every() -> bool:
        return True

    master: Survives = some if point.victim in ("all", "master") else every
    nodes: Survives = some if point.victim in ("all", "nodes") else every
    disk.image(target, master, rng)
    if point.victim != "all":  # they share no machine, and so no directory
        shutil.rmtree(target / "nodes", ignore_errors=True)
        (target / "nodes").mkdir(mode=0o700)
        for node in NODES:
            disk.image(target / "nodes" / node, nodes, rng, f"nodes/{node}")


def _start_here(
    recording: Recording, disk: Disk, facts: Facts, point: Point, target: Path, seed: float
) -> list[str]:
    _rebuild(disk, point, target, seed)
    at = recording.deeds[point.index - 1].at
    finals = {
        line["job"]: (line["state"], line["attempt"], line["exit_code"])
        for line in recording.told
        if line["what"] == "state" and line["state"] in FINAL and line["at"] <= at
    }
    found = start_master(target, facts, finals)
    found += start_ledgers(target, facts) if point.victim != "master" else []
    shutil.rmtree(target)
    return found


def _start_all(
    recording: Recording, disk: Disk, facts: Facts, point: Point, directory: Path, seed: float, warm: Stage
) -> list[str]:
    """Start everything as processes, submit again what was not answered, and judge the two lives as one."""
    at = recording.deeds[point.index - 1].at
    boot = BOOT_BEFORE if point.victim == "master" else BOOT_AFTER
    with PowerStage(directory, recording.library, boot, ports=recording.ports) as stage:
        stage.share_warmth(warm)
        stage.record, stage.witness = recording.record, recording.record / WITNESS
        cut_record(recording, at, facts.acknowledged)
        _rebuild(disk, point, stage.state, seed)
        before = max((epoch for _, _, epoch in facts.launched), default=0)
        for node in NODES:
            stage.write("fault", kind=LOST, node=node)
        began = time.clock_gettime(time.CLOCK_BOOTTIME)
        stage.warm_master(*TRAITS)
        for node in NODES:
            stage.fork_node(node, GPUS)
        history = read(stage.record)
        stage.acknowledged.update({key: job for key, job, _ in history.acknowledged})
        for key, asked in history.asked.items():
            if key not in stage.acknowledged:
                with contextlib.suppress(MgpuError):
                    stage.submit(
                        key,
                        0.1,
                        gpus=0 if asked["ranks"] > 1 else 1,
                        nodes=asked["ranks"],
                        wait_for_nodes=True,
                    )
        stage.drain(DRAIN_S)
        stage.survey()
        problems = stage.judge()
        if point.victim != "master":
            late = [run for run in read(stage.record).runs if run.started_at > began and run.epoch <= before]
            problems += [
                f"job {run.job}: {run.name} was launched before the boot and ran after it" for run in late
            ]
        return problems


ROWS = (Row(13, "power cut: all that was not synced may be gone", SMALL, FULL, cut_power),)
