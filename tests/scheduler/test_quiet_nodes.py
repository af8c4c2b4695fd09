"""A node of which two beats did not come: it gets nothing new until it is heard, and is not called lost."""

from __future__ import annotations

from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.scheduler.commands import SaveNode
from mgpu_jupyter.scheduler.events import NodeHeard, NodeQuiet, NodeSilent
from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.invariants import check
from mgpu_jupyter.scheduler.model import Reason
from tests.builders import Cluster


def test_a_quiet_node_takes_no_work_until_it_is_heard_again():
    cluster = Cluster(("n1", 1))
    assert cluster.tell(NodeQuiet(at=1.0, node_id="n1")) == []
    assert cluster.state.nodes["n1"].state is NodeState.ONLINE
    new = cluster.submit()
    cluster.schedule()
    reason = Reason("nodes-away", "Waits for 1 node to take work again: n1 is not being heard.")
    assert waiting(cluster.state, new, 0.0) == Waiting(1, reason)
    assert check(cluster.state) == []

    assert cluster.tell(NodeHeard(at=2.0, node_id="n1")) == []
    cluster.schedule()
    assert cluster.job(new).state is JobState.STARTING


def test_others_get_what_comes_and_what_runs_there_goes_on():
    cluster = Cluster(("n1", 1), ("n2", 1))
    running = cluster.started(nodelist=("n1",))
    cluster.tell(NodeQuiet(at=1.0, node_id="n1"))
    new = cluster.submit()
    cluster.schedule()
    assert [placement.node_id for placement in cluster.job(new).placements] == ["n2"]
    assert cluster.job(running.id) == running


def test_a_quiet_node_that_falls_silent_is_suspect_and_is_believed_when_it_is_heard():
    cluster = Cluster(("n1", 1))
    cluster.tell(NodeQuiet(at=1.0, node_id="n1"))
    assert cluster.tell(NodeSilent(at=2.0, node_id="n1", reason="gone")) == [SaveNode("n1")]
    assert cluster.state.pool.slots["n1"].state == "suspect"
    assert cluster.tell(NodeHeard(at=3.0, node_id="n1")) == [SaveNode("n1")]
    assert cluster.state.nodes["n1"].takes_work


def test_what_is_told_of_an_unknown_node_changes_nothing():
    cluster = Cluster(("n1", 1))
    assert (cluster.tell(NodeQuiet(at=1.0, node_id="n9")), cluster.tell(NodeHeard(at=1.0, node_id="n9"))) == (
        [],
        [],
    )
    assert cluster.state.nodes["n1"].takes_work
