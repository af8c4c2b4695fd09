"""Promises over many nodes that are all alike."""

from __future__ import annotations

from mgpu_jupyter.scheduler.explain.waiting import Waiting, waiting
from mgpu_jupyter.scheduler.model import Reason
from mgpu_jupyter.scheduler.planning.promises import look_ahead
from tests.builders import Cluster
from tests.scheduler.test_planning import a_cluster, promises, running

# --- many nodes that are all alike ---------------------------------------------------------------------


def a_pool(nodes: int = 20) -> Cluster:
    cluster = a_cluster(*((f"n{number:02d}", 1) for number in range(nodes)))
    cluster.started(nodes=10, time_limit_s=100.0)
    return cluster


def test_many_nodes_that_are_alike_are_promised_by_number():
    cluster = a_pool()
    head = cluster.submit(nodes=17, time_limit_s=10.0)
    long = [cluster.submit(nodes=2, time_limit_s=1000.0), cluster.submit(nodes=2, time_limit_s=1000.0)]
    short, tiny = cluster.submit(nodes=6, time_limit_s=100.0), cluster.submit(nodes=1, time_limit_s=1000.0)
    cluster.state.wants_pass = True

    cluster.schedule()

    # Twenty are free at 102, the head needs seventeen: three are left to whoever is still there then.
    assert promises(cluster) == [(head, 102.0, [])]
    assert running(cluster, head, *long, short, tiny) == [long[0], short, tiny]
    late = cluster.submit(nodes=1, time_limit_s=1000.0)
    cluster.schedule()
    assert running(cluster, late) == []
    text = (
        f"It would fit now, but delay job {head}, which is promised to start in 1 m 40 s: a shorter -t "
        f"may help."
    )
    assert waiting(cluster.state, late, 2.0) == Waiting(3, Reason("promised", text))


def test_a_copy_keeps_such_a_promise_to_itself():
    cluster = a_pool()
    cluster.submit(nodes=17, time_limit_s=10.0)
    cluster.schedule()

    copy = cluster.state.pool.copy()
    copy.take("JOB00099", 2.0, 5000.0, [])
    copy.counted.spare -= 1

    assert (cluster.state.pool.counted.spare, copy.counted.spare, copy.is_uniform) == (3, 2, True)


def test_such_a_promise_may_be_for_now_or_never():
    cluster = a_pool()
    shapes = [cluster.state.queue.entry(cluster.submit(nodes=nodes)).lane.shape for nodes in (20, 21)]
    pool = cluster.state.pool
    pool.expect_end("JOB00001", 1.0)

    assert look_ahead(pool, "JOB00002", shapes[0], 2.0, 5.0).at == 2.0
    pool.give("JOB00001")
    assert look_ahead(pool, "JOB00002", shapes[0], 2.0, 5.0).at == 2.0
    assert look_ahead(pool, "JOB00003", shapes[1], 2.0, 5.0) is None


def test_small_shares_move_nobody():
    cluster = Cluster(("n1", 2))
    cluster.started(user="ann", gpus=2, time_limit_s=1e6)
    jobs = [cluster.submit(user=user, gpus=2) for user in ("ann", "bob")]

    cluster.state.queue.reorder(lambda user, account: 12.1)
    assert list(cluster.state.queue) == jobs
    cluster.state.queue.reorder(lambda user, account: 12.0 if user == "ann" else 13.0)
    assert list(cluster.state.queue) == jobs[::-1]
    assert [lane.in_order()[0].job_id for lane in cluster.state.queue.lanes.values()] == [jobs[1]]
