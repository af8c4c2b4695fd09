"""A master over nodes in memory and a store that records."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.master import calls
from mgpu_jupyter.master.master import Master, SteadyClock
from mgpu_jupyter.scheduler.events import NodeJoined
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.store.memory import MemoryStore
from tests.builders import a_spec, facts
from tests.master.nodes import DiaryNodes

LIMIT_S = 10.0


class RecordingStore(MemoryStore):
    """Notes every commit in the common diary; can be made to fail."""

    def __init__(self, diary):
        super().__init__()
        self.diary, self.error = diary, None

    def commit(self, batch):
        if self.error is not None:
            raise self.error
        self.diary.append(("commit", sorted(saved.job.state.value for saved in batch.jobs.values())))
        super().commit(batch)


class Bench:
    def __init__(self):
        self.diary = []
        self.store, self.nodes = RecordingStore(self.diary), DiaryNodes(self.diary)
        self.answers, self.published = [], []
        self.master = self.new_master()

    def new_master(self, policy=None):
        return Master(
            self.store, self.nodes, self.nodes, self, SteadyClock(), policy=policy or Policy(), epoch=2
        )

    def publish(self, replies, jobs, grown):
        for reply in replies:
            reply()
        self.published.append(([saved.job.id for saved in jobs], grown))

    def answer(self, result):
        self.diary.append("answer")
        # A request became one job unless it asked for an array; an order was about one job unless it named an
        # array.
        one = isinstance(result, list) and len(result) == 1 and not isinstance(result[0], tuple)
        self.answers.append(result[0] if one else result)

    def post(self, call):
        self.master.post(call, self.answer)

    def submit(self, *items, user="ann"):
        self.post(calls.submit(user, items or [(a_spec(), None)], self.answer))

    def cancel(self, new, by="ann", is_admin=False):
        self.post(calls.cancel(new, by, is_admin=is_admin, answer=self.answer))

    def turn(self):
        self.master.turn()
        return self.answers.pop() if self.answers else None

    def join(self, node="n1", gpus=4):
        self.nodes.tell(NodeJoined(at=0.0, node_id=NodeId(node), facts=facts(node, gpus)))
        self.master.turn()

    def one_job(self, **spec):
        self.submit((a_spec(**spec), None))
        ((job,),) = self.turn()
        return self.master.state.jobs[job.id]


@pytest.fixture
def bench():
    return Bench()
