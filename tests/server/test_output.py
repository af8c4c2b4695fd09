"""Output of jobs over REST: bytes, frames and streams, from any offset to the end."""

from __future__ import annotations

import asyncio
import json

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.model import STDERR, STDOUT
from mgpu_jupyter.api.route import NDJSON, PREFIX
from mgpu_jupyter.master.ports import LogKey
from mgpu_jupyter.scheduler.events import TaskReported
from mgpu_jupyter.store.logs import LogWriter, cut_marker
from tests.builders import ended
from tests.server.conftest import LIMIT_S, read_until


@pytest.fixture
def writer(app):
    writer = LogWriter(app.service.log_root)
    yield writer
    writer.close()


async def test_output_as_bytes_has_offsets_and_says_when_it_is_complete(api, jp_fetch, run_job, writer, tell):
    job = await run_job()
    key = LogKey(job.id, 1, 0)
    writer.append(key, STDOUT, 0, b"hello ")
    writer.append(key, STDERR, 0, b"world")

    answer = await jp_fetch(PREFIX, "jobs", job.id, "output")
    assert answer.body == b"hello world"
    assert (answer.headers["X-Mgpu-Next-Offset"], answer.headers["X-Mgpu-Complete"]) == ("11", "false")
    await tell(TaskReported(at=3.0, status=replace(ended(job), stdout_bytes=6, stderr_bytes=5)))
    answer = await jp_fetch(PREFIX, "jobs", job.id, "output", params={"offset": 6})
    assert (answer.body, answer.headers["X-Mgpu-Complete"]) == (b"world", "true")
    for params in ({"offset": "-1"}, {"limit": "0"}, {"rank": "-5"}):
        assert (await api(f"jobs/{job.id}/output", params=params))[0] == 400
    code, body = await api(f"jobs/{job.id}/output", params={"offsets": "x"}, headers={"Accept": NDJSON})
    assert (code, body["code"]) == (400, "bad-offsets")


async def test_output_that_was_cut_is_complete_where_it_was_cut(app, jp_fetch, run_job, tell):
    job = await run_job()
    cut = LogWriter(app.service.log_root, cap_bytes=4)
    cut.append(LogKey(job.id, 1, 0), STDOUT, 0, b"0123456789")
    cut.close()
    await tell(TaskReported(at=3.0, status=replace(ended(job), stdout_bytes=1_000)))

    answer = await jp_fetch(PREFIX, "jobs", job.id, "output")
    frames = await jp_fetch(
        PREFIX, "jobs", job.id, "output", params={"follow": "1"}, headers={"Accept": NDJSON}
    )

    assert (answer.body, answer.headers["X-Mgpu-Complete"]) == (b"0123" + cut_marker(4), "true")
    assert [json.loads(line).get("stream") for line in frames.body.splitlines()] == [
        None,
        "stdout",
        "stderr",
        None,
    ]


async def test_frames_that_are_there_now(jp_fetch, run_job, writer):
    job = await run_job()
    writer.append(LogKey(job.id, 1, 0), STDOUT, 0, b"out")
    writer.append(LogKey(job.id, 1, 0), STDERR, 0, b"err")

    answer = await jp_fetch(
        PREFIX, "jobs", job.id, "output", headers={"Accept": NDJSON}, params={"offsets": "0:1"}
    )

    assert [json.loads(line) for line in answer.body.splitlines()] == [
        {"type": "output", "rank": 0, "stream": "stdout", "offset": 1, "data": "dXQ=", "attempt": 1},
        {"type": "output", "rank": 0, "stream": "stderr", "offset": 3, "data": "ZXJy", "attempt": 1},
    ]


async def test_a_stream_replays_follows_and_ends_when_all_output_is_there(
    app, jp_ws_fetch, run_job, writer, tell
):
    job = await run_job()
    key = LogKey(job.id, 1, 0)
    writer.append(key, STDOUT, 0, b"before ")
    socket = await jp_ws_fetch(PREFIX, "jobs", job.id, "stream")
    first = await read_until(socket, lambda frame: frame["type"] == "output")
    assert [frame["type"] for frame in first] == ["job", "output"]

    await tell(TaskReported(at=3.0, status=replace(ended(job), stdout_bytes=12)))
    running = await read_until(socket, lambda frame: frame["type"] == "job")
    assert running[-1]["job"]["state"] == "completed"
    writer.append(key, STDOUT, 7, b"after")
    app.service.hub.publish([], [], {job.id})
    last = await read_until(socket, lambda frame: frame["type"] == "end")
    assert [frame.get("data") for frame in last] == ["YWZ0ZXI=", None]
    assert await asyncio.wait_for(socket.read_message(), LIMIT_S) is None
    socket.close()


async def test_following_over_http_sends_bytes_or_frames_until_the_end(jp_fetch, run_job, writer, tell):
    job = await run_job()
    writer.append(LogKey(job.id, 1, 0), STDOUT, 0, b"hello")
    await tell(TaskReported(at=3.0, status=replace(ended(job), stdout_bytes=5)))

    plain = await jp_fetch(PREFIX, "jobs", job.id, "output", params={"follow": "1"})
    frames = await jp_fetch(
        PREFIX, "jobs", job.id, "output", params={"follow": "true"}, headers={"Accept": NDJSON}
    )
    other_rank = await jp_fetch(
        PREFIX, "jobs", job.id, "output", params={"follow": "1", "rank": "10000"}, headers={"Accept": NDJSON}
    )

    assert plain.body == b"hello"
    assert [json.loads(line)["type"] for line in frames.body.splitlines()] == ["job", "output", "end"]
    assert [json.loads(line)["type"] for line in other_rank.body.splitlines()] == ["job", "end"]


async def test_a_new_attempt_is_sent_from_its_start(app, jp_fetch, run_job, writer, tell):
    job = await run_job()
    writer.append(LogKey(job.id, 1, 0), STDOUT, 0, b"first attempt")
    await tell(TaskReported(at=3.0, status=ended(job, exit_code=None, signal=9, lost=True, reason="gone")))
    again = app.service.saved_job(job.id).job
    assert again.attempt_key == AttemptKey(job.id, 2, 2)
    writer.append(LogKey(job.id, 2, 0), STDOUT, 0, b"second")
    await tell(TaskReported(at=4.0, status=replace(ended(again), stdout_bytes=6)))

    answer = await jp_fetch(
        PREFIX,
        "jobs",
        job.id,
        "output",
        params={"follow": "1", "offsets": "0:13", "attempt": "1"},
        headers={"Accept": NDJSON},
    )

    frames = [json.loads(line) for line in answer.body.splitlines()]
    assert [(frame["offset"], frame["attempt"]) for frame in frames if frame["type"] == "output"] == [(0, 2)]


async def test_output_of_a_node_that_is_away_becomes_a_gap(app, jp_fetch, run_job, tell, monkeypatch):
    monkeypatch.setattr("mgpu_jupyter.server.follow.OUTPUT_PATIENCE_S", 0.01)
    monkeypatch.setattr("mgpu_jupyter.server.follow.WHY_S", 0.02)
    job = await run_job()
    await tell(TaskReported(at=3.0, status=replace(ended(job), stdout_bytes=5)))
    app.service.master._nodes.clear()

    answer = await jp_fetch(
        PREFIX, "jobs", job.id, "output", params={"follow": "1"}, headers={"Accept": NDJSON}
    )

    frames = [json.loads(line) for line in answer.body.splitlines()]
    assert [frame["type"] for frame in frames if frame["type"] != "ping"] == ["job", "gap", "end"]
