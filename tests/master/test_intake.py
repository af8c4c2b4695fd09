"""Requests become jobs: arrays all or none, dependencies looked up, orders of owners and administrators."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Conflict, Forbidden, InvalidRequest, NotFound
from mgpu_jupyter.master import calls, intake
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Quota, Scheduling
from mgpu_jupyter.model.waits import After, Dependency
from mgpu_jupyter.scheduler.events import JobChanged, TaskReported
from mgpu_jupyter.scheduler.model import ArrayPart, Policy
from tests.builders import a_spec, ended, status
from tests.master.bench import Bench


@pytest.fixture
def bench():
    bench = Bench()
    bench.join()
    return bench


def submit(bench, key=None, user="ann", **spec):
    """Submit one request; return its jobs, or the refusal."""
    bench.submit((a_spec(**spec), key), user=user)
    answer = bench.turn()
    return answer[0] if isinstance(answer, list) else answer


def end(bench, job, exit_code=0):
    job = bench.master.state.jobs[job.id]
    bench.nodes.tell(
        TaskReported(at=10.0, status=status(job)),
        TaskReported(at=20.0, status=ended(job, exit_code=exit_code)),
    )
    bench.master.turn()


def test_an_array_becomes_one_job_for_each_number_in_one_commit(bench):
    bench.diary.clear()
    jobs = submit(bench, array="1-5:2%2", gpus=1)

    array_id = jobs[0].array.id
    assert [job.array for job in jobs] == [ArrayPart(array_id, index, 2, 3, 1, 5) for index in (1, 3, 5)]
    assert [entry for entry in bench.diary if entry[0] == "commit"] == [
        ("commit", ["queued", "starting", "starting"])
    ]
    assert array_id not in bench.master.state.jobs
    assert [job.id for job in bench.store.find_array(array_id)] == [job.id for job in jobs]


def test_a_key_covers_the_whole_array_within_a_turn_too(bench):
    bench.submit((a_spec(array="0-2"), "k"), (a_spec(array="0-2"), "k"))
    first, second = bench.turn()
    third = submit(bench, key="k", array="0-2")
    other = submit(bench, key="k", array="0-3")

    assert [job.id for job in first] == [job.id for job in second] == [job.id for job in third]
    assert isinstance(other, Conflict)
    assert len(bench.master.state.jobs) == 3


def test_an_array_beyond_a_quota_is_refused_whole_and_a_bulk_counts_together(bench):
    bench.master = bench.new_master(Policy(scheduling=Scheduling(quota=Quota(queued=3))))
    refused = submit(bench, array="1-4")
    assert (type(refused), refused.code) == (Conflict, "quota")
    assert refused.message == (
        "User ann may have 3 jobs waiting and has 0; this asks for 4 more: wait until some have started, or "
        "cancel some."
    )
    bench.submit(*[(a_spec(), None)] * 4)
    assert bench.turn().code == "quota"
    assert bench.master.state.jobs == {}
    assert len(submit(bench, array="1-3")) == 3


def test_an_array_of_long_requests_and_too_many_waits_are_refused(bench, monkeypatch):
    assert submit(bench, array="1-10000", command=(), script="x" * 7000).code == "array-too-large"
    monkeypatch.setattr(intake, "MAX_WAITS", 10)
    jobs = submit(bench, array="0-5", hold=True)
    refused = submit(bench, array="0-1", dependency=f"afterok:{jobs[0].array.id}")
    assert (type(refused), refused.code) == (InvalidRequest, "too-many-waits")


def test_dependencies_are_looked_up_at_submit(bench):
    good, bad, going = (submit(bench)[0] for _ in range(3))
    end(bench, good), end(bench, bad, exit_code=1)

    (met,) = submit(bench, dependency=f"afterok:{good.id},afternotok:{bad.id},afterany:{bad.id}")
    (waits,) = submit(bench, dependency=f"afterok:{good.id}:{going.id}")
    never = submit(bench, dependency=f"afterok:{bad.id}")
    unknown = submit(bench, dependency="afterok:ZZZZ9999")

    assert (met.after, waits.after) == ((), (Dependency(After.OK, going.id),))
    assert (type(never), never.message) == (
        Conflict,
        f"--dependency afterok:{bad.id} can never hold, since job {bad.id} failed: leave it out.",
    )
    assert (type(unknown), unknown.code) == (NotFound, "no-such-job")


def test_the_id_of_an_array_stands_for_all_its_jobs(bench):
    jobs = submit(bench, array="0-2")
    end(bench, jobs[0])
    (gate,) = submit(bench, dependency=f"afterok:{jobs[0].array.id}")
    assert gate.after == tuple(Dependency(After.OK, job.id) for job in jobs[1:])
    end(bench, jobs[1]), end(bench, jobs[2])
    assert bench.master.state.jobs[gate.id].state is JobState.STARTING


def test_a_job_can_only_wait_for_jobs_that_exist_so_there_is_no_circle(bench):
    """A job's own id is not known before it is taken, and what it waits for cannot be changed later."""
    (first,) = submit(bench, hold=True)
    (second,) = submit(bench, hold=True, dependency=f"afterok:{first.id}")
    assert "dependency" not in JobChanged.__struct_fields__
    assert all(wait.job_id == first.id for wait in second.after)
    assert second.number > first.number


def test_a_parent_that_ends_in_the_same_turn_is_judged_as_it_is_then(bench):
    (parent,) = submit(bench)
    job = bench.master.state.jobs[parent.id]
    bench.nodes.tell(
        TaskReported(at=10.0, status=status(job)), TaskReported(at=20.0, status=ended(job, exit_code=3))
    )
    never = submit(bench, dependency=f"afterok:{parent.id}")
    assert never.code == "dependency-never"


def test_waits_and_throttles_survive_a_restart(bench):
    (parent,) = submit(bench)
    jobs = submit(bench, array="0-2%1", dependency=f"afterok:{parent.id}")
    bench.master = bench.new_master()
    bench.master.recover()
    bench.join()
    assert [bench.master.state.jobs[job.id].after for job in jobs] == [(Dependency(After.OK, parent.id),)] * 3
    end(bench, parent)
    states = sorted(bench.master.state.jobs[job.id].state.value for job in jobs)
    assert states == ["queued", "queued", "starting"]


# --- orders ----------------------------------------------------------------------------------------


def change(bench, new, by="ann", is_admin=False, **what):
    def wanted(at, job_id, who):
        return JobChanged(at=at, job_id=job_id, by=who, **what)

    bench.post(calls.change(new, by, wanted, is_admin=is_admin, answer=bench.answer))
    return bench.turn()


def requeue(bench, new, by="ann", is_admin=False):
    bench.post(calls.requeue(new, by, is_admin=is_admin, answer=bench.answer))
    return bench.turn()


def test_only_the_owner_and_administrators_change_a_job(bench):
    (job,) = submit(bench, hold=True)
    for refused in (change(bench, job.id, by="bob", held=False), requeue(bench, job.id, by="bob")):
        assert (type(refused), refused.code) == (Forbidden, "not-yours")
    assert isinstance(change(bench, "ZZZZ9999", held=False), NotFound)
    assert change(bench, job.id, priority=7).priority == 7
    assert change(bench, job.id, by="root", is_admin=True, held=False).held is False
    assert bench.master.state.jobs[job.id].state is JobState.STARTING


def test_orders_about_an_array_reach_those_that_they_can(bench):
    jobs = submit(bench, array="0-2%1")
    array_id = jobs[0].array.id

    held = change(bench, array_id, held=True)
    again = requeue(bench, array_id)
    bench.cancel(array_id)
    cancelled = bench.turn()

    assert [(job.id, job.held) for job in held] == [(jobs[1].id, True), (jobs[2].id, True)]
    assert [job.state for job in again] == [JobState.STOPPING, JobState.QUEUED, JobState.QUEUED]
    assert [job.state for job in cancelled] == [JobState.STOPPING, JobState.CANCELLED, JobState.CANCELLED]
    bench.nodes.tell(
        TaskReported(at=20.0, status=ended(bench.master.state.jobs[jobs[0].id], exit_code=None, signal=15))
    )
    bench.master.turn()
    over = change(bench, array_id, held=True)
    assert (type(over), over.code) == (Conflict, "job-over")
    assert requeue(bench, array_id).message == f"Job {jobs[0].id} was cancelled: submit it again."


def test_a_job_that_ended_is_found_in_the_store(bench):
    (job,) = submit(bench)
    end(bench, job)
    refused = requeue(bench, job.id)
    assert (type(refused), refused.message) == (Conflict, f"Job {job.id} completed: submit it again.")
    assert bench.store.find_job(job.id) == replace(bench.store.find_job(job.id), state=JobState.COMPLETED)
