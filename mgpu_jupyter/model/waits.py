"""When a request may start and how many jobs it makes: dependencies and arrays, from text to values. Pure."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import JOB_ID_ALPHABET, JOB_ID_LENGTH

MAX_ARRAY = 10_000
_JOB_ID = re.compile(f"[{JOB_ID_ALPHABET}]{{{JOB_ID_LENGTH}}}")
_RANGE = re.compile(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?", re.ASCII)


class After(StrEnum):
    """What must have happened to the other job."""

    STARTED = "after"
    ANY = "afterany"
    OK = "afterok"
    NOT_OK = "afternotok"


class Dependency(msgspec.Struct, frozen=True):
    """Wait for one other job, or for all of one array."""

    kind: After
    job_id: str


class Array(msgspec.Struct, frozen=True):
    """The numbers of an array, and how many of it may run at once (0 for all)."""

    indices: tuple[int, ...]
    throttle: int = 0


def parse_dependency(text: str) -> tuple[Dependency, ...]:
    """Read `afterok:ID:ID,afterany:ID`; all of them must hold."""
    found: dict[Dependency, None] = {}
    for clause in filter(None, (part.strip() for part in text.split(","))):
        kind, *ids = clause.split(":")
        if kind not in list(After):
            raise InvalidRequest(
                "bad-dependency",
                f"--dependency {clause}: begin it with {', '.join(After)}, as in afterok:ABCD1234.",
            )
        ids = [one.strip().upper() for one in ids]
        if not ids or not all(_JOB_ID.fullmatch(one) for one in ids):
            raise InvalidRequest(
                "bad-dependency", f"--dependency {clause}: name jobs by their ids, as in {kind}:ABCD1234."
            )
        found |= dict.fromkeys(Dependency(After(kind), one) for one in ids)
    return tuple(found)


def parse_array(text: str) -> Array | None:
    """Read `1-100%8`, `0,3,7` or `0-20:5`; None for an empty text."""
    if not text:
        return None
    ranges, percent, throttle = text.partition("%")
    if percent and not (throttle.isascii() and throttle.isdecimal() and int(throttle) > 0):
        raise InvalidRequest(
            "bad-array", f"--array {text}: after % write how many may run at once, as in 1-100%8."
        )
    indices: list[int] = []
    for part in ranges.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise InvalidRequest(
                "bad-array", f"--array {text}: write numbers and ranges, as in 1-100, 0,3,7 or 0-20:5%4."
            )
        first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if last < first:
            raise InvalidRequest(
                "bad-array", f"--array {text}: {part} is an empty range; write the smaller number first."
            )
        if step < 1:
            raise InvalidRequest("bad-array", f"--array {text}: {part} has a step of 0; write 1 or more.")
        if len(indices) + (last - first) // step >= MAX_ARRAY:
            raise InvalidRequest(
                "bad-array", f"--array {text}: at most {MAX_ARRAY} jobs in one array; submit it in parts."
            )
        indices += range(first, last + 1, step)
    return Array(tuple(sorted(set(indices))), int(throttle or 0))
