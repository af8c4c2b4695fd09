"""The settings of an agent, and the paths that follow from them. Reads nothing but the environment."""

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
    """Announced to peers; by default the address by which this machine reaches the master."""
    port: int = 0
    """Announced to peers; 0 for none."""
    fake_gpus: int | None = None
    gpu_count: int | None = None
    """Offer at most this many GPUs."""
    rack: str = ""
    switch: str = ""
    labels: dict[str, str] = {}
    is_embedded: bool = False
    again: tuple[str, ...] = ()
    """The command line that restarts the agent when it is killed; empty where it should stay away."""
    is_again: bool = False
    """Whether it was started in place of an agent that was killed."""
    run_as_user: bool = False
    """Whether jobs run as their users, which needs root."""
    user_map: dict[str, str] = {}
    """Accounts of mgpu users whose name on this machine differs."""
    scratch: Path | None = None
    """Where jobs of other accounts find cells and scratch directories; None for the default."""
    confinement: Confinement = Confinement()
    """The limits on processes of jobs that run as their users."""

    @property
    def directory(self) -> Path:
        """Return the directory in which this node keeps its state."""
        return self.state / "nodes" / self.node_id

    @property
    def passage(self) -> Path | None:
        """Return the directory that jobs of other users can reach; None when all run as the agent's own."""
        return (self.scratch or DEFAULT_SCRATCH) / self.node_id if self.run_as_user else None

    @property
    def is_master_local(self) -> bool:
        """Tell whether the master is on this machine, so that its runtime file can be read."""
        host = self.master_host
        return host is None or host in _LOCAL_HOSTS or host.startswith("127.") or host == host_name()
