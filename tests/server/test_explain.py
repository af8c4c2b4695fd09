"""Explain and dry run over REST: whole answers, offers that work when they are taken, and answers that
outlive the job and the server.
"""

from __future__ import annotations

import time

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler.events import LaunchWasRefused, NodeJoined, TaskReported
from tests.builders import a_spec, ended, facts, status


@pytest.fixture
def fill(api, tell):
    """Let two nodes join, of which n1 has 3 free GPUs and n2 one."""

    async def fill():
        for name in ("n1", "n2"):
            await tell(NodeJoined(at=1.0, node_id=NodeId(name), facts=facts(name, 4)))
        for name, gpus in (("n1", 1), ("n2", 3)):
            assert (await api("jobs", "POST", a_spec(gpus=gpus, nodelist=(name,), time_limit_s=1000.0)))[
                0
            ] == 201

    return fill


async def run_to_its_end(tell, job):
    at = time.time()
    over = ended(job, started_at=at, at=at + 1)
    await tell(TaskReported(at=at, status=status(job, started_at=at)), TaskReported(at=at + 1, status=over))


async def test_a_waiting_job_is_explained_and_its_offer_starts(api, fill, app):
    await fill()
    _, submitted = await api("jobs", "POST", a_spec(gpus=4, name="train"))
    code, told = await api(f"jobs/{submitted['job_id']}/explain")

    assert code == 200
    assert (told["job_id"], told["verdict"], told["code"]) == (submitted["job_id"], "not_now", "busy")
    assert told["text"] == "Not now: waits for 4 GPUs free on one node: n1 has 3, n2 has 1."
    assert [(out["check"], out["text"], out["nodes"]) for out in told["units"][0]["excluded"]] == [
        ("gpus", "3 GPUs free, 4 needed.", ["n1"]),
        ("gpus", "1 GPU free, 4 needed.", ["n2"]),
    ]
    assert told["expected"]["promised"] is True
    assert [term["name"] for term in told["terms"]] == [
        "age",
        "duration",
        "work",
        "size",
        "fair share",
        "priority",
        "qos",
    ]
    assert [record["code"] for record in told["history"]] == ["promised-start", "busy"]
    assert told["offers"] == [
        {
            "text": "3 GPUs instead of 4",
            "flags": ["--gpus 3"],
            "patch": {"gpus": 3, "gpus_per_node": None},
            "where": [{"node": "n1", "gpus": [1, 2, 3]}],
        }
    ]
    _, outlook = await api("nodes/n1/outlook")
    assert [(one["job_id"], one["nodes"], one["start_at"]) for one in outlook["jobs"]] == [
        (submitted["job_id"], ["n1"], told["expected"]["at"])
    ]
    assert (await api("nodes/none/outlook"))[1]["code"] == "no-such-node"
    _, listed = await api(f"jobs/{submitted['job_id']}")
    assert listed["expected_start_at"] == told["expected"]["at"]

    await api(f"jobs/{submitted['job_id']}/cancel", "POST")
    _, taken = await api("jobs", "POST", {"command": ["true"], "gpus": 4, **told["offers"][0]["patch"]})
    assert app.service.saved_job(taken["job_id"]).job.placements[0].gpu_indices == (1, 2, 3)


async def test_what_a_job_was_told_outlives_it(api, fill, tell, app):
    await fill()
    _, submitted = await api("jobs", "POST", a_spec(gpus=4))
    _, first = await api(f"jobs/{submitted['job_id']}/explain")
    for job in [job for job in app.service.master.state.jobs.values() if job.placements]:
        await run_to_its_end(tell, job)
    job = app.service.saved_job(submitted["job_id"]).job
    await run_to_its_end(tell, job)
    code, told = await api(f"jobs/{submitted['job_id']}/explain")

    assert (code, told["verdict"], told["code"], told["text"]) == (
        200,
        "over",
        "completed",
        "It is over; it completed on n1.",
    )
    assert told["history"][: len(first["history"])] == first["history"]
    assert told["history"][1]["units"][0]["excluded"][0]["passed"][0] == "named"


async def test_a_job_that_started_at_once_has_no_history_of_others(api, fill, tell, app):
    """One of its shape waited before it and was cancelled; another waits behind it."""
    await fill()
    busy = a_spec(gpus=3, nodelist=("n1",), time_limit_s=1000.0)
    _, running = await api("jobs", "POST", busy)
    _, gone = await api("jobs", "POST", busy)
    assert (await api(f"jobs/{gone['job_id']}/explain"))[1]["history"] != []
    await api(f"jobs/{gone['job_id']}/cancel", "POST")
    await run_to_its_end(tell, app.service.master.state.jobs[running["job_id"]])

    _, at_once = await api("jobs", "POST", busy)
    _, behind = await api("jobs", "POST", busy)

    assert (await api(f"jobs/{behind['job_id']}/explain"))[1]["history"] != []
    _, told = await api(f"jobs/{at_once['job_id']}/explain")
    assert (told["verdict"], told["history"]) == ("started", [])


async def test_a_failed_start_names_its_node_and_the_rank_has_its_end(api, tell, app):
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))
    _, made = await api("jobs", "POST", a_spec(gpus=1))
    job = app.service.master.state.jobs[made["job_id"]]
    at = time.time()
    why = {"code": "no-program", "message": "There is no program nix.", "fault": "request", "exit_code": 127}
    await tell(LaunchWasRefused(at=at, node_id=NodeId("n1"), key=job.attempt_key, **why))

    _, told = await api(f"jobs/{job.id}")
    assert (told["state"], told["reason"]) == (
        "failed",
        "It could not be started on n1: There is no program nix.",
    )
    _, trace = await api(f"jobs/{job.id}/trace")
    (attempt,) = trace["attempts"]
    assert [(one["step"], one["text"]) for one in attempt["steps"] if one["step"] == "ended"] == [
        ("ended", "not started on n1: There is no program nix.")
    ]
    assert [(one["rank"], one["ended_at"], one["started_at"]) for one in attempt["ranks"]] == [(0, at, None)]


@pytest.mark.parametrize(
    ("spec", "verdict", "code", "offers"),
    [
        ({"gpus": 3}, "now", "now", []),
        ({"gpus": 4}, "not_now", "busy", ["3 GPUs instead of 4"]),
        ({"gpus": 9}, "never", "too-large", ["3 GPUs instead of 9"]),
        ({"gpus": 1, "partition": "none"}, "never", "unknown-partition", ["without --partition"]),
        ({"gpus": 3, "exclude": ["n1"]}, "not_now", "busy", ["without --exclude n1", "1 GPU instead of 3"]),
    ],
)
async def test_a_dry_run_explains_and_submits_nothing(api, fill, spec, verdict, code, offers):
    await fill()
    status_code, told = await api("jobs/dry-run", "POST", {"command": ["true"], **spec})
    assert (status_code, told["job_id"], told["verdict"], told["code"]) == (200, None, verdict, code)
    assert [offer["text"] for offer in told["offers"]] == offers
    assert (await api("cluster"))[1]["jobs"]["queued"] == 0


async def test_what_makes_no_sense_is_refused(api):
    code, error = await api("jobs/dry-run", "POST", {"command": ["true"], "gpus": 3, "nodes": 2})
    assert (code, error["code"]) == (400, "gpu-contradiction")
    code, error = await api("jobs/NOSUCH00/explain")
    assert (code, error["code"]) == (404, "no-such-job")
