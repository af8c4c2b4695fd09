"""The client against a real HTTP server: keep-alive, retries with the same key, errors, streams that
break.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest

from mgpu_agent.protocol.errors import (
    Conflict,
    EngineError,
    Forbidden,
    InvalidRequest,
    MgpuError,
    NotFound,
    RemoteProtocolError,
    Unauthorised,
    Unavailable,
)
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models, requests
from mgpu_jupyter.api.frames import EndFrame, JobFrame, OutputFrame, PingFrame
from mgpu_jupyter.client import Client, Job, Timeouts, call
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.conftest import QUICK, Scripted, answer, drop, frames, free_port

Start = Callable[..., Scripted]
HEALTH = models.Health(status="ok", version="1")
SUBMITTED = requests.Submitted(job_id=JobId("AAAA1111"), state=JobState.QUEUED)
SPEC = JobSpec(command=("true",))


def a_view(state: JobState = JobState.RUNNING, **changes: object) -> models.Job:
    view = models.Job(
        id=JobId("AAAA1111"),
        state=state,
        user="me",
        name="",
        command="true",
        nodes=(),
        gpus=1,
        exit_code=0 if state is JobState.COMPLETED else None,
        attempt=1,
        submitted_at=1.0,
        started_at=2.0,
        ended_at=None,
        reason="",
    )
    return msgspec.structs.replace(view, **changes)


def out(data: bytes, offset: int, rank: int = 0) -> OutputFrame:
    return OutputFrame(rank=rank, stream="stdout", offset=offset, data=data)


END = EndFrame(job=a_view(JobState.COMPLETED))


def test_requests_share_one_connection_and_carry_the_token(scripted: Start) -> None:
    server = scripted(answer(200, HEALTH))
    with Client(server.url, "secret", timeouts=QUICK) as client:
        assert [client.health() for _ in range(3)] == [HEALTH] * 3

    assert len({seen.peer for seen in server.seen}) == 1
    assert [(seen.method, seen.path, seen.headers["Authorization"]) for seen in server.seen] == [
        ("GET", "/mgpu/api/v1/health", "mgpu secret")
    ] * 3


def test_a_closed_client_lets_go_of_its_connection_and_opens_another(scripted: Start) -> None:
    server = scripted(answer(200, HEALTH))
    client = Client(server.url, "secret", timeouts=QUICK)
    client.health()
    client.close()
    assert client.health() == HEALTH
    client.close()
    assert len({seen.peer for seen in server.seen}) == 2


def test_a_base_path_is_kept(scripted: Start) -> None:
    server = scripted(answer(200, HEALTH))
    with Client(server.url + "user/me", "t", timeouts=QUICK) as client:
        client.health()

    assert [seen.path for seen in server.seen] == ["/user/me/mgpu/api/v1/health"]


def test_a_connection_that_went_stale_is_replaced(scripted: Start) -> None:
    def answer_and_close(handler: object) -> None:
        answer(200, HEALTH)(handler)  # type: ignore[arg-type]
        handler.close_connection = True  # type: ignore[attr-defined]

    server = scripted(answer_and_close, answer(200, HEALTH))
    with Client(server.url, "t", timeouts=msgspec.structs.replace(QUICK, retry_s=0)) as client:
        assert [client.health(), client.health()] == [HEALTH, HEALTH]

    assert len({seen.peer for seen in server.seen}) == 2


def test_threads_do_not_mix_their_answers(scripted: Start) -> None:
    server = scripted(answer(200, HEALTH))
    results: list[models.Health] = []
    with Client(server.url, "t", timeouts=QUICK) as client:
        threads = [
            threading.Thread(target=lambda: results.extend(client.health() for _ in range(20)))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == [HEALTH] * 80
    assert len(server.seen) == 80


def test_a_submit_is_sent_again_with_the_same_key(scripted: Start) -> None:
    """Connection lost, then 503: three requests, one key, one job."""
    server = scripted(
        drop, answer(503, models.ErrorBody(code="starting", message="Wait.")), answer(201, SUBMITTED)
    )
    with Client(server.url, "t", timeouts=QUICK) as client:
        job = client.submit_spec(SPEC)

    assert job.id == "AAAA1111"
    keys = [seen.headers["Idempotency-Key"] for seen in server.seen]
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert [msgspec.json.decode(seen.body, type=JobSpec) for seen in server.seen] == [SPEC] * 3


TOO_MANY = models.ErrorBody(code="too-many-requests", message="That is too much at once: try again in 2 s.")


def test_a_sweep_that_is_too_fast_is_slowed_and_not_failed(
    scripted: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own time is waited for, longer than a lost server would be; the key stays."""
    pauses: list[float] = []
    monkeypatch.setattr(call.time, "sleep", pauses.append)
    server = scripted(*[answer(429, TOO_MANY, Retry_After="2")] * 5, answer(201, SUBMITTED))
    with Client(server.url, "t", timeouts=msgspec.structs.replace(QUICK, retry_s=0.001)) as client:
        job = client.submit_spec(SPEC)

    assert (job.id, len({seen.headers["Idempotency-Key"] for seen in server.seen}), len(server.seen)) == (
        "AAAA1111",
        1,
        6,
    )
    assert [2.0 <= pause <= 2.4 for pause in pauses] == [True] * 5


@pytest.mark.parametrize("after", ["0", "-5", "nan", "1e9", "Mon, 01 Jan 2035 00:00:00 GMT", "9" * 40])
def test_a_server_that_wants_an_odd_time_is_given_up_in_time(
    scripted: Start, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(call.time, "sleep", pauses.append)
    server = scripted(answer(429, TOO_MANY, Retry_After=after))
    timeouts = msgspec.structs.replace(QUICK, retry_s=0.05, slowed_s=10.0)
    with (
        Client(server.url, "t", timeouts=timeouts) as client,
        pytest.raises(Unavailable, match="too much at once"),
    ):
        client.health()

    assert max(pauses) <= timeouts.backoff_cap_s


def test_two_submits_have_two_keys(scripted: Start) -> None:
    server = scripted(answer(201, SUBMITTED))
    with Client(server.url, "t", timeouts=QUICK) as client:
        client.submit_spec(SPEC)
        client.submit_spec(SPEC)

    assert len({seen.headers["Idempotency-Key"] for seen in server.seen}) == 2


def test_retries_end_with_the_named_time(scripted: Start) -> None:
    told: list[str] = []
    client = Client(
        f"http://127.0.0.1:{free_port()}/", "t", timeouts=msgspec.structs.replace(QUICK, retry_s=0.2)
    )
    client.caller.on_trouble = told.append
    with pytest.raises(Unavailable, match="connection refused") as caught:
        client.health()

    assert caught.value.code == "no-answer"
    assert told == [f"{caught.value.message} Trying again for 0 s."]


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, InvalidRequest),
        (401, Unauthorised),
        (403, Forbidden),
        (404, NotFound),
        (409, Conflict),
        (418, EngineError),
        (500, EngineError),
        (503, Unavailable),
        (507, Unavailable),
    ],
)
def test_errors_keep_their_code_and_words(scripted: Start, status: int, kind: type[MgpuError]) -> None:
    server = scripted(
        answer(status, models.ErrorBody(code="some-code", message="Do this.", details={"field": "gpus"}))
    )
    with (
        Client(server.url, "t", timeouts=msgspec.structs.replace(QUICK, retry_s=0)) as client,
        pytest.raises(MgpuError) as caught,
    ):
        client.health()

    assert (type(caught.value), caught.value.code, caught.value.message, caught.value.details) == (
        kind,
        "some-code",
        "Do this.",
        {"field": "gpus"},
    )


@pytest.mark.parametrize(
    ("status", "kind", "code"),
    [(404, NotFound, "no-mgpu"), (302, Unauthorised, "login-needed"), (500, EngineError, "http-error")],
)
def test_errors_without_our_body_still_say_what_to_do(
    scripted: Start, status: int, kind: type[MgpuError], code: str
) -> None:
    server = scripted(answer(status, b"<html>nothing here</html>"))
    with Client(server.url, "t", timeouts=QUICK) as client, pytest.raises(kind) as caught:
        client.health()

    assert caught.value.code == code
    assert len(server.seen) == 1


def test_an_answer_of_another_shape_is_a_protocol_error(scripted: Start) -> None:
    server = scripted(answer(200, b'{"status": "sleepy"}'))
    with Client(server.url, "t", timeouts=QUICK) as client, pytest.raises(RemoteProtocolError):
        client.health()


def test_follow_hands_out_every_frame(scripted: Start) -> None:
    sent = [
        JobFrame(seq=1, job=a_view()),
        out(b"hel", 0),
        PingFrame(),
        out("lö\n".encode(), 3),
        END,
    ]
    server = scripted(frames(*sent))
    with Client(server.url, "t", timeouts=QUICK) as client:
        job = Job(client.caller, "AAAA1111")
        assert list(job.follow()) == sent

    assert [(seen.path, seen.headers["Accept"]) for seen in server.seen] == [
        ("/mgpu/api/v1/jobs/AAAA1111/output?follow=1", "application/x-ndjson")
    ]


def test_follow_goes_on_with_the_next_byte_after_a_break(scripted: Start) -> None:
    """Torn in a chunk, refused by a starting server, ended in order by a stopping one: the reader sees one
    stream.
    """
    server = scripted(
        frames(out(b"one\n", 0), out(b"uno\n", 0, rank=1), finish=False, tear=b'{"type":"out'),
        answer(503, models.ErrorBody(code="starting", message="Wait.")),
        drop,
        frames(out(b"two\n", 4), finish=True),
        frames(out(b"three\n", 8), END),
    )
    with Client(server.url, "t", timeouts=QUICK) as client:
        follow = Job(client.caller, "AAAA1111").follow()
        assert list(follow) == [
            out(b"one\n", 0),
            out(b"uno\n", 0, rank=1),
            out(b"two\n", 4),
            out(b"three\n", 8),
            END,
        ]

    at_4, at_8 = (f"&offsets=0%3A{offset}%2C1%3A4&attempt=1" for offset in (4, 8))
    starts = [seen.path.partition("follow=1")[2] for seen in server.seen]
    assert starts == ["", at_4, at_4, at_4, at_8]
    assert follow.offsets == {0: 14, 1: 4}


def test_a_new_attempt_starts_again_at_its_first_byte(scripted: Start) -> None:
    second = msgspec.structs.replace(out(b"again\n", 0), attempt=2)
    server = scripted(frames(out(b"one\n", 0), out(b"uno\n", 0, rank=1), second, finish=False), frames(END))
    with Client(server.url, "t", timeouts=QUICK) as client:
        list(Job(client.caller, "AAAA1111").follow())

    assert server.seen[1].path.partition("follow=1")[2] == "&offsets=0%3A6&attempt=2"


def test_follow_survives_a_server_that_is_gone_for_a_while(scripted: Start) -> None:
    first = scripted(frames(out(b"one\n", 0), finish=False))
    with Client(first.url, "t", timeouts=QUICK) as client:
        follow = Job(client.caller, "AAAA1111").follow()
        received = [next(follow)]
        first.stop()
        started: list[Scripted] = []
        later = threading.Timer(
            0.1, lambda: started.append(scripted(frames(out(b"two\n", 4), END), port=first.port))
        )
        later.start()
        received += list(follow)
        later.join()

    assert received == [out(b"one\n", 0), out(b"two\n", 4), END]
    assert len(started[0].seen) == 1


def test_follow_gives_up_after_the_named_time(scripted: Start) -> None:
    server = scripted(drop)
    with (
        Client(server.url, "t", timeouts=msgspec.structs.replace(QUICK, resume_s=0.02)) as client,
        pytest.raises(Unavailable),
    ):
        list(Job(client.caller, "AAAA1111").follow())


def test_follow_leaves_out_frames_of_a_later_server_but_no_broken_ones(scripted: Start) -> None:
    server = scripted(frames(b'{"type":"hologram","x":1}\n', END), frames(b'{"type":"output","rank":"x"}\n'))
    with Client(server.url, "t", timeouts=QUICK) as client:
        assert list(Job(client.caller, "AAAA1111").follow()) == [END]
        with pytest.raises(RemoteProtocolError):
            list(Job(client.caller, "AAAA1111").follow())


def test_follow_of_a_job_that_is_not_there(scripted: Start) -> None:
    server = scripted(answer(404, models.ErrorBody(code="no-such-job", message="There is none.")))
    with Client(server.url, "t", timeouts=QUICK) as client, pytest.raises(NotFound, match="There is none"):
        next(Job(client.caller, "AAAA1111").follow())


def test_wait_sees_the_end_and_times_out(scripted: Start) -> None:
    server = scripted(answer(200, a_view()), frames(out(b"noise", 0), END))
    with Client(server.url, "t", timeouts=QUICK) as client:
        job = Job(client.caller, "AAAA1111")
        assert job.wait(60).state is JobState.COMPLETED
        assert job.exit_code == 0
    assert server.seen[1].path.endswith("follow=1&rank=100000")  # to wait is not to read all that is printed
    assert len(server.seen) == 2  # what is final is not asked for again

    waiting = threading.Event()
    silent = scripted(answer(200, a_view()), lambda handler: waiting.wait(5) and drop(handler))
    with Client(
        silent.url,
        "t",
        timeouts=Timeouts(stream_idle_s=0.02, request_s=0.05, backoff_base_s=0.001, retry_s=0.1),
    ) as client:
        with pytest.raises(TimeoutError, match="it goes on"):
            Job(client.caller, "AAAA1111").wait(0.1)
        waiting.set()


def test_output_is_read_page_by_page(scripted: Start) -> None:
    server = scripted(answer(200, b"caf\xc3"), answer(200, b"\xa9\n"), answer(200, b""))
    with Client(server.url, "t", timeouts=QUICK) as client:
        assert Job(client.caller, "AAAA1111").output(rank=2) == "café\n"

    assert [seen.path.partition("?")[2] for seen in server.seen] == [
        f"rank=2&offset={offset}&limit=4194304" for offset in (0, 4, 6)
    ]
