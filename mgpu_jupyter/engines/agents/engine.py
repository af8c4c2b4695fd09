"""The parts of the agents' engine, wired together: the link and enrolment, which share what they know of
nodes. Opens nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor
from typing import NamedTuple

from mgpu_jupyter.engines.agents.connections import Connections
from mgpu_jupyter.engines.agents.enrolment import AgentsEnrolment
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.engines.agents.link import AgentsLink
from mgpu_jupyter.engines.agents.readings import Ailments, Readings
from mgpu_jupyter.master.node_link import FrameCarrier
from mgpu_jupyter.master.ports import OutputLog
from mgpu_jupyter.model.settings import LinkSettings


class Agents(NamedTuple):
    """Both ports of this engine, and the connections."""

    link: AgentsLink
    enrolment: AgentsEnrolment
    connections: Connections


def wire_agents(
    carrier: FrameCarrier,
    logs: OutputLog,
    records: Records,
    settings: LinkSettings,
    *,
    master_epoch: int,
    clock: Callable[[], float],
    port: int = 0,
    syncer: Executor | None = None,
    wall: Callable[[], float] = time.time,
) -> Agents:
    """Return the engine over a carrier that listens on `port`."""
    connections, readings, ailments = (
        Connections(clock, settings.timeout_s, settings.heartbeat_s),
        Readings(),
        Ailments(settings.health, clock, wall),
    )
    enrolment = AgentsEnrolment(
        carrier, records.bind, clock, port=port, connections=connections, known=(readings, ailments)
    )
    link = AgentsLink(
        carrier,
        logs,
        records,
        settings,
        enrolment=enrolment,
        connections=connections,
        readings=readings,
        ailments=ailments,
        master_epoch=master_epoch,
        clock=clock,
        syncer=syncer,
    )
    return Agents(link, enrolment, connections)
