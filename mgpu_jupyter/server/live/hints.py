"""One sentence about how a job used its GPUs: what it did not need, or which GPU delays the others. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_jupyter.api.histories import GpuUsage, JobUsage

IDLE_PERCENT = 5.0
LEAST_READINGS = 5
"""Before that there is no hint: a job that loads its data is idle, too."""
SLOW_SHARE = 0.75
BUSY_PERCENT = 50.0


def is_idle(busy_max: float | None, readings: int) -> bool:
    """Tell whether a GPU was never really busy."""
    return busy_max is not None and busy_max < IDLE_PERCENT and readings >= LEAST_READINGS


def hint_of(usage: JobUsage) -> str:
    """Return a hint about what would have been enough, or an empty string."""
    gpus = [gpu for gpu in usage.gpus if gpu.busy_mean is not None]
    if usage.readings < LEAST_READINGS or not gpus:
        return ""
    idle = [gpu for gpu in gpus if gpu.idle]
    is_over = usage.state.is_final
    if idle:
        return _unused(gpus, idle, is_over=is_over)
    return _held_up(gpus, is_over=is_over)


def _unused(gpus: Sequence[GpuUsage], idle: Sequence[GpuUsage], *, is_over: bool) -> str:
    were = ("was" if len(idle) == 1 else "were") if is_over else ("is" if len(idle) == 1 else "are")
    done = "would have done" if is_over else "would do"
    so_far = "" if is_over else " so far"
    nodes = list(dict.fromkeys(gpu.node for gpu in gpus))
    left = len(gpus) - len(idle)
    if left == 0:
        what = "Its GPU" if len(idle) == 1 else f"All {len(idle)} GPUs"
        return f"{what} {were} idle{so_far}. --gpus 0 {done}."
    if len(nodes) == 1:
        return f"{_named(idle)} {were} idle{so_far}. --gpus {left} {done}."
    by_node = [(node, [gpu for gpu in idle if gpu.node == node]) for node in nodes]
    parts = [f"{_named(few)} on {node}" for node, few in by_node if few]
    whole = [node for node, few in by_node if len(few) == sum(gpu.node == node for gpu in gpus)]
    sentence = f"{_listed(parts)} {were} idle{so_far}."
    if sum(len(few) for node, few in by_node if node in whole) == len(idle):
        sentence += f" --nodes {len(nodes) - len(whole)} {done}."
    return sentence


def _held_up(gpus: Sequence[GpuUsage], *, is_over: bool) -> str:
    """Name the one GPU that is much less busy than all others: these wait for it."""
    if len(gpus) < 2:
        return ""
    order = sorted(gpus, key=lambda gpu: gpu.busy_mean or 0.0)
    slow, rest = order[0], order[1].busy_mean or 0.0
    mean = slow.busy_mean or 0.0
    if rest < BUSY_PERCENT or mean >= SLOW_SHARE * rest:
        return ""
    rank = f" (rank {slow.rank})" if slow.rank is not None else ""
    others = "the other" if len(gpus) == 2 else f"the other {_number(len(gpus) - 1)}"
    verbs = ("was", "held") if is_over else ("is", "holds")
    return (
        f"GPU {slow.index} on {slow.node}{rank} {verbs[0]} busy {mean:.0f} % of the time and {verbs[1]} "
        f"up {others}."
    )


def _named(gpus: Sequence[GpuUsage]) -> str:
    numbers = [str(gpu.index) for gpu in gpus]
    return f"GPU {numbers[0]}" if len(numbers) == 1 else f"GPUs {_listed(numbers)}"


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


_NUMBERS = (
    "none",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
)


def _number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)
