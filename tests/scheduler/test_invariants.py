"""The invariants themselves: each broken rule is found and named."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.model import GpuTrouble, Trouble
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.invariants import check
from mgpu_jupyter.scheduler.placement.shape import shape_of
from mgpu_jupyter.scheduler.planning.queue import Entry
from mgpu_jupyter.scheduler.planning.quotas import Claim
from tests.builders import Cluster, a_spec, placement


def a_cluster():
    cluster = Cluster(("n1", 2))
    job = cluster.started()
    return cluster, cluster.state, job


def test_a_sound_state_has_nothing_to_say():
    _, state, _ = a_cluster()

    assert check(state) == []


def test_a_final_job_in_the_books():
    _, state, job = a_cluster()
    state.jobs[job.id] = replace(job, state=JobState.COMPLETED)

    assert check(state) == [
        "JOB00001 is completed and still in the books",
        "JOB00001 is completed with 1 placements",
        "the pool knows of ['JOB00001']",
    ]


def test_a_queued_job_that_is_nowhere():
    cluster, state, _ = a_cluster()
    new = cluster.submit()
    state.queue.remove(new)

    assert check(state) == ["JOB00002 is queued but neither in the queue nor delayed"]


def test_a_running_job_in_the_queue():
    _, state, job = a_cluster()
    lane = state.queue.lane(shape_of(a_spec()))
    state.queue.add(
        Entry(job.id, 1, lane, base=0.0, duration=1.0, user="ann", account="", qos="", array=None),
        lambda *_: 0.0,
    )

    assert check(state) == ["JOB00001 is starting and still in the queue"]


def test_a_stop_without_a_cause_and_an_epoch_from_the_future():
    _, state, job = a_cluster()
    state.jobs[job.id] = replace(job, state=JobState.STOPPING, epoch=9)

    assert check(state) == [
        "JOB00001 is stopping without a cause",
        "JOB00001 has epoch 9, beyond the counter at 1",
    ]


def test_a_gpu_that_two_jobs_hold():
    cluster, state, _job = a_cluster()
    other = cluster.started()
    state.jobs[other.id] = replace(other, placements=(placement("n1", gpus=(0,), cpus=1),))

    assert check(state) == [
        "GPU-n1-0 on n1 is held by JOB00001 and JOB00002",
        (
            f"n1 says that its GPUs are held by {state.nodes['n1'].holders}, the jobs say {{'GPU-n1-0': "
            f"'JOB00001'}}"
        ),
        "n1 counts 0 CPUs taken, the jobs say 1",
    ]


def test_a_lost_gpu_that_a_job_goes_on_with_and_one_that_is_not_there():
    _, state, _ = a_cluster()
    lost = GpuTrouble(Trouble.LOST, "Gone.")
    state.nodes["n1"].blocked = {"GPU-n1-0": lost, "GPU-n1-1": lost, "GPU-n9-0": lost}

    assert check(state) == [
        "n1 blocks GPU-n9-0, which it does not have",
        "JOB00001 goes on with GPU-n1-0 of n1, which is lost",
        "n1 is placed by ['GPU-n1-1'], but [] is free",
    ]


def test_a_pool_that_is_not_in_step():
    _, state, _ = a_cluster()
    slot = state.pool.slots["n1"]
    slot.free_cpus -= 1
    slot.bucket = 7

    assert check(state) == ["n1 is placed by 7 CPUs, but 8 are free", "n1 with 1 free GPUs is in bucket 7"]


def test_quotas_that_are_not_in_step():
    _, state, job = a_cluster()
    state.quotas.hold(Claim(job.user, "", "", None, 1), 1)

    (told,) = check(state)
    assert told.startswith("quotas count {'jobs': {('user', 'ann'): 2,")
