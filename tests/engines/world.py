"""An agents' engine over a link in memory, for tests."""

from __future__ import annotations

import time

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.codec import decode_to_agent, encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import STDOUT, HealthChecks
from mgpu_jupyter.engines.agents import AgentsEngine
from mgpu_jupyter.engines.records import LinkSettings, Records
from mgpu_jupyter.master.ports import Incoming
from mgpu_jupyter.store.logs import LogWriter
from tests.builders import Cluster, facts

AT = 50.0
WALL = 1.0
EPOCH = 3
LIMIT_S = 60.0
CHECKS = HealthChecks(min_free_bytes=16_000_000)


class FakeLink:
    def __init__(self, diary):
        self.incoming, self.sent, self.allowed, self.gone = [], [], {}, set()
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

    def allow(self, public_key, user_id):
        self.diary.append(("allow", user_id))
        self.allowed[user_id] = public_key

    def forbid(self, user_id, why):
        self.diary.append(("forbid", user_id))
        if self.allowed.pop(user_id, None) is not None:
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
    """An engine, its link, its logs, and one job that is assigned to n1."""

    def __init__(self, root, timeout_s=60.0):
        self.root = root
        self.diary, self.bound, self.now = [], {}, AT
        self.link = FakeLink(self.diary)
        cluster = Cluster(("n1", 2))
        self.job = cluster.started()
        assigned = self.assigned = {self.job.attempt_key: frozenset({NodeId("n1")})}
        self.engine = AgentsEngine(
            self.link,
            LogWriter(root),
            Records(self._bind, lambda attempt: assigned.get(attempt, frozenset())),
            LinkSettings(cluster="test", timeout_s=timeout_s),
            master_epoch=EPOCH,
            clock=lambda: self.now,
            link_port=8790,
            wall=lambda: WALL,
        )

    def _bind(self, node_id, public_key, join_key):
        self.diary.append(("bind", node_id, join_key))
        self.bound[node_id] = public_key

    def say(self, *messages, node="n1", route=b"\0r1", epoch=0):
        self.link.incoming.append(Incoming(node, route, [memoryview(encode(message, epoch)) for message in messages]))
        return self.engine.receive()

    def hello(self, node="n1", route=b"\0r1", tasks=()):
        return self.say(wire.Hello(node_id=node, facts=facts(node), tasks=tasks), node=node, route=route)

    def sent(self):
        self.engine.flush()
        sent, self.link.sent = self.link.sent, []
        return [(route, message) for route, epoch, message in sent if epoch == EPOCH]

    def output(self, data=b"hello", offset=0, stream=STDOUT, attempt=None, node="n1"):
        message = wire.Output(key=attempt or self.job.attempt_key, rank=0, stream=stream, offset=offset, data=data)
        return self.say(message, node=node)


def wait_until(condition):
    end = time.monotonic() + LIMIT_S
    while not (answer := condition()):
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)
    return answer
