"""An engine that only writes down what it is told, for tests of the master."""

from __future__ import annotations

import threading

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.master.ports import News
from mgpu_jupyter.scheduler.model import Load


class FakeEngine:
    """Notes what it is told in the common diary; hands out the events that a test puts in."""

    def __init__(self, diary):
        self.diary, self.events, self.news, self.marks = diary, [], News(), []
        self.woken = threading.Event()

    def wait(self, timeout_s):
        self.woken.wait(timeout_s)
        self.woken.clear()

    def wake(self):
        self.woken.set()

    def receive(self):
        events, self.events = self.events, []
        return events

    def launch(self, spec):
        self.diary.append(("launch", spec.key.job_id))

    def prepare(self, spec, hold_s, *, meets):
        self.diary.append(("prepare", spec.node_id, hold_s))

    def meet(self, node_id, key, peers, limit_s):
        self.diary.append(("meet", node_id, [peer.node_id for peer in peers], limit_s))

    def start(self, node_id, key, spec=None):
        self.diary.append(("start", node_id))

    def stop(self, node_id, key, grace_s, reason, cause=""):
        self.diary.append(("stop", node_id, reason))

    def probe(self, node_id, number):
        self.diary.append(("probe", node_id, number))

    def forget(self, node_id):
        self.diary.append(("forget", node_id))

    def load(self, node_id):
        return Load(cpu_percent=12.5)

    def listen(self, host):
        if host == "192.0.2.9":
            raise InvalidRequest("no-such-address", "no")
        return host != "127.0.0.1"

    def admit(self, key):
        self.diary.append(("admit", key.public_key))

    def knows(self, node_id):
        return node_id == "silent"

    def revoke(self, node_id, reason):
        self.diary.append(("revoke", node_id, reason))

    def committed(self):
        pass

    def flush(self):
        pass

    def resync(self):
        self.diary.append("resync")

    def samples(self, node_id):
        return ()

    def take_marks(self):
        marks, self.marks = self.marks, []
        return marks

    def ping(self, node_id, key, answer, cell=None):
        self.diary.append(("ping", node_id, key))
        return True

    def take_news(self):
        news, self.news = self.news, News()
        return news

    def close(self):
        self.diary.append("close")
