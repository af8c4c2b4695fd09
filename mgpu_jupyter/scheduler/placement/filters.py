"""Why a node cannot serve a unit: checks that mean *never* (no change of load can help), then checks that
mean *not now*.

Each check has a code and says in words what is missing. The first that fails is the answer; the order is that
of the tables.
"""

from __future__ import annotations

from collections.abc import Callable, Container

import msgspec

from mgpu_agent.protocol.wording import count, exact, size
from mgpu_jupyter.model.constraint import holds
from mgpu_jupyter.model.units import Need
from mgpu_jupyter.scheduler.placement.shape import Rules
from mgpu_jupyter.scheduler.placement.slots import Slot

NAMED = "named"


class Exclusion(msgspec.Struct, frozen=True):
    """The first check that a node fails, and what is missing."""

    code: str
    text: str


def never(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> Exclusion | None:
    """Return why this node could not serve the need even if nobody else used it."""
    for code, check in NEVER:
        text = check(slot, need, rules, homes)
        if text:
            return Exclusion(code, text)
    return None


def is_fit(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> bool:
    """Tell whether a node of this kind could serve the need, whatever its name: all of `never` but the checks
    of names.
    """
    return not any(check(slot, need, rules, homes) for code, check in NEVER if code != NAMED)


def not_now(slot: Slot, need: Need, rules: Rules) -> Exclusion | None:
    """Return why a node that could serve the need cannot do so at this moment; ignores promises."""
    for code, check in NOT_NOW:
        text = check(slot, need, rules)
        if text:
            return Exclusion(code, text)
    return None


def room(slot: Slot, need: Need, rules: Rules) -> int:
    """Return the free GPUs that would do, as bits, or -1 when there are too few or something else is missing:
    a fast `not_now`.
    """
    if not slot.up or need.cpus > slot.free_cpus or need.mem_bytes > slot.free_mem:
        return -1
    if slot.holds and (need.exclusive or slot.seats <= 0):
        return -1
    mask = slot.free_mask
    if rules.gpu_type or rules.gpu_mem_bytes:
        mask &= slot.eligible(rules.gpu_type, rules.gpu_mem_bytes)
    if need.gpu_ids:
        wanted = slot.mask_of(need.gpu_ids)
        return wanted if wanted & mask == wanted else -1
    return mask if mask.bit_count() >= need.gpus else -1


# --- never ---------------------------------------------------------------------------------------


def _named(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:
    if slot.id in rules.exclude:
        return "It is excluded by --exclude."
    if rules.nodelist and slot.id not in rules.nodelist:
        return "It is not in --nodelist."
    if need.node is not None and slot.id != need.node:
        return f"This part is for {need.node} only."
    if rules.home and rules.home in homes and slot.host != rules.home:
        return f"--gpu-ids without a node means GPUs of {rules.home}, where this was submitted."
    return ""


def _partition(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:  # noqa: ARG001 - a check like the others
    return (
        f"It is not in the partition {rules.partition}."
        if rules.partition and rules.partition not in slot.partitions
        else ""
    )


def _permission(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:  # noqa: ARG001 - a check like the others
    if not slot.lists or not rules.user or slot.lists.admit(rules.user, rules.account):
        return ""
    account = f" under the account {rules.account}" if rules.account else ""
    return f"{rules.user}{account} may not use it: ask an administrator to allow it."


def _arch(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:  # noqa: ARG001 - a check like the others
    return f"It is {slot.arch}, not {need.arch}." if need.arch and need.arch != slot.arch else ""


def _constraint(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:  # noqa: ARG001 - a check like the others
    if rules.constraint is None or holds(rules.constraint, slot.labels):
        return ""
    labels = ", ".join(f"{name}={value}" if value else name for name, value in sorted(slot.labels.items()))
    return f"Its labels ({labels or 'none'}) do not satisfy --constraint."


def _needed(number: int) -> str:
    return f"{number} {'is' if number == 1 else 'are'} needed"


def _kind_of_gpu(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:  # noqa: ARG001 - a check like the others
    if not need.gpus or not (rules.gpu_type or rules.gpu_mem_bytes) or need.gpus > len(slot.gpus):
        return ""
    has = slot.eligible(rules.gpu_type, rules.gpu_mem_bytes).bit_count()
    if has >= need.gpus:
        return ""
    kind = f" {rules.gpu_type.upper()}" if rules.gpu_type else ""
    memory = f" with {exact(rules.gpu_mem_bytes)}" if rules.gpu_mem_bytes else ""
    return f"It has {count(has, f'{kind.strip()} GPU'.strip())}{memory}, {_needed(need.gpus)}."


def _size(slot: Slot, need: Need, rules: Rules, homes: Container[str]) -> str:  # noqa: ARG001 - a check like the others
    if need.gpus > len(slot.gpus):
        return f"It has {count(len(slot.gpus), 'GPU')}, {_needed(need.gpus)}."
    missing = [index for index in need.gpu_ids if not slot.mask_of((index,))]
    if missing:
        return f"It has no GPU {missing[0]}."
    if need.cpus > slot.cpus:
        return f"It has {count(slot.cpus, 'CPU')}, {_needed(need.cpus)}."
    return (
        f"It has {size(slot.mem_bytes)} of memory, {exact(need.mem_bytes)} are needed."
        if need.mem_bytes > slot.mem_bytes
        else ""
    )


NEVER: tuple[tuple[str, Callable[[Slot, Need, Rules, Container[str]], str]], ...] = (
    (NAMED, _named),
    ("partition", _partition),
    ("permission", _permission),
    ("arch", _arch),
    ("constraint", _constraint),
    ("gpu-kind", _kind_of_gpu),
    ("size", _size),
)


# --- not now -------------------------------------------------------------------------------------


def _state(slot: Slot, need: Need, rules: Rules) -> str:  # noqa: ARG001 - a check like the others
    return "" if slot.up else f"It is {slot.state}."


def _exclusive(slot: Slot, need: Need, rules: Rules) -> str:  # noqa: ARG001 - a check like the others
    if slot.seats <= 0:
        alone = next(job_id for job_id, hold in slot.holds.items() if hold.seats > 1)
        return f"It runs job {alone}, which has it to itself by --exclusive."
    if not need.exclusive or not slot.holds:
        return ""
    first = next(iter(slot.holds))
    more = f" and {len(slot.holds) - 1} more" if len(slot.holds) > 1 else ""
    return f"It runs job {first}{more} and --exclusive needs it empty."


def _exact(slot: Slot, need: Need, rules: Rules) -> str:  # noqa: ARG001 - a check like the others
    taken = [index for index in need.gpu_ids if not slot.mask_of((index,)) & slot.free_mask]
    return _busy_gpu(slot, taken[0]) if taken else ""


def _gpus(slot: Slot, need: Need, rules: Rules) -> str:
    free = slot.free_mask & slot.eligible(rules.gpu_type, rules.gpu_mem_bytes)
    if need.gpu_ids or free.bit_count() >= need.gpus:
        return ""
    out = [_busy_gpu(slot, index) for index in slot.blocked if not slot.free_mask & slot.mask_of((index,))]
    more = f" {out[0]}" if out else ""
    return f"{count(free.bit_count(), 'GPU')} free, {need.gpus} needed.{more}"


def _cpus(slot: Slot, need: Need, rules: Rules) -> str:  # noqa: ARG001 - a check like the others
    return f"{count(slot.free_cpus, 'CPU')} free, {need.cpus} needed." if need.cpus > slot.free_cpus else ""


def _memory(slot: Slot, need: Need, rules: Rules) -> str:  # noqa: ARG001 - a check like the others
    if need.mem_bytes <= slot.free_mem:
        return ""
    return f"{size(slot.free_mem)} of memory free, {exact(need.mem_bytes)} needed."


NOT_NOW: tuple[tuple[str, Callable[[Slot, Need, Rules], str]], ...] = (
    ("state", _state),
    ("exclusive", _exclusive),
    ("exact-gpus", _exact),
    ("gpus", _gpus),
    ("cpus", _cpus),
    ("memory", _memory),
)


def _busy_gpu(slot: Slot, index: int) -> str:
    bit = slot.mask_of((index,))
    holder = next((job_id for job_id, hold in slot.holds.items() if hold.mask & bit), None)
    if holder is not None:
        return f"GPU {index} is held by job {holder}."
    return f"GPU {index}: {slot.blocked[index]}"
