"""From a request to a launch: order, first fit, all or none, and a reason for every job that waits."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.model import LaunchSpec, PythonWish, TaskSpec
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.commands import LaunchTask, SaveJob, SaveNode
from mgpu_jupyter.scheduler.events import JobSubmitted
from mgpu_jupyter.scheduler.explain.waiting import NOT_LOOKED_AT, Waiting, waiting
from mgpu_jupyter.scheduler.model import Job, Reason
from mgpu_jupyter.scheduler.placement.fit import Finder
from mgpu_jupyter.scheduler.placement.shape import shape_of
from tests.builders import Cluster, a_spec, job_id, key, placement


def test_a_submitted_job_is_saved_and_nothing_else_happens_before_the_pass():
    cluster = Cluster(("n1", 2))

    commands = cluster.tell(JobSubmitted(at=1.0, job_id=job_id(1), user="ann", spec=a_spec(), key="k"))

    job = Job(id=job_id(1), number=1, user="ann", spec=a_spec(), submitted_at=1.0, key="k")
    assert commands == [SaveJob(job)]
    assert cluster.state.pass_is_due


def test_the_pass_saves_before_it_launches_and_names_all_that_the_node_needs():
    cluster = Cluster(("n1", 2))
    new = cluster.submit(
        gpus=2,
        env={"A": "b"},
        cwd="/data",
        python="/opt/python",
        kernel_python="/k",
        kernel_python_version="3.11",
    )

    commands = cluster.schedule()

    where = placement("n1", gpus=(0, 1))
    job = Job(
        id=new,
        number=1,
        user="ann",
        spec=cluster.job(new).spec,
        submitted_at=1.0,
        state=JobState.STARTING,
        attempt=1,
        epoch=1,
        placements=(where,),
        placed_at=2.0,
    )
    launch = LaunchSpec(
        key=key(new),
        node_id=where.node_id,
        incarnation="boot-1/ledger-1",
        user="ann",
        tasks=(TaskSpec(rank=0),),
        gpus=where.gpus,
        argv=("true",),
        python=PythonWish(path="/opt/python", kernel_path="/k", kernel_version="3.11"),
        env={"A": "b", "MGPU_NODE_RANK": "0", "MGPU_NNODES": "1", "MGPU_NPROC_PER_NODE": "1"},
        cwd="/data",
        kill_grace_s=15.0,
    )
    assert commands == [SaveJob(job), LaunchTask(launch)]
    assert not cluster.state.pass_is_due


def test_a_gang_takes_one_unit_on_each_of_its_nodes_with_one_epoch():
    cluster = Cluster(("n1", 4), ("n2", 4), ("n3", 1))

    job = cluster.started(nodes=2, gpus_per_node=2, cpus=3)

    assert job.placements == (placement("n1", 0, (0, 1), cpus=3), placement("n2", 1, (0, 1), cpus=3))
    assert (job.attempt, job.epoch) == (1, 1)
    assert cluster.state.nodes["n1"].cpus_taken == 3


@pytest.mark.parametrize("failing", [0, 1, 2, 3])
def test_when_the_kth_unit_fails_nothing_is_held(failing):
    """Four units, and only `failing` nodes are large enough at the moment: the view is as before, for every
    k.
    """
    cluster = Cluster(*((f"n{number}", 2) for number in range(4)))
    for number in range(failing, 4):
        cluster.started(gpus=1, nodelist=(f"n{number}",))
    before = [(slot.id, slot.free_mask, slot.free_cpus) for slot in cluster.state.pool.slots.values()]
    new = cluster.submit(nodes=4, gpus_per_node=2)

    cluster.schedule()

    assert [(slot.id, slot.free_mask, slot.free_cpus) for slot in cluster.state.pool.slots.values()] == before
    answer = waiting(cluster.state, new, 2.0)
    assert answer is not None
    assert f"({4 - failing} missing)" in answer.reason.text


def test_jobs_start_by_priority_then_by_age():
    cluster = Cluster(("n1", 1))
    first, urgent, second = cluster.submit(), cluster.submit(priority=5), cluster.submit()

    assert list(cluster.state.queue) == [urgent, first, second]
    cluster.schedule()
    assert [cluster.job(new).state for new in (first, urgent, second)] == [
        JobState.QUEUED,
        JobState.STARTING,
        JobState.QUEUED,
    ]
    assert [cluster.state.queue.place_of(new) for new in (first, second)] == [1, 2]


def test_a_small_job_passes_a_large_one_that_does_not_fit():
    cluster = Cluster(("n1", 2))
    cluster.started(gpus=1)
    large, small = cluster.submit(gpus=2), cluster.submit(gpus=1)

    cluster.schedule()

    assert cluster.job(large).state is JobState.QUEUED
    assert cluster.job(small).placements == (placement("n1", gpus=(1,)),)


def test_one_refusal_answers_for_all_jobs_of_a_shape():
    cluster = Cluster(("n1", 1))
    jobs = [cluster.submit() for _ in range(5)]

    cluster.schedule()

    reason = Reason("busy", "Waits for 1 GPU free on one node: n1 has 0.")
    promised = [3602.0, None, None, None]
    expected = [Waiting(place, reason, promised[place - 1]) for place in range(1, 5)]
    assert [waiting(cluster.state, new, 2.0) for new in jobs] == [None, *expected]
    assert len(cluster.state.queue.lanes) == 1


REASONS = [
    (
        {},
        [],
        Reason(
            "no-nodes",
            "No node has joined yet: start JupyterLab's own agent or run mgpu_node on a GPU machine.",
        ),
    ),
    (
        {"nodelist": ("n9",)},
        [("n1", 4)],
        Reason(
            "unknown-node", "Waits for n9 to join: no such node is known yet; see `mgpu nodes`.", never=True
        ),
    ),
    (
        {"nodes": 3},
        [("n1", 4), ("n2", 4)],
        Reason("too-few-nodes", "Needs 3 nodes, but only 2 may be used: ask for fewer --nodes.", never=True),
    ),
    (
        {"exclude": ("n1",)},
        [("n1", 4)],
        Reason("too-few-nodes", "Needs 1 node, but none may be used: ask for fewer --nodes.", never=True),
    ),
    (
        {"gpus": 9},
        [("n1", 8), ("n2", 4)],
        Reason(
            "too-large",
            "Needs 9 GPUs on one node, but the largest, n1, has 8 GPUs and 8 CPUs: ask for less, or use "
            "--nodes.",
            never=True,
        ),
    ),
    (
        {"gpus": 0, "cpus": 99},
        [("n1", 1)],
        Reason(
            "too-large",
            "Needs 99 CPUs on one node, but the largest, n1, has 1 GPU and 8 CPUs: ask for less, or use "
            "--nodes.",
            never=True,
        ),
    ),
    (
        {"nodes": 2, "gpus_per_node": 4},
        [("n1", 4), ("n2", 2)],
        Reason(
            "too-large",
            "Needs 4 GPUs on each of 2 nodes, but only 1 is that large: ask for less, or add a machine.",
            never=True,
        ),
    ),
    (
        {"gpu_ids": (2, 9)},
        [("n1", 4), ("n2", 2)],
        Reason(
            "too-large",
            "There is no GPU 9: n1 has 4 GPUs, numbered from 0; name others, see `mgpu nodes`.",
            never=True,
        ),
    ),
]


@pytest.mark.parametrize(("spec", "nodes", "reason"), REASONS)
def test_every_reason_says_what_to_do(spec, nodes, reason):
    cluster = Cluster(*nodes)
    new = cluster.submit(**spec)

    cluster.schedule()

    assert waiting(cluster.state, new, 0.0) == Waiting(1, reason)


def test_a_busy_cpu_and_a_long_list_of_nodes_are_said_in_one_sentence():
    cluster = Cluster(*((f"n{number}", 0) for number in range(6)))
    for _ in range(6):
        cluster.started(gpus=0, cpus=8)
    new = cluster.submit(gpus=0, cpus=1)

    cluster.schedule()

    text = "Waits for 1 CPU free on one node: n0 has 0, n1 has 0, n2 has 0, n3 has 0 and 2 more."
    assert waiting(cluster.state, new, 2.0) == Waiting(1, Reason("busy", text), 3602.0)


def test_a_job_that_was_not_looked_at_yet_says_so():
    cluster = Cluster(("n1", 1))
    new = cluster.submit()

    assert waiting(cluster.state, new, 0.0) == Waiting(1, NOT_LOOKED_AT)
    assert waiting(cluster.state, job_id(99), 0.0) is None


def test_nodes_where_it_failed_come_last_but_are_not_excluded():
    cluster = Cluster(("n1", 1), ("n2", 1))
    finder = Finder(cluster.state.pool, {})
    shape = shape_of(a_spec(), failed_nodes=("n1",), strategy="fill_first")

    first = finder.find(shape)
    cluster.started(nodelist=("n2",))
    second = finder.find(shape)

    assert first is not None
    assert second is not None
    assert [found[0][0].id for found in (first, second)] == ["n2", "n1"]


def test_a_node_is_saved_when_it_joins():
    assert Cluster().join("n1", 2) == [SaveNode("n1")]
