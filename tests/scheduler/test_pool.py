"""The index of nodes: what changes with a node, what stays, and what is forgotten."""

from __future__ import annotations

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.settings import Lists
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import NodeSilent, StateRecovered
from mgpu_jupyter.scheduler.placement import pool as pools
from mgpu_jupyter.scheduler.placement import slots
from mgpu_jupyter.scheduler.placement.shape import shape_of
from mgpu_jupyter.scheduler.planning.estimates import MAX_KEYS, Estimates, Ran
from mgpu_jupyter.scheduler.planning.promises import free_at
from mgpu_jupyter.scheduler.standing import NodeOrders
from tests.builders import Cluster, a_spec, facts


def test_a_node_that_is_removed_leaves_nothing_behind():
    cluster = Cluster(("n1", 2), ("n2", 0))
    pool = cluster.state.pool
    version = pool.version

    pool.remove(NodeId("n2"))
    pool.remove(NodeId("n9"))

    assert list(pool.slots) == ["n1"]
    assert (pool.buckets, pool.without_gpus, dict(pool.homes)) == ([[], [], ["n1"]], [], {"host-n1": 1})
    assert pool.version > version


def test_two_agents_of_one_machine_share_its_name():
    cluster = Cluster()
    cluster.join("a", 1, host="box")
    cluster.join("b", 1, host="box")

    cluster.state.pool.remove(NodeId("a"))

    assert dict(cluster.state.pool.homes) == {"box": 1}


def test_a_node_without_gpus_that_goes_away_is_not_looked_at():
    cluster = Cluster(("n1", 0))

    cluster.tell(NodeSilent(at=3.0, node_id=NodeId("n1"), reason="Nothing heard."))

    assert (cluster.state.pool.buckets, cluster.state.pool.without_gpus) == ([[]], [])


def test_lists_on_a_node_make_shapes_by_user_and_back():
    cluster = Cluster(("n1", 1), ("n2", 1))
    cluster.started(nodes=2)
    ann, bob = cluster.submit(user="ann"), cluster.submit(user="bob")
    node = cluster.state.nodes[NodeId("n1")]
    before = len(cluster.state.queue.lanes)

    node.orders = NodeOrders(lists=Lists(allow_users=("ann",)))
    books.refresh(cluster.state, node)
    with_lists = len(cluster.state.queue.lanes)
    cluster.join("n3", 1, at=5.0)
    cluster.schedule(5.0)

    assert (before, with_lists) == (1, 2)
    assert cluster.job(ann).placements[0].node_id == "n3"
    assert cluster.state.queue.entry(bob).lane.shape.rules.user == "bob"


def test_a_node_that_comes_back_with_lists_makes_shapes_anew():
    cluster = Cluster()
    cluster.submit()
    node = cluster.state.nodes[cluster.join("n1", 0)[0].node_id]
    node.orders = NodeOrders(lists=Lists(deny_users=("ann",)))

    books.recount(cluster.state, node)

    assert [lane.shape.rules.user for lane in cluster.state.queue.lanes.values()] == ["ann"]


def test_a_promise_on_a_node_that_was_removed_is_forgotten():
    cluster = Cluster(("n1", 1))
    cluster.started(time_limit_s=10.0)
    head = cluster.submit()
    cluster.schedule()
    assert [promise.job_id for promise in cluster.state.planner.promises] == [head]

    del cluster.state.pool.slots[NodeId("n1")]
    cluster.state.pool.clear_promises()

    assert cluster.state.pool.promised == []


def test_what_is_given_and_taken_again_leaves_promises_as_they_were():
    """As preemption does when it tries what would be without a job."""
    few, many = Cluster(("n1", 4)), Cluster(*((f"n{number:02d}", 1) for number in range(20)))
    for cluster, first, head in ((few, {"gpus": 2}, {"gpus": 2}), (many, {"nodes": 1}, {"nodes": 17})):
        cluster.started(**({"gpus": 1} if cluster is few else {"nodes": 10}), time_limit_s=100.0)
        long = cluster.started(**first, time_limit_s=5000.0)
        cluster.submit(**head, time_limit_s=10.0)
        cluster.schedule()
        pool = cluster.state.pool
        before = _spare(pool)
        held = pool.held[long.id]

        pool.give(long.id)
        without = _spare(pool)
        pool.take(long.id, held.begun, held.end, held.holds)

        assert (without > before, _spare(pool)) == (True, before)


def _spare(pool):
    return (
        pool.counted.spare
        if pool.counted is not None
        else [promised.spare_gpus for slot in pool.promised for promised in slot.promises]
    )


def test_a_job_of_a_node_that_nobody_knows_is_counted_all_the_same():
    before = Cluster(("n1", 2))
    job = before.started(gpus=2)

    after = Cluster()
    after.tell(StateRecovered(at=5.0, jobs=(job,), epoch=1))
    assert after.state.pool.held[job.id].holds == []

    after.join("n1", 2, at=6.0, tasks=())
    assert after.state.pool.slots[NodeId("n1")].free == 0


def test_what_is_free_now_needs_no_look_at_ends():
    cluster = Cluster(("n1", 2))
    cluster.started(time_limit_s=10.0)
    slot = cluster.state.pool.slots[NodeId("n1")]

    assert free_at(cluster.state.pool, slot, 2.0, 2.0) == (1, 8, facts().memory_bytes, slots.SEATS - 1)
    assert free_at(cluster.state.pool, slot, 12.0, 2.0) == (2, 8, facts().memory_bytes, slots.SEATS)


def test_nodes_of_one_kind_are_looked_at_once_and_names_are_taken_off():
    cluster = Cluster(("a1", 4), ("a2", 4), ("b1", 2), ("c1", 8))
    pool = cluster.state.pool

    def capable(**spec):
        shape = shape_of(a_spec(**spec))
        return sorted(pool.capable(shape.rules, shape.groups[0].need))

    assert len(pool._by_kind()) == 3
    assert (capable(gpus=3), capable(gpus=8), capable(gpus=9)) == (["a1", "a2", "c1"], ["c1"], [])
    assert (capable(gpus=3, exclude=("a2",)), capable(nodelist=("a2", "b1"), gpus_per_node=3)) == (
        ["a1", "c1"],
        ["a2"],
    )


def test_what_is_remembered_of_requests_is_bounded():
    cluster = Cluster(("n1", 1))
    pool = cluster.state.pool
    for number in range(pools.MAX_REMEMBERED + 5):
        shape = shape_of(a_spec(gpu_mem_bytes=number + 1))
        assert pool.capable(shape.rules, shape.groups[0].need) == frozenset({"n1"})

    assert len(pool._capable) == 5
    assert len(pool.slots[NodeId("n1")]._eligible) <= slots.MAX_REMEMBERED


def test_what_was_learnt_is_bounded():
    estimates = Estimates()
    for number in range(MAX_KEYS // 3 + 10):
        estimates.learn(Ran(f"user{number}", "x", 1, 5.0))

    assert estimates.expect("user0", "x", 1) == 5.0  # by the mean of all
    assert len(estimates._past) == MAX_KEYS
