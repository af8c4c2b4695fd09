"""Bodies of requests about jobs: submit, parse a line, change, cancel, replace. Values only."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.job import MAX_SCRIPT_CHARS, JobSpec, JobState

MAX_BULK = 10_000
MAX_WAITED = 100_000
"""How many jobs one request may wait for."""
MAX_KEY_CHARS = 200


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job is saved; it will not be lost. For an array, `job_id` and `state` are those of its first
    job.
    """

    job_id: JobId
    state: JobState
    array_id: str | None = None
    job_ids: tuple[JobId, ...] = ()
    """All jobs of the array, in the order of their numbers."""


class BulkItem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of a bulk, with its own idempotency key."""

    spec: JobSpec
    key: Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARS)] | None = None


class BulkSubmit(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Many jobs, accepted all or none."""

    jobs: Annotated[tuple[BulkItem, ...], Meta(min_length=1, max_length=MAX_BULK)]


class BulkSubmitted(msgspec.Struct, frozen=True, kw_only=True):
    """Their ids, in the order of the request."""

    jobs: tuple[Submitted, ...]


class WaitRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs to wait for."""

    job_ids: Annotated[tuple[JobId, ...], Meta(min_length=1, max_length=MAX_WAITED)]


class CancelAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job when it was cancelled; the end follows by itself."""

    job_id: JobId
    state: JobState
    """For an array: that of the least advanced job."""
    job_ids: tuple[JobId, ...] = ()
    """The jobs concerned, when an array was named."""


class JobChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of a job; what is left out stays."""

    priority: Annotated[int, Meta(ge=-1_000_000, le=1_000_000)] | None = None
    """For a waiting job."""
    time_limit_s: Annotated[float, Meta(gt=0, le=10 * 365 * 86_400)] | None = None
    """For a waiting or running job; only administrators may exceed what the partition or cluster allows."""
    hold: bool = False
    release: bool = False


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job after the order."""

    job_id: JobId
    state: JobState
    """For an array: that of the least advanced job."""
    job_ids: tuple[JobId, ...] = ()
    """The changed jobs, when an array was named."""


class ReplaceRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The changes of a waiting job's request."""

    patch: dict[str, Any]
    """Fields of the request to set, as an offer of `explain` names them; null removes one."""


MAX_LINE_CHARS = 20_000  # longer text belongs into a script


class LineRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line as typed or as a form shows it, and the body of its cell."""

    line: Annotated[str, Meta(max_length=MAX_LINE_CHARS)]
    """What follows `mgpu_srun`; the program or magic itself may be in front."""
    cell: Annotated[str, Meta(max_length=MAX_SCRIPT_CHARS)] | None = None
    """The body of a cell, in place of a command."""


class LineAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the line asks for. Nothing was submitted."""

    spec: JobSpec
    inputs: tuple[str, ...] = ()
    """Variables of a notebook that the cell is given: only its kernel has them."""
    background: bool = False
    """Whether it returns at once."""
