"""The one place where a command becomes a message to an agent. Sends nothing, decides nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_jupyter.master.node_link import AskNode, NodeCommand, PassInput
from mgpu_jupyter.scheduler.commands import LaunchTask, MeetTask, PrepareTask, ProbeNode, StartTask, StopTask, WarnTask


def message_of(  # noqa: PLR0911 - one case per command
    command: NodeCommand, complete: Callable[[LaunchSpec], LaunchSpec], secret_of: Callable[[AttemptKey], bytes]
) -> tuple[NodeId, wire.ToAgent]:
    """Return whom to tell what; `complete` adds to a launch what only the link knows, nodes that meet share the secret of their attempt."""
    match command:
        case LaunchTask(spec):
            reach("master.launch")
            return spec.node_id, wire.Launch(spec=complete(spec))
        case PrepareTask(spec, hold_s, meets):
            reach("master.prepare")
            return spec.node_id, wire.Prepare(spec=complete(spec), hold_s=hold_s, meets=meets)
        case MeetTask(node_id, key, peers, limit_s):
            reach("master.meet")
            return node_id, wire.Meet(key=key, secret=secret_of(key), peers=peers, limit_s=limit_s)
        case StartTask(node_id, key, other):
            reach("master.start")
            return node_id, wire.Start(key=key, spec=other and complete(other))
        case StopTask(node_id, key, grace_s, reason, cause):
            reach("master.stop")
            return node_id, wire.Stop(key=key, grace_s=grace_s, reason=reason, cause=cause)
        case WarnTask(node_id, key, signal, serial):
            reach("master.warn")
            return node_id, wire.Warn(key=key, signal=signal, serial=serial)
        case ProbeNode(node_id, number):
            reach("master.probe")
            return node_id, wire.Probe(number=number)
        case PassInput(node_id, message):
            reach("master.input")
            return node_id, message
        case AskNode(node_id, number, about, cell):
            reach("master.ping")
            return node_id, wire.Ping(number=number, key=about, cell=cell)
        case _:  # pragma: no cover - mypy proves that this cannot be reached
            assert_never(command)
