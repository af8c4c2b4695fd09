"""Wording about jobs, GPUs and times, the same in shells and notebooks. Pure."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mgpu_agent.protocol import wording
from mgpu_agent.protocol.text import printable, width
from mgpu_jupyter.api import models
from mgpu_jupyter.model.job import JobState

SIGNAL_BASE = 128
FALLBACK_EXIT = {JobState.FAILED: 1, JobState.CANCELLED: 130, JobState.TIMEOUT: 124}
NOT_ITS_OWN_FAULT = frozenset(("gpu-lost",))  # the reason tells more than the signal that ended it
duration, size, span = wording.duration, wording.size, wording.span


def moment(at: float, now: float) -> str:
    """Return a time of day, with the day when it is not today."""
    then = time.localtime(at)
    return time.strftime(
        "%H:%M" if abs(at - now) < wording.DAY / 2 or then[:3] == time.localtime(now)[:3] else "%d %b %H:%M",
        then,
    )


def lowered(sentence: str) -> str:
    """Return a sentence as a part of another: `Waits for 4 GPUs.` becomes `waits for 4 GPUs`."""
    start = sentence[:1].lower() if sentence[1:2].islower() else sentence[:1]
    return f"{start}{sentence[1:]}".rstrip(".")


def gpu_count(count: int, *, simulated: bool = False) -> str:
    """Return `1 GPU`, `4 simulated GPUs` or `no GPU`."""
    return (
        "no GPU"
        if count == 0
        else f"{count} {'simulated ' if simulated else ''}GPU{'' if count == 1 else 's'}"
    )


def ordinal(number: int) -> str:
    """Return 1st, 2nd, 3rd, 4th."""
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def numbers(indices: Sequence[int]) -> str:
    """Return sorted numbers as ranges: 1-3,7."""
    runs: list[list[int]] = []
    for index in indices:
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    shown = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ",".join(shown) if len(shown) <= 4 else f"{','.join(shown[:3])},…,{shown[-1]}"


def names(nodes: Sequence[str]) -> str:
    """Return the names of nodes, the first few of many."""
    return printable(
        ", ".join(nodes) if len(nodes) <= 4 else f"{', '.join(nodes[:3])} and {len(nodes) - 3} more"
    )


def memory(used_bytes: int | None, total_bytes: int) -> str:
    """Return `57.1 of 80 GiB`, or the whole when nobody knows what is used."""
    return size(total_bytes) if used_bytes is None else " of ".join(wording.used_of(used_bytes, total_bytes))


def holder(gpu: models.Gpu) -> str:
    """Return who has a GPU, or why it is not handed out."""
    if gpu.job_id:
        has = f"{gpu.job_id}{f' of {gpu.user}' if gpu.user else ''}"
        return f"{has}, {gpu.state}: {gpu.reason}" if gpu.reason else has
    return gpu.state if not gpu.reason else f"{gpu.state}: {gpu.reason}"


def gpu_name(gpu: models.Gpu) -> str:
    """Return the name of a GPU, with a note if it is simulated."""
    return f"{gpu.name} (simulated)" if gpu.simulated else gpu.name


def middle(text: str, room: int) -> str:
    """Return text in this many columns; what has no room is left out of its middle."""
    if width(text) <= room:
        return text
    head, tail, taken = "", "", 1
    for at in range(len(text)):
        one = text[at // 2] if at % 2 == 0 else text[-(at // 2) - 1]
        taken += width(one)
        if taken > room:
            break
        head, tail = (head + one, tail) if at % 2 == 0 else (head, one + tail)
    return f"{head}…{tail}"


def ran_for(job: models.Job) -> float:
    """Return how long the job ran, or 0 if it never started."""
    return job.ended_at - job.started_at if job.started_at is not None and job.ended_at is not None else 0.0


def waiting(job: models.Job) -> str:
    """Return what a queued job waits for, as one line."""
    place = f", {ordinal(job.place)} in queue" if job.place else ""
    return f"mgpu {job.id} waiting{place}{': ' + job.reason if job.reason else ''}"


def exit_status(job: models.Job) -> int:
    """Return the exit code for a shell: the job's own, 128+signal, and never 0 for a job that did not
    complete.
    """
    code = job.exit_code
    if code is None:
        signals = [placement.signal for placement in job.placements if placement.signal]
        code = SIGNAL_BASE + signals[0] if signals else 0
    if code < 0:
        code = SIGNAL_BASE - code
    return code or FALLBACK_EXIT.get(job.state, 0)


def first_to_fail(job: models.Job) -> models.Placement | None:
    """Return the rank that failed first."""
    bad = [placement for placement in job.placements if placement.signal or placement.exit_code]
    return min(bad, key=lambda placement: (placement.ended_at or float("inf"), placement.rank), default=None)


def ending(job: models.Job, *, by_you: bool = False) -> str:
    """Return how a job ended, as one sentence without its id."""
    where = f" on {names(job.nodes)}" if job.nodes else ""
    span = duration(ran_for(job))
    match job.state:
        case JobState.COMPLETED:
            gpus = gpu_count(job.gpus, simulated=any(placement.simulated for placement in job.placements))
            return f"Done in {span}{where}, {gpus}, exit {job.exit_code or 0}"
        case JobState.CANCELLED:
            when = f" after {span}" if job.started_at else " before it started"
            return f"Cancelled{' by you' if by_you else ''}{when}{where}"
        case JobState.TIMEOUT:
            limit = f" {duration(job.time_limit_s)}" if job.time_limit_s else ""
            return f"Time limit{limit} reached{where}"
        case JobState.FAILED:
            return _failure(job, span, where)
        case _:
            return f"{job.state.value.capitalize()}{where}"


def cause(job: models.Job) -> str:
    """Return what a job failed of, where the rest is said already: `exit code 3 on gpu-01`; of one that did
    not fail, how it ended.
    """
    culprit = first_to_fail(job)
    if job.state is not JobState.FAILED:
        return ending(job)
    if culprit is None or job.reason_code in NOT_ITS_OWN_FAULT:
        return job.reason.rstrip(".") or ending(job)
    if len(job.placements) == 1:
        return f"{_how(culprit)} on {culprit.node}"
    return f"rank {culprit.rank} on {culprit.node} ended first, {_how(culprit)}"


def _how(one: models.Placement) -> str:
    return f"killed by signal {one.signal}" if one.signal else f"exit code {one.exit_code}"


def _failure(job: models.Job, span: str, where: str) -> str:
    culprit = first_to_fail(job)
    if culprit is not None and job.reason_code not in NOT_ITS_OWN_FAULT:
        who = f"rank {culprit.rank} on {culprit.node}" if len(job.placements) > 1 else f"on {culprit.node}"
        first = " ended first" if len(job.placements) > 1 else ""
        return f"Failed after {span}: {who}{first}, {_how(culprit)}"
    code = "" if job.exit_code is None else f", exit code {job.exit_code}"
    return f"Failed{where}{code}{': ' + job.reason.rstrip('.') if job.reason else ''}"
