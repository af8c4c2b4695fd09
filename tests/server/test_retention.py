"""Retention over a real server: old, superfluous and large jobs go with their output, a page at a time; what
runs stays.
"""

from __future__ import annotations

import time

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.cluster_file import Retention
from mgpu_jupyter.scheduler.events import NodeJoined, TaskReported
from mgpu_jupyter.server import retention
from mgpu_jupyter.server.retention import Round, tidy
from tests.builders import a_spec, ended, facts, status

DAY_S = 86_400.0


@pytest.fixture
def jobs(api, tell, app):
    """Make jobs that ended so many days ago, each with 100 bytes of output, and one that runs."""

    async def make(*days):
        now = time.time()
        await tell(NodeJoined(at=now, node_id=NodeId("n1"), facts=facts("n1")))
        names = []
        for age in (*days, None):
            _, submitted = await api("jobs", "POST", a_spec(gpus=0))
            names.append(submitted["job_id"])
            saved = app.service.saved_job(names[-1]).job
            folder = app.service.log_root / names[-1][:2]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{names[-1]}.1.0.log").write_bytes(b"x" * 100)
            at = now - (age or 0) * DAY_S
            await tell(TaskReported(at=at, status=status(saved, started_at=at)))
            if age is not None:
                await tell(TaskReported(at=at, status=ended(saved, started_at=at, at=at)))
        return names

    return make


async def left(api):
    return [job["id"] for job in (await api("jobs"))[1]["jobs"]][::-1]


async def test_jobs_that_ended_long_ago_go_with_their_output(api, jobs, app):
    old, older, young, runs = await jobs(40, 50, 3)
    done = await tidy(app.service, Retention(max_age_days=30))

    assert done == Round(jobs=2, output_bytes=200)
    assert await left(api) == [young, runs]
    assert [path.name[:8] for path in sorted(app.service.log_root.rglob("*.log"))] == sorted([young, runs])
    assert [
        (await api(f"jobs/{job}{of}"))[1].get("code") for job in (old, older) for of in ("", "/trace")
    ] == ["no-such-job"] * 4
    assert await tidy(app.service, Retention(max_age_days=30)) == Round()
    assert await left(api) == [young, runs]


async def test_too_many_and_too_large_the_first_go_first(api, jobs, app):
    first, second, third, runs = await jobs(1, 1, 1)
    assert (await tidy(app.service, Retention(max_jobs=2))).jobs == 1
    assert await left(api) == [second, third, runs]
    assert (await tidy(app.service, Retention(max_output_gb=250 / retention.GB))).jobs == 1
    assert await left(api) == [third, runs]
    assert (await tidy(app.service, Retention())) == Round()
    assert await left(api) == [third, runs]
    assert [(await api(f"jobs/{job}"))[1].get("code") for job in (first, second)] == ["no-such-job"] * 2


async def test_a_round_is_bounded_and_the_next_goes_on_where_it_ended(jobs, app, monkeypatch, api):
    names = await jobs(1, 40, 40)
    monkeypatch.setattr(retention, "PAGE", 1)
    wanted = Retention(max_age_days=30)
    done, rounds = Round(has_more=True), []
    while done.has_more:
        done = await tidy(app.service, wanted, done.after)
        rounds.append(done.jobs)
    assert rounds == [0, 1, 1, 0]
    assert await left(api) == [names[0], names[3]]
