"""What operators order about nodes, kept apart from what is heard of them; who may use a node; what may be
removed.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.model.settings import Lists
from mgpu_jupyter.scheduler.commands import ForgetNode, SaveNode
from mgpu_jupyter.scheduler.events import NodeDeclaredLost, NodeLeft, NodeOrdered, NodeSilent, StateRecovered
from mgpu_jupyter.scheduler.orders import answer, change_lists
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders, seen_as
from tests.builders import Cluster, ended, facts, status
from tests.scheduler.test_attempts import report

N1 = NodeId("n1")


def an_order(action, node=N1, at=5.0, reason="", **names):
    return NodeOrdered(at=at, node_id=NodeId(node), by="root", action=action, reason=reason, **names)


def order(cluster, action, **details):
    """Carry it out and return what is said."""
    event = an_order(action, **details)
    said = answer(cluster.state, event)
    cluster.tell(event)
    return said


def refused(cluster, action, **details):
    event = an_order(action, **details)
    before = {node_id: (node.orders, node.health) for node_id, node in cluster.state.nodes.items()}
    with pytest.raises(MgpuError) as caught:
        answer(cluster.state, event)
    assert cluster.tell(event) == []
    assert {node_id: (node.orders, node.health) for node_id, node in cluster.state.nodes.items()} == before
    return caught.value.code, caught.value.message


@pytest.mark.parametrize("link", [NodeState.ONLINE, NodeState.SUSPECT, NodeState.OFFLINE])
@pytest.mark.parametrize("ordered", [None, NodeState.DRAINING, NodeState.MAINTENANCE])
@pytest.mark.parametrize("trouble", ["", "Bad."])
def test_the_state_that_people_see_is_derived_in_one_order(link, ordered, trouble):
    orders = NodeOrders(state=ordered, reason="dust", by="root", at=1.0)
    seen = seen_as(link, "gone", orders, NodeHealth(trouble=trouble, probe_at=5.0 if trouble else None))

    if link is not NodeState.ONLINE:
        assert seen == (link, "gone")
    elif ordered is not None:
        assert seen == (
            ordered,
            f"{'Drained' if ordered is NodeState.DRAINING else 'In maintenance, set'} by root: dust.",
        )
    elif trouble:
        assert seen == (NodeState.UNHEALTHY, "Bad. It is tried again at 00:00:05 UTC.")
    else:
        assert seen == (NodeState.ONLINE, "")


def test_a_drained_node_finishes_what_it_runs_and_takes_nothing_new():
    cluster = Cluster(("n1", 4))
    first, second = cluster.started(), cluster.started()
    assert (
        order(cluster, "drain", reason="dust") == "It takes no new jobs; the 2 jobs on it go on to their end."
    )
    waiting = cluster.submit()
    cluster.schedule()
    assert cluster.job(waiting).state is JobState.QUEUED
    report(cluster, status(first))
    assert report(cluster, ended(first))[0].job.state is JobState.COMPLETED
    assert (
        order(cluster, "maintenance")
        == "It is in maintenance and takes no new jobs; the job on it goes on to its end."
    )
    report(cluster, ended(second))
    assert order(cluster, "maintenance") == "It is in maintenance and takes no new jobs; nothing runs on it."
    assert (cluster.state.nodes[N1].state, cluster.state.nodes[N1].reason) == (
        NodeState.MAINTENANCE,
        "In maintenance, set by root.",
    )
    cluster.state.wants_pass = False
    assert order(cluster, "resume") == "It takes jobs again."
    assert cluster.state.wants_pass
    cluster.schedule()

    assert cluster.job(waiting).state is JobState.STARTING
    assert order(cluster, "resume") == "It takes jobs already."


def test_orders_outlive_connections_and_restarts():
    cluster = Cluster(("n1", 4))
    order(cluster, "drain", reason="dust")
    order(cluster, "deny", users=("eve",), reason="noise", at=6.0)
    orders = cluster.state.nodes[N1].orders
    expected = NodeOrders(
        state=NodeState.DRAINING, reason="dust", by="root", at=5.0, lists=Lists(deny_users=("eve",))
    )
    assert orders == replace(expected, lists_reason="noise", lists_by="root", lists_at=6.0)
    cluster.tell(NodeSilent(at=7.0, node_id=N1, reason="gone"))
    assert (cluster.state.nodes[N1].state, cluster.state.nodes[N1].reason) == (
        NodeState.SUSPECT,
        "gone It was last heard at 1970-01-01 00:00:07 UTC.",
    )
    cluster.join("n1", at=8.0)
    assert (cluster.state.nodes[N1].state, cluster.state.nodes[N1].lists) == (
        NodeState.DRAINING,
        Lists(deny_users=("eve",)),
    )

    again = Cluster()
    health = NodeHealth(failures=1, failures_total=2)
    again.tell(StateRecovered(at=9.0, nodes=((N1, facts()),), orders={N1: orders}, health={N1: health}))
    assert (again.state.nodes[N1].state, again.state.nodes[N1].orders) == (NodeState.OFFLINE, orders)
    assert order(again, "resume") == "It takes jobs again as soon as it is connected."
    again.join("n1", at=10.0)
    assert (again.state.nodes[N1].state, again.state.nodes[N1].health) == (
        NodeState.ONLINE,
        NodeHealth(failures_total=2),
    )


@pytest.mark.parametrize(
    ("before", "action", "after", "said"),
    [
        (
            Lists(),
            "deny",
            Lists(deny_users=("ann", "bob")),
            "No new job of ann, bob starts on it; what runs goes on.",
        ),
        (
            Lists(deny_users=("ann", "bob")),
            "deny",
            Lists(deny_users=("ann", "bob")),
            "They are denied already.",
        ),
        (
            Lists(deny_users=("bob", "eve")),
            "allow",
            Lists(deny_users=("eve",)),
            "ann, bob may use it from now on.",
        ),
        (
            Lists(),
            "allow",
            Lists(),
            "Everybody may use it already; to let in only some, write mgpu node allow n1 --only --user NAME.",
        ),
        (Lists(deny_users=("eve",)), "allow", Lists(deny_users=("eve",)), "They may use it already."),
        (
            Lists(allow_users=("eve", "ann")),
            "allow",
            Lists(allow_users=("eve", "ann", "bob")),
            "ann, bob may use it from now on.",
        ),
        (
            Lists(allow_accounts=("lab",), deny_users=("ann",)),
            "allow",
            Lists(allow_users=("ann", "bob"), allow_accounts=("lab",)),
            "ann, bob may use it from now on.",
        ),
        (Lists(allow_users=("ann",)), "deny", Lists(allow_users=("ann",), deny_users=("ann", "bob")), None),
        (
            Lists(deny_users=("ann",)),
            "only",
            Lists(allow_users=("ann", "bob")),
            "Only ann, bob may use it from now on; what runs goes on.",
        ),
        (Lists(allow_users=("ann", "bob")), "only", Lists(allow_users=("ann", "bob")), "So it is already."),
    ],
)
def test_who_may_use_a_node(before, action, after, said):
    cluster = Cluster(("n1", 4))
    node = cluster.state.nodes[N1]
    node.orders = NodeOrders(lists=before)

    assert order(cluster, action, users=("ann", "bob")) == (
        said or "No new job of ann, bob starts on it; what runs goes on."
    )
    assert node.lists == after


def test_accounts_go_the_same_way_and_all_lists_can_be_cleared():
    cluster = Cluster(("n1", 4))
    node = cluster.state.nodes[N1]
    assert (
        order(cluster, "deny", accounts=("guests",))
        == "No new job of account guests starts on it; what runs goes on."
    )
    assert (
        order(cluster, "only", users=("ann",), accounts=("lab",))
        == "Only ann, account lab may use it from now on; what runs goes on."
    )
    assert node.lists == Lists(allow_users=("ann",), allow_accounts=("lab",))
    assert order(cluster, "clear-lists") == "Everybody may use it from now on."
    assert node.lists == Lists()
    assert (
        order(cluster, "clear-lists")
        == "Everybody may use it already; to let in only some, write mgpu node allow n1 --only --user NAME."
    )


def test_after_deny_and_allow_one_may_as_before():
    """The last name of an allow list may be denied without letting in everybody."""
    lists = Lists(allow_users=("ann",))
    denied = change_lists(lists, an_order("deny", users=("ann",)))
    assert [denied.admit(user, "") for user in ("ann", "bob")] == [False, False]
    assert change_lists(denied, an_order("allow", users=("ann",))) == lists


def test_wrong_orders_get_one_sentence_and_change_nothing():
    cluster = Cluster(("n1", 4))
    naming = "Whom? Name users or accounts, for example: mgpu node deny n1 --user ann."
    assert refused(cluster, "drain", node="n9") == ("no-such-node", "There is no node n9: see `mgpu nodes`.")
    for action in ("allow", "deny", "only"):
        assert refused(cluster, action) == ("nobody-named", naming)
    for action in ("drain", "resume", "maintenance", "clear-lists", "remove"):
        sentence = f"Users and accounts go with allow and deny: leave them out of {action}."
        assert refused(cluster, action, users=("ann",)) == ("names-not-used", sentence)
        assert refused(cluster, action, accounts=("lab",)) == ("names-not-used", sentence)


def test_only_a_node_that_is_away_and_holds_nothing_is_removed():
    cluster = Cluster(("n1", 4), ("n2", 4))
    revoke = "give up what it runs with `mgpu node revoke n1`; then remove it."
    assert refused(cluster, "remove") == ("node-connected", f"Node n1 is online: stop its agent, or {revoke}")
    cluster.tell(NodeSilent(at=1.0, node_id=N1, reason="gone"))
    assert refused(cluster, "remove") == (
        "node-connected",
        f"Node n1 is suspect: stop its agent, or {revoke}",
    )
    cluster.join("n1", at=2.0)
    first = cluster.started(nodelist=("n1",))
    cluster.tell(NodeLeft(at=3.0, node_id=N1, reason="stopped"))
    busy = "cancel them, or give them up with `mgpu node revoke n1`; then remove it."
    assert refused(cluster, "remove") == ("node-busy", f"Node n1 may still run a job: {busy}")
    cluster.join("n1", at=4.0)
    cluster.started(nodelist=("n1",))
    cluster.tell(NodeLeft(at=5.0, node_id=N1, reason="stopped"))
    assert refused(cluster, "remove") == ("node-busy", f"Node n1 may still run 2 jobs: {busy}")
    cluster.tell(NodeDeclaredLost(at=6.0, node_id=N1, reason="Revoked by root."))
    assert cluster.job(first.id).state is JobState.QUEUED

    assert cluster.tell(an_order("remove")) == [ForgetNode(N1)]
    assert list(cluster.state.nodes) == ["n2"]


def test_an_order_is_saved_with_the_node():
    cluster = Cluster(("n1", 4))

    assert cluster.tell(an_order("drain")) == [SaveNode(N1)]
    assert cluster.tell(an_order("deny", users=("eve",))) == [SaveNode(N1)]


def test_after_allow_a_job_runs_where_its_user_could_not():
    cluster = Cluster(("n1", 4))
    order(cluster, "only", users=("bob",), accounts=("lab",))
    denied, allowed = cluster.submit(user="ann"), cluster.submit(user="bob")
    cluster.schedule()
    assert [cluster.job(new).state for new in (denied, allowed)] == [JobState.QUEUED, JobState.STARTING]
    order(cluster, "allow", users=("ann",))
    cluster.schedule()
    assert cluster.job(denied).state is JobState.STARTING

    order(cluster, "deny", users=("bob",))
    again = cluster.submit(user="bob")
    cluster.schedule()
    assert cluster.job(again).state is JobState.QUEUED
    order(cluster, "clear-lists")
    cluster.schedule()
    assert cluster.job(again).state is JobState.STARTING


def test_removing_the_only_node_with_lists_leaves_nobody_out():
    cluster = Cluster(("n1", 4), ("n2", 4))
    order(cluster, "deny", users=("ann",))
    cluster.tell(NodeLeft(at=5.0, node_id=N1, reason="stopped"))
    waiting = cluster.submit(user="ann", nodelist=("n1",))
    cluster.schedule()
    order(cluster, "remove")
    assert not cluster.state.pool.is_restricted
    cluster.schedule()
    assert cluster.job(waiting).state is JobState.QUEUED
    cluster.join("n1", at=9.0)
    cluster.schedule()

    assert cluster.job(waiting).state is JobState.STARTING


def test_labels_of_operators_stand_beside_the_nodes_own_and_decide_about_constraints():
    cluster = Cluster()
    cluster.join("n1", labels={"room": "A", "old": ""})
    running = cluster.started(gpus=1)
    waiting = cluster.submit(gpus=1, constraint="room=B2", wait_for_nodes=True)
    cluster.schedule()
    assert cluster.job(waiting).state == JobState.QUEUED

    assert (
        order(cluster, "label", labels={"room": "B2", "fast": ""}, reason="moved")
        == "It is labelled fast, old, room=B2."
    )
    cluster.schedule()
    assert (cluster.job(waiting).state, cluster.job(running.id).state) == (
        JobState.STARTING,
        JobState.STARTING,
    )
    orders = cluster.state.nodes[N1].orders
    assert (orders.labels, orders.labels_reason, orders.labels_by, orders.labels_at) == (
        {"room": "B2", "fast": ""},
        "moved",
        "root",
        5.0,
    )

    assert order(cluster, "label", labels={"room": None, "fast": None}) == "It is labelled old, room=A."
    assert cluster.state.nodes[N1].labels == {"room": "A", "old": ""}


def test_labels_go_with_label_only_and_label_with_labels():
    cluster = Cluster(("n1", 1))

    assert refused(cluster, "label")[0] == "labels"
    assert refused(cluster, "drain", labels={"a": "b"})[0] == "labels"
    assert order(cluster, "label", labels={"a": None}) == "It has no label."
