"""Frames of a job beside a pace: each comes, None where there is none in time, and the end is the end."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api.frames import JobStreamFrame
from mgpu_jupyter.client import Client, Job, Timeouts
from mgpu_jupyter.client.follow import Pump
from tests.client.conftest import QUICK, Scripted, drop, frames
from tests.client.test_http import END, out

Start = Callable[..., Scripted]


@pytest.fixture
def go_on() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def pump(server: Scripted, timeouts: Timeouts = QUICK, pace_s: float = 0.01) -> Pump[JobStreamFrame]:
    return Pump(Job(Client(server.url, "t", timeouts=timeouts).caller, JobId("AAAA1111")).follow(), pace_s)


def test_frames_come_and_none_while_there_is_none(scripted: Start, go_on: threading.Event) -> None:
    def later(handler: BaseHTTPRequestHandler) -> None:
        assert go_on.wait(30)
        frames(out(b"b", 1), END)(handler)

    server = scripted(frames(out(b"a", 0), finish=False), later)
    one = pump(server)
    assert next(frame for frame in one if frame is not None) == out(b"a", 0)
    assert next(one) is None  # the next frame is not there before it is let go
    go_on.set()
    assert [frame for frame in one if frame is not None] == [out(b"b", 1), END]


def test_a_deadline_ends_the_wait(scripted: Start, go_on: threading.Event) -> None:
    def never(handler: BaseHTTPRequestHandler) -> None:
        go_on.wait(30)
        drop(handler)

    one = pump(scripted(never), pace_s=60.0)
    one.deadline = time.monotonic()
    with pytest.raises(TimeoutError, match="the time is over"):
        next(one)
    one.close()


def test_what_the_reader_meets_is_raised_where_frames_are_wanted_and_it_reads_on(scripted: Start) -> None:
    impatient = Timeouts(connect_s=5, request_s=5, retry_s=0, stream_idle_s=5, resume_s=0)
    server = scripted(drop, drop, frames(out(b"a", 0), END))
    one = pump(server, impatient, pace_s=30.0)
    with pytest.raises(Unavailable):
        next(one)
    seen: list[object] = []
    while END not in seen:
        with contextlib.suppress(Unavailable):
            seen.append(next(one))
    assert seen == [out(b"a", 0), END]
