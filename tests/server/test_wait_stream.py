"""Many jobs waited for by one request: what comes of them, once, until all are over."""

from __future__ import annotations

import asyncio
import json

import pytest

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.master.ports import SavedJob, SavedState
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.events import TaskReported
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.wait_stream import WaitStream
from tests.builders import a_spec, ended
from tests.server.conftest import LIMIT_S, submit


def a_job(number, **changes):
    job_id = JobId(f"JOB{number:05}")
    return Job(id=job_id, number=number, user="ann", spec=a_spec(), submitted_at=1.0, **changes)


def frames_of(body):
    return [json.loads(line) for line in body.splitlines()]


async def wait_for(jp_fetch, *job_ids, **options):
    body = json.dumps({"job_ids": job_ids})
    return await jp_fetch(
        PREFIX, "jobs", "wait", method="POST", body=body, request_timeout=LIMIT_S, **options
    )


async def test_ends_are_told_as_they_come_and_the_stream_ends_with_the_last(api, jp_fetch, run_job, tell):
    running = await run_job()
    over = await run_job()
    waiting = await submit(api, hold=True)
    await tell(TaskReported(at=3.0, status=ended(over, exit_code=3)))
    parts = []
    first_is_there = asyncio.Event()

    def take(part):
        parts.append(part)
        first_is_there.set()

    answer = asyncio.ensure_future(
        wait_for(jp_fetch, running.id, over.id, waiting, over.id, streaming_callback=take)
    )
    await asyncio.wait_for(first_is_there.wait(), LIMIT_S)
    assert frames_of(b"".join(parts)) == [
        {"type": "progress", "waiting": 1, "running": 1, "ended": [[over.id, "failed", 3]]}
    ]
    parts.clear()
    await tell(TaskReported(at=4.0, status=ended(running)))
    assert (await api(f"jobs/{waiting}/cancel", "POST"))[0] == 202
    await asyncio.wait_for(answer, LIMIT_S)

    told = frames_of(b"".join(parts))
    assert [one for frame in told for one in frame["ended"]] == [
        [running.id, "completed", 0],
        [waiting, "cancelled", None],
    ]
    assert (told[-1]["waiting"], told[-1]["running"]) == (0, 0)


async def test_what_is_over_already_is_one_frame(jp_fetch, run_job, tell):
    job = await run_job()
    await tell(TaskReported(at=3.0, status=ended(job)))

    answer = await wait_for(jp_fetch, job.id)

    assert answer.headers["Content-Type"] == "application/x-ndjson"
    assert frames_of(answer.body) == [
        {"type": "progress", "waiting": 0, "running": 0, "ended": [[job.id, "completed", 0]]}
    ]


@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"job_ids": ["NOSUCH00"]}, 404, "There is no job NOSUCH00: see `mgpu_queue --all`."),
        ({"job_ids": []}, 400, "job_ids"),
        ({}, 400, "job_ids"),
    ],
)
async def test_what_cannot_be_waited_for(api, body, code, text):
    answered, told = await api("jobs/wait", "POST", body)
    assert (answered, text in told["message"]) == (code, True), told


async def test_many_jobs_are_looked_up_by_their_ids(api, run_job):
    first, second, _ = [await run_job() for _ in range(3)]
    code, body = await api("jobs", params={"ids": f"{first.id},{second.id},NOSUCH00"})
    assert (code, [job["id"] for job in body["jobs"]]) == (200, [second.id, first.id])
    code, body = await api("jobs", params={"ids": "one"})
    assert (code, body["message"]) == (
        400,
        "ids must be at most 500 job ids with commas between: see `mgpu_queue`.",
    )


async def test_what_happens_while_the_store_is_read_is_newer_than_what_it_says():
    one, other = a_job(1), a_job(2)
    waiter = WaitStream()
    waiter.hear([SavedJob(a_job(1, state=JobState.COMPLETED, exit_code=0), 7), SavedJob(a_job(3), 8)])
    waiter.begin({one.id: SavedState(JobState.RUNNING, None), other.id: SavedState(JobState.RUNNING, None)})

    frames = waiter.frames()
    first = await anext(frames)
    waiter.hear([SavedJob(a_job(2, state=JobState.RUNNING), 9)])
    waiter.hear([SavedJob(a_job(2, state=JobState.STOPPING), 10)])
    waiter.hear([SavedJob(a_job(2, state=JobState.FAILED, exit_code=9), 11)])
    second = await anext(frames)

    assert [
        (frame.waiting, frame.running, list(map(tuple_of, frame.ended))) for frame in (first, second)
    ] == [
        (0, 1, [(one.id, "completed", 0)]),
        (0, 0, [(other.id, "failed", 9)]),
    ]
    with pytest.raises(StopAsyncIteration):
        await anext(frames)


async def test_a_connection_on_which_nothing_happens_is_kept_alive(monkeypatch):
    monkeypatch.setattr("mgpu_jupyter.server.wait_stream.PING_S", 0.01)
    waiter = WaitStream()
    waiter.begin({a_job(1).id: SavedState(JobState.QUEUED, None)})
    frames = waiter.frames()
    assert [type(await anext(frames)).__name__ for _ in range(3)] == [
        "ProgressFrame",
        "PingFrame",
        "PingFrame",
    ]


def tuple_of(one):
    return (one.id, one.state.value, one.exit_code)
