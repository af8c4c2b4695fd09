"""Streams of the server in memory: from offsets on, held, of no job."""

from __future__ import annotations

import msgspec
import pytest

from mgpu_jupyter.api.frames import EndFrame, JobFrame
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.test_http import out
from tests.client.test_mock import JOB, SAYS, a_mock


def test_a_stream_goes_on_from_its_offsets() -> None:
    mock = a_mock(output=SAYS)
    client = Client(transport=mock)
    job = client.handle(JOB)
    running, end = mock.jobs[JOB].view(JobState.RUNNING), mock.jobs[JOB].view(JobState.COMPLETED)
    begins, ends = JobFrame(seq=2, job=running), EndFrame(job=end)

    assert list(job.follow()) == [begins, out(b"one\n", 0), out(b"two\n", 0, 1), out(b"three\n", 4), ends]
    assert list(job.follow({0: 2})) == [
        begins,
        out(b"e\n", 2),
        out(b"two\n", 0, 1),
        out(b"three\n", 4),
        ends,
    ]
    assert list(job.follow({0: 4, 1: 9}, rank=0)) == [begins, out(b"three\n", 4), ends]


def test_a_stream_of_a_job_that_waits() -> None:
    mock = a_mock(waits=True)
    mock.jobs[JOB].cancelled.set()
    entry = mock.jobs[JOB]
    assert list(Client(transport=mock).handle(JOB).follow()) == [
        JobFrame(seq=1, job=entry.view(JobState.QUEUED)),
        EndFrame(job=entry.view(JobState.CANCELLED)),
    ]
    mock = a_mock(reason="Busy.")
    states = [frame.job.state for frame in Client(transport=mock).handle(JOB).follow()]  # type: ignore[union-attr]
    assert states == ["queued", "running", "completed"]


def test_a_held_stream_waits_for_its_cancel() -> None:
    held: list[bool] = []
    mock = MockTransport(lambda _: Play(hold=True), on_hold=lambda: held.append(True))
    client = Client(transport=mock)
    stream = mock.open(
        Request(
            path=f"jobs/{client.submit_spec(JobSpec(command=('x',))).id}/output",
            headers={"Accept": "application/x-ndjson"},
        )
    )
    assert stream.status == 200
    assert b'"running"' in stream.read(1.0)
    for _ in range(2):
        with pytest.raises(TimeoutError):
            stream.read(0.001)
    client.cancel(JOB)
    assert b'"cancelled"' in stream.read(30.0)
    assert (stream.read(1.0), held) == (b"", [True, True])


def test_a_stream_of_no_job_and_a_closed_one() -> None:
    mock = a_mock()
    none = mock.open(Request(path="jobs/NONE0000/output", headers={"Accept": "application/x-ndjson"}))
    assert (none.status, b"no-such-job" in none.read(1.0)) == (404, True)
    assert mock.open(Request(path="jobs/MOCK0000/output")).status == 404
    stream = mock.open(Request(path="jobs/MOCK0000/output", headers={"Accept": "application/x-ndjson"}))
    stream.close()
    assert stream.read(1.0) == b""


def test_nothing_can_be_typed() -> None:
    mock = a_mock()
    status, body, socket = mock.upgrade(Request(path="jobs/MOCK0000/stream"))
    assert (status, msgspec.json.decode(body)["message"], socket) == (404, "Nothing can be typed here.", None)
    assert mock.requests[-1].path == "jobs/MOCK0000/stream"
