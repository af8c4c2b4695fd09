"""What is known of a run: lines of the client (`told.jsonl`) and of the jobs (`witness/*.jsonl`). Reads and
orders; judges nothing.

All times are seconds since boot. A process is known to have lived from the tick in which the kernel started
it to the last line that it wrote; it may have lived longer, so what these lines contradict is certain,
whoever was killed when.

Lines of `told.jsonl`, each with `at`:
    settings      kill_grace_s, retries, retry_delays_s, gang_limit_s, starts_fail
    asked key, ranks, witness: a submit is about to be sent; `witness` says whether its command writes down
    its life acknowledged key, job
    state         job, state, attempt, exit_code: what the API said
    unknown       job: the API said that there is no such job
    fault kind, node, job: what the harness did to the cluster (`node-lost`), or to one job (`given-up`) alive
    job, pid: a process that bears the job's mark was seen
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FINAL = frozenset(("completed", "failed", "cancelled", "timeout"))
TOLD = "told.jsonl"
WITNESS = "witness"
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Settings:
    """What the cluster was told to do, as far as a rule depends on it."""

    kill_grace_s: float = 15.0
    retries: int = 0
    retry_delays_s: tuple[float, ...] = ()
    """At least this long between the end of an attempt and the start of its first, second … retry."""
    gang_limit_s: float = 30.0
    """Within this after one rank is gone the others are gone, too."""
    starts_fail: bool = False
    """Whether nodes were made to fail starts: then an attempt of which not all ranks began may be followed by
    another.
    """


@dataclass(frozen=True)
class Told:
    """A state of a job as the API gave it."""

    job: str
    state: str
    attempt: int
    exit_code: int | None
    at: float

    @property
    def is_final(self) -> bool:
        """Tell whether nothing may follow."""
        return self.state in FINAL


@dataclass(frozen=True)
class Run:
    """One process of a job, by its own words."""

    job: str
    attempt: int
    epoch: int
    rank: int
    ranks: int
    node: str
    host: str
    boot: str
    pid: int
    born: int
    gpus: tuple[str, ...]
    started_at: float
    seen_at: float
    """When it wrote its last line."""
    code: int | None = None
    """Its exit code; None if it never came to its end."""

    @property
    def name(self) -> str:
        """Say which process is meant."""
        return f"attempt {self.attempt} rank {self.rank} (pid {self.pid} on {self.node})"

    @property
    def ended_by_itself(self) -> bool:
        """Tell whether it ended by its own will."""
        return self.code is not None and self.code < 128


@dataclass(frozen=True)
class Fault:
    """What was done to the cluster."""

    kind: str
    node: str
    at: float
    job: str = ""
    """The one job that it was done to, if it was only one."""
    since: float | None = None
    """Before this it was not done: where nobody can tell when exactly it happened, `at` is when it had."""

    @property
    def began(self) -> float:
        """The first moment at which it may have been done."""
        return self.at if self.since is None else self.since


@dataclass(frozen=True)
class Seen:
    """A process of a job that was found among all processes."""

    job: str
    pid: int
    at: float


@dataclass
class History:
    """All of it."""

    settings: Settings = Settings()
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By idempotency key."""
    acknowledged: list[tuple[str, str, float]] = field(default_factory=list)
    """Key, job, time."""
    told: list[Told] = field(default_factory=list)
    unknown: list[tuple[str, float]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    alive: list[Seen] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def told_of(self) -> dict[str, list[Told]]:
        """Return what was told of each job, in order."""
        return _grouped(sorted(self.told, key=lambda told: told.at))

    def runs_of(self) -> dict[str, list[Run]]:
        """Return the processes of each job, in the order of their starts."""
        return _grouped(sorted(self.runs, key=lambda run: run.started_at))

    def finals(self) -> dict[str, Told]:
        """Return the first final state that was told of each job."""
        first: dict[str, Told] = {}
        for told in sorted(self.told, key=lambda told: told.at):
            if told.is_final:
                first.setdefault(told.job, told)
        return first

    def asked_for(self, job: str) -> dict[str, Any]:
        """Return what was asked for under the key of this job."""
        return next((self.asked.get(key, {}) for key, known, _ in self.acknowledged if known == job), {})

    def was_lost(self, run: Run, until: float = float("inf")) -> bool:
        """Tell whether this process was taken away after it began, and before `until`: with its node, or its
        job by order.
        """
        return any(
            run.started_at <= fault.at
            and fault.began < until
            and (
                (fault.kind == "node-lost" and fault.node == run.node)
                or (fault.kind == "given-up" and fault.job == run.job)
            )
            for fault in self.faults
        )

    def lacked_a_node(self, runs: list[Run], until: float) -> bool:
        """Tell whether ranks of this attempt never came to their first line, and a node was taken away about
        then.
        """
        if len({run.rank for run in runs}) == runs[0].ranks:
            return False
        first = min(run.started_at for run in runs) - self.settings.gang_limit_s
        return any(
            fault.kind == "node-lost" and first <= fault.at and fault.began < until for fault in self.faults
        )


def _grouped(items: list[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = defaultdict(list)
    for item in items:
        groups[item.job].append(item)
    return dict(groups)


def read(directory: Path) -> History:
    """Read the history in a directory."""
    history = History()
    for line in _lines(directory / TOLD):
        _take(history, line)
    for path in sorted((directory / WITNESS).glob("*.jsonl")):
        if (run := _run(_lines(path))) is not None:
            history.runs.append(run)
    return history


def append(directory: Path, what: str, at: float, **more: object) -> None:
    """Add one line to what the client was told; it is on disk when this returns."""
    line = (json.dumps({"what": what, "at": at, **more}) + "\n").encode()
    descriptor = os.open(directory / TOLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(descriptor, line)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _take(history: History, line: dict[str, Any]) -> None:
    what, at = line.pop("what"), line.pop("at")
    match what:
        case "settings":
            history.settings = Settings(**{**line, "retry_delays_s": tuple(line.get("retry_delays_s", ()))})
        case "asked":
            history.asked[line["key"]] = line
        case "acknowledged":
            history.acknowledged.append((line["key"], line["job"], at))
        case "state":
            history.told.append(Told(at=at, **line))
        case "unknown":
            history.unknown.append((line["job"], at))
        case "fault":
            history.faults.append(
                Fault(line["kind"], line.get("node", ""), at, line.get("job", ""), line.get("since"))
            )
        case "alive":
            history.alive.append(Seen(line["job"], line["pid"], at))
        case _:
            raise ValueError(f"A line of kind {what!r} means nothing here.")


def _run(lines: list[dict[str, Any]]) -> Run | None:
    """Return the process that wrote these lines; None if it was killed before its first was whole."""
    if not lines:
        return None
    start = lines[0]
    code = next((line["code"] for line in lines if line["what"] == "end"), None)
    names = ("job", "attempt", "epoch", "rank", "ranks", "node", "host", "boot", "pid", "born")
    values = {name: start[name] for name in names}
    # The kernel's tick comes before the first line, which an interpreter needs a while to come to.
    began = min(start["at"], (start["born"] + 1) / TICKS_PER_S)
    return Run(
        **values,
        gpus=tuple(start["gpus"]),
        started_at=began,
        seen_at=max(line["at"] for line in lines),
        code=code,
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines; a last one that was cut short by a kill is nobody's word."""
    if not path.exists():
        return []
    whole = path.read_text().split("\n")[:-1]
    return [json.loads(line) for line in whole]
