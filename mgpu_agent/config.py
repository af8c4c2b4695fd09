"""What an agent is told at its start. Values and where they lead; reads nothing but the environment."""

from __future__ import annotations

from pathlib import Path

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.places import host_name
from mgpu_agent.run_as.account import Confinement

DEFAULT_SCRATCH = Path("/var/lib/mgpu-jobs")
_LOCAL_HOSTS = frozenset(("localhost", "::1", "0.0.0.0"))  # noqa: S104 - compared with, never bound


class AgentConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one agent."""

    node_id: NodeId
    state: Path
    master_host: str | None = None
    master_port: int | None = None
    address: str | None = None
    """Announced to peers; by default the one that reaches the master."""
    port: int = 0
    """Announced to peers; 0 for none."""
    fake_gpus: int | None = None
    gpu_count: int | None = None
    """Offer at most so many GPUs."""
    rack: str = ""
    switch: str = ""
    labels: dict[str, str] = {}
    is_embedded: bool = False
    run_as_user: bool = False
    """Whether jobs run as their users, which only root can see to."""
    user_map: dict[str, str] = {}
    """Users of mgpu whose account here has another name."""
    scratch: Path | None = None
    """Where users of their own find cells and scratch directories; None for the default."""
    confinement: Confinement = Confinement()
    """What processes of users are bound by where jobs run as them."""

    @property
    def directory(self) -> Path:
        """Return where this node keeps its state."""
        return self.state / "nodes" / self.node_id

    @property
    def passage(self) -> Path | None:
        """Return the directory that jobs of other users can get to; None when all run as the agent's own."""
        return (self.scratch or DEFAULT_SCRATCH) / self.node_id if self.run_as_user else None

    @property
    def is_master_local(self) -> bool:
        """Tell whether the master is on this machine, so that its runtime file can be read."""
        host = self.master_host
        return host is None or host in _LOCAL_HOSTS or host.startswith("127.") or host == host_name()
