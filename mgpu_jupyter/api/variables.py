"""Bodies about variables of cells: what a job left of them, and which Python it would find. Values only."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api.folders import Nearby
from mgpu_jupyter.model.job import JobState

MAX_WAIT_S = 2  # who wants to wait longer asks again: no proxy and no client gives up that soon
Path = Annotated[str, Meta(pattern=r"^[^\x00]+$(?!\n)", max_length=4096)]


class ValueFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank left, as one file: `GET jobs/{id}/result` brings it."""

    rank: int
    node: NodeId
    number: int
    size: int
    sha256: str
    problem: str = ""
    """Why it is not here; empty when it is, verified."""
    near: Nearby | None = None
    """Where it is on the server's machine, for the server's own user there."""


class ValueList(msgspec.Struct, frozen=True, kw_only=True):
    """What the newest attempt of a job left of variables."""

    job_id: JobId
    attempt: int
    state: JobState
    outputs: tuple[str, ...]
    """The names that it was asked for."""
    ranks: int
    complete: bool
    """True when nothing more is to come."""
    files: tuple[ValueFile, ...] = ()


class PythonQuestion(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which interpreter a cell wants, as in a request for a job."""

    python: Path | None = None
    kernel_python: Path | None = None
    kernel_python_version: Annotated[str, Meta(pattern=r"^\d+\.\d+$(?!\n)")] | None = None


class NodePython(msgspec.Struct, frozen=True, kw_only=True):
    """The interpreter that a cell would get on a node."""

    node: NodeId
    path: str
    version: str
    """`major.minor`."""


class PythonAnswers(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes answered; those that are away, did not answer soon, or have none are not here."""

    nodes: tuple[NodePython, ...] = ()
