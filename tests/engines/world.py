"""The agents' engine over a carrier in memory, for tests."""

from __future__ import annotations

import time

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.codec import decode_to_agent, encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import STDOUT, HealthChecks
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.node_link import Inbox, Incoming
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.store.logs import LogWriter
from tests.builders import Cluster, facts

AT = 50.0
WALL = 1.0
EPOCH = 3
LIMIT_S = 60.0
CHECKS = HealthChecks(min_free_bytes=16 << 20)


class FakeCarrier:
    def __init__(self, diary):
        self.incoming, self.sent, self.allowed, self.gone, self.ended = [], [], {}, set(), []
        self.diary, self.forbidden, self.bound = diary, {}, []
        self.is_closed = False

    def bind(self, host, port):
        self.bound.append((host, port))
        return port

    def wait(self, timeout_s):
        pass

    def wake(self):
        pass

    def receive(self, limit):
        incoming, self.incoming = self.incoming, []
        return incoming

    def send(self, route, frames):
        if route in self.gone:
            return False
        self.sent += [(route, *decode_to_agent(frame)) for frame in frames]
        return True

    def take_ended(self):
        ended, self.ended = self.ended, []
        return ended

    def allow(self, public_key, user_id):
        self.diary.append(("allow", user_id))
        self.allowed[user_id] = public_key

    def forbid(self, user_id, why):
        self.diary.append(("forbid", user_id))
        if self.allowed.pop(user_id, None) is not None:
            self.forbidden[user_id] = why

    def remember(self, public_key, user_id, why):
        self.forbidden[user_id] = why

    def holder(self, public_key):
        if len(public_key) != 40:
            raise ValueError(public_key)
        return next((name for name, key in self.allowed.items() if key == public_key), None)

    def knows(self, user_id):
        return user_id in self.allowed

    def close(self):
        self.is_closed = True


class World:
    """Both ports of the engine, its carrier, its logs, and one job that is assigned to n1."""

    def __init__(self, root, timeout_s=60.0):
        self.root = root
        self.diary, self.bound, self.now = [], {}, AT
        self.carrier = FakeCarrier(self.diary)
        cluster = Cluster(("n1", 2))
        self.job = cluster.started()
        assigned = self.assigned = {self.job.attempt_key: frozenset({NodeId("n1")})}
        self.link, self.enrolment, self.connections = wire_agents(
            self.carrier,
            LogWriter(root),
            Records(self._bind, lambda attempt: assigned.get(attempt, frozenset())),
            LinkSettings(cluster="test", timeout_s=timeout_s),
            master_epoch=EPOCH,
            clock=lambda: self.now,
            port=8790,
            wall=lambda: WALL,
        )
        self._beside = Inbox()

    def _bind(self, node_id, public_key, join_key):
        self.diary.append(("bind", node_id, join_key))
        self.bound[node_id] = public_key

    def say(self, *messages, node="n1", route=b"\0r1", epoch=0):
        self.carrier.incoming.append(
            Incoming(node, route, [memoryview(encode(message, epoch)) for message in messages])
        )
        return self.poll()

    def poll(self):
        """Return the events that came; the rest is kept for `take`."""
        inbox = self.link.poll()
        for name in ("marks", "typed", "answers"):
            getattr(self._beside, name).extend(getattr(inbox, name))
        self._beside.grown |= inbox.grown
        self._beside.readings |= inbox.readings
        return inbox.events

    def take(self, what):
        """Return what came of this kind beside events, and forget it."""
        assert self.poll() == []
        taken = getattr(self._beside, what)
        setattr(self._beside, what, type(taken)())
        return taken

    def hello(self, node="n1", route=b"\0r1", tasks=()):
        return self.say(wire.Hello(node_id=node, facts=facts(node), tasks=tasks), node=node, route=route)

    def sent(self):
        self.link.flush()
        sent, self.carrier.sent = self.carrier.sent, []
        return [(route, message) for route, epoch, message in sent if epoch == EPOCH]

    def output(self, data=b"hello", offset=0, stream=STDOUT, attempt=None, node="n1"):
        message = wire.Output(
            key=attempt or self.job.attempt_key, rank=0, stream=stream, offset=offset, data=data
        )
        return self.say(message, node=node)


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not (answer := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return answer
