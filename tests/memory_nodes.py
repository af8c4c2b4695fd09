"""Nodes in memory: both ports of an engine without frames, keys or sockets, for tests of what stands on them.

`tests/contract/test_node_link.py` holds it to what the real link does.
"""

from __future__ import annotations

import threading
from collections import defaultdict

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.engines.agents.outgoing import message_of
from mgpu_jupyter.master.node_link import AskNode, Inbox, NodeAnswer
from mgpu_jupyter.scheduler.events import NodeJoined, NodeLeft, TaskReported

NOT_OURS = "192.0.2.9"
"""An address that this machine does not have."""


class MemoryNodes:
    """Plays `NodeLink` and `Enrolment`. What nodes do is told by `tell`, `read` and `answer`; what they were
    told is in `heard`.
    """

    def __init__(self):
        self.heard = defaultdict(list)
        """Messages by node, in their order."""
        self.inbox = Inbox()
        self.enrolled = set()
        self.refused = []
        """Nodes that said something after they were revoked."""
        self.is_closed = False
        self._woken = threading.Event()
        self._connected = {}
        self._waiting = []
        self._told_ends, self._ends = [], []
        self._hosts = {"127.0.0.1"}
        self._revoked = set()

    # --- what nodes do ------------------------------------------------------------------------------

    def tell(self, *events):
        """Let these come in; a node that joins is connected from then on."""
        for event in events:
            node_id = (
                event.status.node_id if isinstance(event, TaskReported) else getattr(event, "node_id", None)
            )
            if node_id in self._revoked:
                self.refused.append(node_id)
                continue
            if isinstance(event, NodeJoined):
                self._connected[node_id] = True
                self.enrolled.add(node_id)
                self._waiting = [(to, message) for to, message in self._waiting if to != node_id]
            elif isinstance(event, NodeLeft):
                self._connected.pop(node_id, None)
            self.inbox.events.append(event)
        self.wake()

    def read(self, node_id, reading):
        self.inbox.readings[node_id] = reading

    def answer(self, node_id, pong):
        self.inbox.answers.append(NodeAnswer(node_id, pong.number, pong))

    # --- the link -----------------------------------------------------------------------------------

    def wait(self, timeout_s):
        self._woken.wait(timeout_s)
        self._woken.clear()

    def wake(self):
        self._woken.set()

    def poll(self):
        inbox, self.inbox = self.inbox, Inbox()
        for event in inbox.events:
            told = (
                event.tasks
                if isinstance(event, NodeJoined)
                else (event.status,)
                if isinstance(event, TaskReported)
                else ()
            )
            self._told_ends += [status for status in told if status.ended_at is not None]
        return inbox

    def send(self, commands):
        for command in commands:
            if isinstance(command, AskNode) and command.node_id not in self._connected:
                self.inbox.answers.append(NodeAnswer(command.node_id, command.number, None))
                self.wake()
            else:
                self._waiting.append(message_of(command, lambda spec: spec, lambda key: str(key).encode()))

    def committed(self):
        self._ends += self._told_ends
        self._told_ends = []

    def flush(self):
        for status in self._ends:
            self._waiting.append((status.node_id, wire.Forget(keys=(status.key,), ranks=(status.rank,))))
        for node_id, message in self._waiting:
            if node_id in self._connected:
                self.heard[node_id].append(message)
        self._ends, self._waiting = [], []

    def resync(self):
        self._told_ends = []
        self._waiting += [(node_id, wire.Resync()) for node_id in self._connected]

    def close(self):
        self.flush()
        self._waiting += [(node_id, wire.Bye()) for node_id in self._connected]
        self.flush()
        self.is_closed = True
        return self.poll()

    # --- enrolment ----------------------------------------------------------------------------------

    def listen(self, host):
        if host == NOT_OURS:
            raise InvalidRequest("no-such-address", "no")
        is_new = host not in self._hosts
        self._hosts.add(host)
        return is_new

    def admit(self, key):
        pass

    def knows(self, node_id):
        return node_id in self.enrolled

    def revoke(self, node_id, reason):
        self._revoked.add(node_id)
        self._gone(node_id)

    def forget(self, node_id):
        self._gone(node_id)

    def _gone(self, node_id):
        self.enrolled.discard(node_id)
        self._connected.pop(node_id, None)
