"""Everything that plays the link to nodes, each with nodes at its other end: over ZeroMQ, over a carrier in
memory, and nodes in memory.

A node is driven by what it does (`join`, `report` …), and what it was told is read by `heard`; the suite
knows nothing of frames.
"""

from __future__ import annotations

import time
from collections import defaultdict

import zmq

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.codec import decode_to_agent, encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.node_link import Inbox, Incoming, NewestReading
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler.events import NodeJoined, NodeLeft, TaskReported
from mgpu_jupyter.scheduler.model import Load
from mgpu_jupyter.store.logs import LogWriter
from mgpu_jupyter.transport.router import Router
from tests.builders import Cluster, facts
from tests.engines.world import FakeCarrier
from tests.memory_nodes import MemoryNodes

AT = 50.0
EPOCH = 3
LIMIT_S = 60.0


class Nodes:
    """What all have in common: one job that was given to n1, and a link that is looked at until something
    came.
    """

    link = None
    enrolment = None
    is_over = False
    """A test closed the link by itself."""

    def __init__(self):
        self.job = Cluster(("n1", 2)).started()
        self.seen = Inbox()

    def poll_until(self, is_there):
        """Look until `is_there` holds of all that came since it last did; return that."""
        end = time.monotonic() + LIMIT_S
        while True:
            inbox = self.link.poll()
            for name in ("events", "marks", "typed", "answers"):
                getattr(self.seen, name).extend(getattr(inbox, name))
            self.seen.grown |= inbox.grown
            self.seen.readings |= inbox.readings
            if is_there(self.seen):
                seen, self.seen = self.seen, Inbox()
                return seen
            assert time.monotonic() < end, f"it did not come in time: {self.seen}"
            self.link.wait(0.02)

    def heard_until(self, name, is_there):
        """Let what waits leave, and read what this node was told until `is_there` holds of it."""
        end = time.monotonic() + LIMIT_S
        messages = []
        while not is_there(messages):
            assert time.monotonic() < end, f"{name} did not hear it in time: {messages}"
            self.link.flush()
            messages += self.heard(name)
        return messages

    def join(self, name, *tasks):
        """Have a node join; return the events that came of it, with its greetings read."""
        self.say_hello(name, tasks)
        return self.poll_until(
            lambda seen: any(isinstance(event, NodeJoined) for event in seen.events)
        ).events


class FrameNodes(Nodes):
    """Agents that speak frames; how these travel is left open."""

    def _open(self, carrier, root, port=0):
        assigned = {self.job.attempt_key: frozenset({NodeId("n1")})}
        records = Records(lambda *_: None, lambda key: assigned.get(key, frozenset()))
        link = LinkSettings(cluster="test")
        agents = wire_agents(
            carrier,
            LogWriter(root),
            records,
            link,
            master_epoch=EPOCH,
            clock=lambda: AT,
            port=port,
            wall=lambda: AT,
        )
        self.link, self.enrolment = agents.link, agents.enrolment

    def say_hello(self, name, tasks=()):
        self.enrol(name)
        self.tell(name, wire.Hello(node_id=NodeId(name), facts=facts(name), tasks=tasks))

    def join(self, name, *tasks):
        events = super().join(name, *tasks)
        self.heard_until(name, lambda messages: any(isinstance(message, wire.Check) for message in messages))
        return events

    def report(self, status):
        self.tell(status.node_id, wire.TaskReport(status=status))

    def leave(self, name):
        self.tell(name, wire.Leave(reason="stopped"))

    def read(self, name, samples, cpu_percent):
        self.tell(name, wire.Heartbeat(at=AT, samples=samples, cpu_percent=cpu_percent))

    def answer(self, name, pong):
        self.tell(name, pong)

    def acknowledge(self, name, ack):
        self.tell(name, ack)

    def print_out(self, name, data):
        self.tell(name, wire.Output(key=self.job.attempt_key, rank=0, stream=1, offset=0, data=data))

    def is_refused(self, name):
        self.link.flush()
        return any(isinstance(message, wire.Refuse) for message in self.heard(name))


class ZmqNodes(FrameNodes):
    """The real link: a ROUTER with CURVE, and a connection for each node."""

    def __init__(self, root):
        super().__init__()
        self._public, secret = (key.decode() for key in zmq.curve_keypair())
        self._router = Router(public_key=self._public, secret_key=secret)
        self._port = self._router.bind("127.0.0.1", 0)
        self._context = zmq.Context()
        self._sockets = {}
        self._open(self._router, root, self._port)

    def enrol(self, name):
        if name in self._sockets:
            return
        public, secret = zmq.curve_keypair()
        self._router.allow(public.decode(), name)
        socket = self._sockets[name] = self._context.socket(zmq.DEALER)
        socket.linger = 0
        socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = (
            public,
            secret,
            self._public.encode(),
        )
        socket.connect(f"tcp://127.0.0.1:{self._port}")

    def tell(self, name, *messages):
        self._sockets[name].send_multipart([encode(message, EPOCH) for message in messages])

    def heard(self, name):
        messages = []
        while self._sockets[name].poll(20):
            messages += [decode_to_agent(frame)[1] for frame in self._sockets[name].recv_multipart()]
        return messages

    def close(self):
        for socket in self._sockets.values():
            socket.close()
        self._context.term()


class CarriedNodes(FrameNodes):
    """The same link over a carrier without sockets, as tests of the engine use it."""

    def __init__(self, root):
        super().__init__()
        self._carrier = FakeCarrier([])
        self._open(self._carrier, root)

    def enrol(self, name):
        self._carrier.allow(f"{name:k<40}", name)

    def tell(self, name, *messages):
        frames = [memoryview(encode(message, EPOCH)) for message in messages]
        self._carrier.incoming.append(
            Incoming(name, name.encode(), frames, self._carrier.forbidden.get(name, ""))
        )

    def heard(self, name):
        own = [message for route, _, message in self._carrier.sent if route == name.encode()]
        self._carrier.sent = [sent for sent in self._carrier.sent if sent[0] != name.encode()]
        return own

    def close(self):
        pass


class NodesInMemory(Nodes):
    """No frames at all, as tests of the master use it."""

    def __init__(self, _root):
        super().__init__()
        self.link = self.enrolment = self._nodes = MemoryNodes()
        self._read = defaultdict(int)

    def say_hello(self, name, tasks=()):
        self._nodes.tell(NodeJoined(at=AT, node_id=NodeId(name), facts=facts(name), tasks=tasks))

    def report(self, status):
        self._nodes.tell(TaskReported(at=AT, status=status))

    def leave(self, name):
        self._nodes.tell(NodeLeft(at=AT, node_id=NodeId(name), reason="stopped"))

    def read(self, name, samples, cpu_percent):
        busy = [sample.utilisation_percent for sample in samples]
        self._nodes.read(
            NodeId(name),
            NewestReading(
                samples=samples, load=Load(gpu_percent=sum(busy) / len(busy), cpu_percent=cpu_percent)
            ),
        )

    def answer(self, name, pong):
        self._nodes.answer(NodeId(name), pong)

    def acknowledge(self, _name, ack):
        self._nodes.inbox.typed.append(ack)

    def print_out(self, _name, _data):
        self._nodes.inbox.grown.add(self.job.id)

    def is_refused(self, name):
        return name in self._nodes.refused

    def heard(self, name):
        new = self._nodes.heard[name][self._read[name] :]
        self._read[name] += len(new)
        return new

    def close(self):
        pass


LINKS = {"zeromq": ZmqNodes, "carrier in memory": CarriedNodes, "nodes in memory": NodesInMemory}
