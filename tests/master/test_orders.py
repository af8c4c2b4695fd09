"""What administrators order about nodes, through a turn: answered after the commit, kept over a restart,
forgotten when removed.
"""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.master import node_calls
from mgpu_jupyter.master.node_link import NewestReading
from mgpu_jupyter.master.views import node_view
from mgpu_jupyter.model.settings import Lists, Retries, Scheduling
from mgpu_jupyter.scheduler.events import LaunchWasRefused, NodeLeft, NodeProbed
from mgpu_jupyter.scheduler.model import Load, Policy
from tests.master.bench import Bench


@pytest.fixture
def bench():
    bench = Bench()
    bench.store.bind_node_key(NodeId("n1"), "k" * 40)
    bench.join()
    bench.diary.clear()
    return bench


def order(bench, action, node="n1", **wish):
    bench.post(
        node_calls.order(NodeId(node), "root", node_calls.OrderWish(action=action, **wish), bench.answer)
    )
    return bench.turn()


def restart(bench):
    bench.master = bench.new_master()
    bench.master.recover()


def test_an_order_is_answered_after_its_commit_and_outlives_the_master(bench):
    assert order(bench, "drain", reason="dust") == "It takes no new jobs; nothing runs on it."
    assert bench.diary == [("commit", []), "answer"]
    order(bench, "deny", users=("eve",), accounts=("guests",), reason="noise")
    restart(bench)
    bench.nodes.read(NodeId("n1"), NewestReading(load=Load(cpu_percent=12.5)))
    bench.join()

    view = node_view(bench.master.node(NodeId("n1")))
    orders = view.orders
    assert (view.state, view.reason, view.cpu_percent) == ("draining", "Drained by root: dust.", 12.5)
    assert orders == models.NodeOrders(
        state="draining",
        reason="dust",
        by="root",
        at=orders.at,
        lists=Lists(deny_users=("eve",), deny_accounts=("guests",)),
        lists_reason="noise",
        lists_by="root",
        lists_at=orders.lists_at,
    )
    assert orders.at
    assert orders.lists_at


def test_a_wrong_order_is_an_error_and_saves_nothing(bench):
    assert order(bench, "drain", "n9").code == "no-such-node"
    assert order(bench, "allow").code == "nobody-named"
    assert order(bench, "remove").code == "node-connected"
    assert bench.diary == ["answer"] * 3


def test_a_removed_node_is_gone_everywhere(bench):
    bench.nodes.read(NodeId("n1"), NewestReading(load=Load(cpu_percent=12.5)))
    bench.nodes.tell(NodeLeft(at=1.0, node_id=NodeId("n1"), reason="stopped"))
    bench.master.turn()
    bench.diary.clear()
    assert order(bench, "remove").startswith("It is forgotten")

    assert bench.diary == [("commit", []), ("forget", "n1"), "answer"]
    assert (bench.master.nodes(), bench.store.recover().nodes) == ([], ())
    bench.join()
    assert bench.master.node(NodeId("n1")).load == Load()


def test_an_unhealthy_node_stays_so_over_a_restart_and_is_tried_when_it_joins(bench):
    bench.master = bench.new_master(Policy(scheduling=Scheduling(retries=Retries(node_failures=1))))
    bench.join()
    job = bench.one_job()
    bench.nodes.tell(
        LaunchWasRefused(
            at=9.0, node_id=NodeId("n1"), key=job.attempt_key, code="spool", message="Full.", fault="node"
        )
    )
    bench.master.turn()
    restart(bench)
    assert bench.master.node(NodeId("n1")).health.failures == 1
    bench.join()
    number = bench.master.state.epoch

    assert bench.diary[-1] == ("probe", "n1", number)
    assert bench.store.recover().epoch == number
    assert bench.master.node(NodeId("n1")).state == "unhealthy"
    bench.nodes.tell(NodeProbed(at=10.0, node_id=NodeId("n1"), number=number, ok=True))
    bench.master.turn()
    assert bench.master.node(NodeId("n1")).state == "online"
