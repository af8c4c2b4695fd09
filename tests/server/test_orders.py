"""Orders about jobs over REST: arrays, hold and release, priority and limit, requeue; whole bodies."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler.events import NodeJoined, TaskReported
from tests.builders import a_spec, ended, facts, status
from tests.server.conftest import submit


async def patch(api, job_id, **body):
    return await api(f"jobs/{job_id}", "PATCH", body)


async def test_an_array_is_submitted_listed_and_cancelled_by_its_id(api, app):
    headers = {"Idempotency-Key": "sweep"}
    code, first = await api("jobs", "POST", a_spec(array="3-5"), headers=headers)
    assert (code, first["job_id"], first["state"]) == (201, first["job_ids"][0], "queued")
    assert await api("jobs", "POST", a_spec(array="3-5"), headers=headers) == (201, first)

    _, page = await api("jobs", params={"array": first["array_id"]})
    assert [(job["id"], job["array_id"], job["array_index"]) for job in page["jobs"]] == [
        (job_id, first["array_id"], index)
        for job_id, index in zip(reversed(first["job_ids"]), (5, 4, 3), strict=True)
    ]
    answer = {"job_id": first["array_id"], "state": "cancelled", "job_ids": first["job_ids"]}
    assert await api(f"jobs/{first['array_id']}/cancel", "POST") == (202, answer)
    assert await api("jobs/ZZZZ9999/cancel", "POST") == (
        404,
        {
            "code": "no-such-job",
            "message": "There is no job ZZZZ9999: see `mgpu_queue --all`.",
            "details": {},
        },
    )


async def test_a_bulk_may_have_arrays(api, app):
    code, body = await api("jobs/bulk", "POST", {"jobs": [{"spec": a_spec(array="0-1")}, {"spec": a_spec()}]})
    assert (code, [len(job.get("job_ids", ())) for job in body["jobs"]]) == (201, [2, 0])


async def test_hold_release_priority_and_limit(api, app):
    job_id = await submit(api)
    assert await patch(api, job_id, hold=True) == (200, {"job_id": job_id, "state": "queued"})
    _, job = await api(f"jobs/{job_id}")
    assert (job["reason_code"], job["place"]) == ("held", None)
    await patch(api, job_id, release=True, priority=5, time_limit_s=60)
    _, job = await api(f"jobs/{job_id}")
    assert (job["priority"], job["time_limit_s"], job["place"]) == (5, 60.0, 1)


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "nothing-to-change"),
        ({"hold": True, "release": True}, 400, "contradiction"),
        ({"priority": 2**40}, 400, "invalid"),
        ({"prio": 1}, 400, "invalid"),
        ({"time_limit_s": 0}, 400, "invalid"),
    ],
)
async def test_changes_that_make_no_sense(api, app, body, status, code):
    job_id = await submit(api)
    answered, error = await patch(api, job_id, **body)
    assert (answered, error["code"]) == (status, code)


async def test_a_running_job_is_queued_again_and_one_that_is_over_is_not(api, app, tell):
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))
    job_id = await submit(api)
    job = app.service.saved_job(job_id).job
    await tell(TaskReported(at=2.0, status=status(job)))
    assert await api(f"jobs/{job_id}/requeue", "POST") == (202, {"job_id": job_id, "state": "stopping"})
    await tell(TaskReported(at=3.0, status=ended(job, exit_code=None, signal=15)))
    job = app.service.saved_job(job_id).job
    assert (job.state, job.attempt) == ("starting", 2)
    assert (await patch(api, job_id, priority=1))[1]["code"] == "job-started"

    await tell(TaskReported(at=4.0, status=status(job)), TaskReported(at=5.0, status=ended(job)))
    assert await api(f"jobs/{job_id}/requeue", "POST") == (
        409,
        {"code": "job-over", "message": f"Job {job_id} completed: submit it again.", "details": {}},
    )


async def test_dependencies_over_rest(api, app):
    parent = await submit(api, hold=True)
    child = await submit(api, dependency=f"afterok:{parent}")
    _, job = await api(f"jobs/{child}")
    assert (job["reason_code"], job["reason"]) == (
        "dependency",
        f"It waits for other jobs: afterok:{parent}.",
    )
    code, error = await api("jobs", "POST", a_spec(dependency="afterok:ZZZZ9999"))
    assert (code, error["code"]) == (404, "no-such-job")
    await api(f"jobs/{parent}/cancel", "POST")
    _, job = await api(f"jobs/{child}")
    assert (job["state"], job["reason_code"]) == ("cancelled", "dependency-never")
    code, error = await api("jobs", "POST", a_spec(dependency=f"afterok:{parent}"))
    assert (code, error["code"]) == (409, "dependency-never")
