"""What the engine of agents is given at its start: settings, and what it needs of the store. Values."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_jupyter.engines.folders import Read
from mgpu_jupyter.master.keeping import ResultKeeper
from mgpu_jupyter.master.shares import Shares
from mgpu_jupyter.model.limits import Limits
from mgpu_jupyter.model.settings import Health


class LinkSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What agents are told when they join, and when silence counts."""

    cluster: str
    heartbeat_s: float = 2.0
    sample_s: float = 2.0
    timeout_s: float = 60.0
    output_window_bytes: int = 4 * 1024 * 1024
    health: Health = Health()


class Records(msgspec.Struct, frozen=True):
    """What the engine needs from the store: binding a key (with the join key that it came by), and who was given an attempt."""

    bind: Callable[[NodeId, str, str | None], None]
    assigned_nodes: Callable[[AttemptKey], frozenset[NodeId]]
    read_piece: Read | None = None
    results: ResultKeeper | None = None
    limits: Limits = Limits()
    results_shares: Shares | None = None
    owner: Callable[[JobId], str] = lambda _: ""
