"""Random histories of nodes that are cut off and come back: what is fenced never runs twice at once, and a
gang starts whole or not at all.

The same world with fewer troubles: among all of them, a cut that lasts longer than a lease is rare.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from mgpu_agent.protocol.ids import NodeId
from tests.properties.agents import NODES
from tests.properties.test_world import World


class Partitions(World):
    """Cuts, late messages, restarts of masters and agents, reboots; nothing else goes wrong."""

    cancel = message_down = message_up = gpu_changes = operator_orders = node_leaves = (
        node_falls_silent_now
    ) = None  # type: ignore[assignment]

    @rule(
        nodes=st.sampled_from([1, 1, 2]),
        name=st.sampled_from(sorted(NODES)),
        before=st.integers(0, 2),
        steps=st.sampled_from([3, 10, 11, 12, 13, 14, 20]),
        fate=st.sampled_from(["stays away", "heals", "returns", "master restarts"]),
    )
    def node_is_cut_off(self, nodes: int, name: str, before: int, steps: int, fate: str) -> None:
        """While a job is being started or runs, for less or more than its lease."""
        for agent in self.agents.values():
            self.up += [(agent.id, agent.end(slot, self.at, exit_code=0)) for slot in list(agent.live)]
        self.time_passes(1)
        self.submit(1, nodes, "fence", exclusive=False)
        self.time_passes(before)
        self.cut.add(NodeId(name))
        self.time_passes(steps)
        if fate == "heals":
            self.cut.discard(NodeId(name))
        elif fate == "returns":
            self.node_returns(name, reboot=False)
        elif fate == "master restarts":
            self.master_restarts()
        self.time_passes(2)


TestPartitions = Partitions.TestCase
TestPartitions.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
