"""Jobs that are ended for others: who may be, who is chosen, and that all of it comes to an end."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.model import GpuTrouble, Trouble
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Qos, Scheduling
from mgpu_jupyter.scheduler.commands import SaveAttempt, SaveJob, StopTask
from mgpu_jupyter.scheduler.events import CancelRequested, GpusChanged, NodeDeclaredLost, TaskReported
from mgpu_jupyter.scheduler.model import Node, NodeState, Policy, Reason, StopCause
from mgpu_jupyter.scheduler.placement.fit import Finder
from mgpu_jupyter.scheduler.placement.pool import Pool
from mgpu_jupyter.scheduler.placement.shape import shape_of
from mgpu_jupyter.scheduler.placement.slots import Hold
from mgpu_jupyter.scheduler.planning.preemption import Victim, choose
from tests.builders import Cluster, a_spec, ended, facts, status

QOS = {"spare": Qos(priority=-10.0, preemptible=True, grace_s=60.0), "urgent": Qos(priority=1000.0)}
POLICY = Policy(scheduling=Scheduling(preemption=True, qos=QOS))


def run(cluster, at=10.0, **spec):
    job = cluster.started(**{"qos": "spare", **spec})
    cluster.tell(TaskReported(at=at, status=status(job, started_at=at)))
    return cluster.job(job.id)


def stops(commands):
    return [(command.key.job_id, command.grace_s) for command in commands if isinstance(command, StopTask)]


def end(cluster, job, at):
    return cluster.tell(TaskReported(at=at, status=ended(job, exit_code=None, signal=15, at=at)))


def test_a_job_of_a_preemptible_qos_is_ended_for_one_that_goes_before_and_runs_again():
    cluster = Cluster(("n1", 2), policy=POLICY)
    victim = run(cluster, gpus=2)
    head = cluster.submit(at=20.0, gpus=2, qos="urgent")

    commands = cluster.schedule(21.0)

    assert stops(commands) == [(victim.id, 60.0)]
    stopping = cluster.job(victim.id)
    assert (stopping.state, stopping.stop) == (JobState.STOPPING, StopCause.PREEMPTED)
    assert stopping.reason == Reason(
        "preempted", f"Ended for job {head}, which goes before it; it waits in its old place."
    )
    assert cluster.state.pool.held[victim.id].end == 81.0
    # The promise now is at the end of the grace, and protects the node from those who come later.
    small = cluster.submit(at=22.0, qos="spare", time_limit_s=1000.0)
    assert stops(cluster.schedule(22.0)) == []
    assert [(promise.job_id, promise.at) for promise in cluster.state.planner.promises] == [(head, 81.0)]

    record, again = end(cluster, victim, 30.0)
    assert (record, again) == (SaveAttempt(record.job), SaveJob(again.job))
    assert (again.job.state, again.job.preempted, again.job.failed_starts) == (JobState.QUEUED, 1, 0)
    assert again.job.submitted_at == victim.submitted_at
    cluster.schedule(31.0)
    # It is ahead of the victim, though that was there first.
    assert cluster.job(head).state is JobState.STARTING
    assert cluster.job(victim.id).state is JobState.QUEUED
    assert cluster.job(small).state is JobState.QUEUED

    cluster.tell(CancelRequested(at=32.0, job_id=small, by="ann"))
    cluster.tell(TaskReported(at=32.0, status=ended(cluster.job(head), at=32.0)))
    cluster.schedule(33.0)
    assert (cluster.job(victim.id).state, cluster.job(victim.id).attempt) == (JobState.STARTING, 2)


@pytest.mark.parametrize(
    ("victim", "head", "policy"),
    [
        ({"qos": "spare"}, {"qos": "urgent"}, Policy(scheduling=Scheduling(qos=QOS))),
        ({"qos": "spare", "requeue": False}, {"qos": "urgent"}, POLICY),
        ({"qos": "urgent"}, {"qos": "urgent"}, POLICY),
        ({"qos": "spare"}, {"qos": "spare"}, POLICY),
        ({"qos": ""}, {"qos": "urgent"}, POLICY),
        ({"qos": "spare", "time_limit_s": 70.0}, {"qos": "urgent"}, POLICY),
    ],
    ids=["off", "no-requeue", "not-preemptible", "same-rank", "plain", "ends-in-time"],
)
def test_who_is_not_ended(victim, head, policy):
    cluster = Cluster(("n1", 2), policy=policy)
    run(cluster, gpus=2, **victim)
    cluster.submit(at=20.0, gpus=2, **head)
    assert stops(cluster.schedule(21.0)) == []


def test_plain_jobs_go_before_a_qos_below_them():
    cluster = Cluster(("n1", 2), policy=POLICY)
    victim = run(cluster, gpus=2)
    cluster.submit(at=20.0, gpus=2, priority=1)
    assert stops(cluster.schedule(21.0)) == [(victim.id, 60.0)]


def test_nobody_is_ended_when_that_does_not_help_or_those_who_end_already_are_enough():
    cluster = Cluster(("n1", 2), ("n2", 2), policy=POLICY)
    kept, on_n2 = run(cluster, gpus=2, qos=""), run(cluster, gpus=1)
    cluster.submit(at=20.0, nodes=2, gpus_per_node=2, qos="urgent")
    assert stops(cluster.schedule(21.0)) == []
    cluster.tell(CancelRequested(at=22.0, job_id=kept.id, by="ann"))
    assert stops(cluster.schedule(23.0)) == [(on_n2.id, 60.0)]

    cluster = Cluster(("n1", 2), policy=POLICY)
    first, second = run(cluster), run(cluster)
    cluster.tell(CancelRequested(at=11.0, job_id=first.id, by="ann"))
    cluster.state.pool.expect_end(first.id, 1000.0)
    cluster.submit(at=20.0, gpus=1, qos="urgent")
    assert stops(cluster.schedule(21.0)) == []
    assert cluster.job(second.id).state is JobState.RUNNING


def test_no_second_round_while_the_gpus_of_the_first_come_back():
    cluster = Cluster(("n1", 1), ("n2", 1), policy=POLICY)
    second, first = run(cluster), run(cluster)
    cluster.submit(at=20.0, qos="urgent")
    assert stops(cluster.schedule(21.0)) == [(first.id, 60.0)]
    (gpu,) = first.placements[0].gpus
    cluster.tell(
        GpusChanged(at=22.0, node_id=NodeId("n2"), troubles={gpu: GpuTrouble(Trouble.MEMORY, "Not back.")})
    )
    end(cluster, first, 23.0)
    assert stops(cluster.schedule(24.0)) == []
    # It never comes back: after the time that it may take, another is ended.
    cluster.state.wants_pass = True
    assert stops(cluster.schedule(112.0)) == [(second.id, 60.0)]


def test_a_job_for_which_others_ended_and_that_left_holds_up_nobody():
    cluster = Cluster(("n1", 1), policy=POLICY)
    victim = run(cluster)
    head = cluster.submit(at=20.0, qos="urgent")
    cluster.schedule(21.0)
    cluster.tell(CancelRequested(at=22.0, job_id=head, by="ann"))
    end(cluster, victim, 23.0)
    cluster.schedule(24.0)
    assert cluster.job(victim.id).state is JobState.STARTING
    assert cluster.state.planner.ahead == {}


def test_a_victim_whose_node_is_lost_meanwhile_waits_again_all_the_same():
    cluster = Cluster(("n1", 1), policy=POLICY)
    victim = run(cluster)
    cluster.submit(at=20.0, qos="urgent")
    cluster.schedule(21.0)
    cluster.tell(NodeDeclaredLost(at=22.0, node_id=NodeId("n1"), reason="Burnt."))
    assert (cluster.job(victim.id).state, cluster.job(victim.id).preempted) == (JobState.QUEUED, 1)


def test_several_promises_are_kept_while_victims_are_looked_for():
    planning = Scheduling().planning
    policy = Policy(
        scheduling=Scheduling(
            preemption=True, qos=QOS, planning=type(planning)(reservations=3, weights=planning.weights)
        ),
    )
    cluster = Cluster(("n1", 1), ("n2", 1), policy=policy)
    run(cluster, qos=""), run(cluster, qos="")
    for at in (20.0, 21.0, 22.0):
        cluster.submit(at=at, qos="urgent")
    cluster.schedule(23.0)
    assert len(cluster.state.planner.promises) == 3
    cluster.state.planner.promises[1].job_id = JobId("GONE0000")
    victim = cluster.state.pool.promised
    cluster.tell(CancelRequested(at=24.0, job_id=next(iter(cluster.state.queue)), by="ann"))
    assert cluster.schedule(25.0) == []
    assert len(cluster.state.pool.promised) == len(victim)


# --- the choice ------------------------------------------------------------------------------------


def a_pool(nodes, jobs):
    """Make a pool of nodes (GPUs by name) and jobs ({name: ({node: GPUs}, cost)})."""
    pool = Pool()
    for name, gpus in nodes.items():
        pool.put(Node(id=NodeId(name), facts=facts(name, gpus), state=NodeState.ONLINE), frozenset())
    victims = []
    for name, (where, cost) in jobs.items():
        holds = []
        for node, gpus in where.items():
            slot = pool.slots[NodeId(node)]
            bits = [bit for bit in range(len(slot.gpus)) if slot.free_mask >> bit & 1][:gpus]
            holds.append((slot, Hold(sum(1 << bit for bit in bits), 0, 0)))
        pool.take(JobId(name), 0.0, 1e6, holds)
        victims.append(Victim(JobId(name), cost))
    return pool, victims


def chosen(cluster, jobs, **spec):
    pool, victims = a_pool(cluster, jobs)
    before = {slot.id: (slot.free_mask, slot.bucket, set(slot.holds)) for slot in pool.slots.values()}
    found = choose(pool, Finder(pool, {}), shape_of(a_spec(**spec)), victims=victims, ending=())
    assert before == {slot.id: (slot.free_mask, slot.bucket, set(slot.holds)) for slot in pool.slots.values()}
    return sorted(found)


@pytest.mark.parametrize(
    ("nodes", "jobs", "spec", "ends"),
    [
        # One large one costs less than four small ones, though each of these costs less than it.
        (
            {"a": 4, "b": 4},
            {
                "a1": ({"a": 1}, 10),
                "a2": ({"a": 1}, 10),
                "a3": ({"a": 1}, 10),
                "a4": ({"a": 1}, 10),
                "b1": ({"b": 4}, 15),
            },
            {"gpus": 4},
            ["b1"],
        ),
        # A job on two nodes counts once.
        (
            {"a": 1, "b": 1, "c": 1},
            {"ab": ({"a": 1, "b": 1}, 15), "c1": ({"c": 1}, 10)},
            {"nodes": 2, "gpus_per_node": 1},
            ["ab"],
        ),
        # What is free already is used.
        ({"a": 4}, {"a1": ({"a": 1}, 5), "a2": ({"a": 2}, 9)}, {"gpus": 2}, ["a1"]),
        # Nothing helps: another architecture of things.
        ({"a": 2}, {"a1": ({"a": 1}, 5)}, {"gpus": 3}, []),
        (
            {"a": 2, "b": 2},
            {"a1": ({"a": 2}, 5), "b1": ({"b": 2}, 6)},
            {"gpus": 2, "nodelist": ("b",)},
            ["b1"],
        ),
    ],
)
def test_the_cheapest_are_chosen(nodes, jobs, spec, ends):
    assert chosen(nodes, jobs, **spec) == ends


def test_a_node_that_cannot_be_freed_enough_is_left_alone():
    """Beside the victim on it there is one that may not be ended."""
    pool, victims = a_pool(
        {"a": 4, "b": 4}, {"keep": ({"a": 3}, 0.0), "a1": ({"a": 1}, 1.0), "b1": ({"b": 4}, 50.0)}
    )
    found = choose(pool, Finder(pool, {}), shape_of(a_spec(gpus=4)), victims=victims[1:], ending=())
    assert found == ["b1"]


def test_a_job_without_gpus_is_ended_for_its_cpus():
    pool, _ = a_pool({"a": 1}, {})
    slot = pool.slots[NodeId("a")]
    pool.take(JobId("cpu"), 0.0, 1e6, [(slot, Hold(0, 8, 0))])
    finder, shape = Finder(pool, {}), shape_of(a_spec(gpus=0, cpus=4))
    assert choose(pool, finder, shape, victims=[Victim(JobId("cpu"), 0.0, 5.0)], ending=()) == ["cpu"]
    assert choose(pool, finder, shape, victims=[], ending=[JobId("cpu")]) == []


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_for_one_node_no_other_choice_costs_less(data):
    nodes = {name: data.draw(st.integers(1, 4), label=name) for name in "ab"}
    jobs, free = {}, dict(nodes)
    for number in range(data.draw(st.integers(1, 5))):
        where = {}
        for node in data.draw(st.sampled_from(["a", "b", "ab"])):
            gpus = data.draw(st.integers(1, 2))
            if free[node] >= gpus:
                free[node] -= gpus
                where[node] = gpus
        if where:
            jobs[f"j{number}"] = (where, float(data.draw(st.integers(0, 9))))
    gpus = data.draw(st.integers(1, 4))

    def enough(those):
        return any(free[node] + sum(jobs[one][0].get(node, 0) for one in those) >= gpus for node in nodes)

    ways = [
        those for size in range(len(jobs) + 1) for those in combinations(sorted(jobs), size) if enough(those)
    ]
    found = chosen(nodes, jobs, gpus=gpus)

    if not ways:
        assert found == []
        return
    assert enough(found)
    assert sum(jobs[one][1] for one in found) == min(sum(jobs[one][1] for one in way) for way in ways)
    # Nobody is ended who need not be.
    assert not any(enough([other for other in found if other != one]) for one in found)
