"""What the link to agents needs of what is kept, handed to it at its start. Values."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_jupyter.engines.agents.folders import Read
from mgpu_jupyter.master.keeping import ResultKeeper
from mgpu_jupyter.master.shares import Shares
from mgpu_jupyter.model.limits import Limits


class Records(msgspec.Struct, frozen=True):
    """Binding a key (with the join key that it came by), who was given an attempt, and files."""

    bind: Callable[[NodeId, str, str | None], None]
    assigned_nodes: Callable[[AttemptKey], frozenset[NodeId]]
    read_piece: Read | None = None
    results: ResultKeeper | None = None
    limits: Limits = Limits()
    results_shares: Shares | None = None
    owner: Callable[[JobId], str] = lambda _: ""
