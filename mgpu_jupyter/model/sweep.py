"""Sweeps: an array whose jobs each have one combination of values. Job i of it has the i-th, the last name
varying fastest. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.waits import MAX_ARRAY, parse_array

VARIABLE = "SWEEP_"
"""A job finds the value of `lr` in `SWEEP_lr`."""


def size_of(sweep: Mapping[str, Sequence[str]]) -> int:
    """Return how many combinations there are."""
    return math.prod(len(values) for values in sweep.values())


def array_of(sweep: Mapping[str, Sequence[str]], throttle: str) -> str:
    """Return the array of a sweep; `throttle` is empty or like `%8`."""
    if throttle and not throttle.startswith("%"):
        raise InvalidRequest(
            "contradiction", "--sweep makes the array: leave --array out, or write --array %8 for 8 at once."
        )
    count = size_of(sweep)
    if count > MAX_ARRAY:
        raise InvalidRequest(
            "bad-sweep",
            f"--sweep has {count} combinations: at most {MAX_ARRAY} are taken; leave some values out.",
        )
    return f"0-{count - 1}{throttle}" if count > 1 else f"0{throttle}"


def check_sweep(spec: JobSpec) -> None:
    """Refuse a sweep whose array has jobs without a combination."""
    if not spec.sweep:
        return
    array = parse_array(spec.array)
    if array is None or array.indices[-1] >= size_of(spec.sweep):
        raise InvalidRequest(
            "bad-sweep",
            f"A sweep of {size_of(spec.sweep)} combinations needs an array of 0-{size_of(spec.sweep) - 1}.",
        )


def combination(sweep: Mapping[str, Sequence[str]], index: int) -> dict[str, str]:
    """Return the values of job `index`."""
    found: dict[str, str] = {}
    for name in reversed(list(sweep)):
        index, place = divmod(index, len(sweep[name]))
        found[name] = sweep[name][place]
    return {name: found[name] for name in sweep}


def words_of(spec: JobSpec, index: int | None) -> tuple[str, ...]:
    """Return the words of the command with `{name}` filled in; other braces stay as they are."""
    if not spec.sweep or index is None:
        return spec.command
    values = combination(spec.sweep, index)
    words = list(spec.command)
    for name, value in values.items():
        words = [word.replace(f"{{{name}}}", value) for word in words]
    return tuple(words)


def variables_of(spec: JobSpec, index: int | None) -> dict[str, str]:
    """Return the variables of a job's environment."""
    if not spec.sweep or index is None:
        return {}
    return {f"{VARIABLE}{name}": value for name, value in combination(spec.sweep, index).items()}
