"""Values of a meeting, in which the nodes of an attempt find out how they reach each other before it
starts.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from mgpu_agent.protocol.bounds import SEVERAL, Line, Name
from mgpu_agent.protocol.ids import NodeId


class Way(msgspec.Struct, frozen=True, array_like=True):
    """An address by which a node may be reached."""

    address: Name
    interface: Name = ""
    """The node's own interface that has it; empty for one that is only announced."""


class MeetingPoint(msgspec.Struct, frozen=True, kw_only=True):
    """What a node brings to a meeting."""

    ways: Annotated[tuple[Way, ...], Meta(max_length=SEVERAL)] = ()
    """Best first."""
    port: int = 0
    """The port on which it waits for the others."""
    master_port: int = 0
    """Reserved for rank 0 of this attempt; 0 on other nodes."""


class Peer(msgspec.Struct, frozen=True, kw_only=True):
    """Another node of the attempt, and where it waits."""

    node_id: NodeId
    ways: tuple[Way, ...]
    port: int


class Reached(msgspec.Struct, frozen=True, array_like=True):
    """A way by which a peer was reached."""

    node_id: NodeId
    address: Name


class Unreached(msgspec.Struct, frozen=True, array_like=True):
    """A way by which a peer was not reached, and why."""

    node_id: NodeId
    address: Name
    why: Line


class Fingerprint(msgspec.Struct, frozen=True, kw_only=True):
    """What a job finds on a node; empty for what is missing."""

    python: Name = ""
    torch: Name = ""
    driver: Name = ""
