"""The WebSocket of a job as the way in: what is typed reaches its process with its offsets, what breaks the
rules is cut off.
"""

from __future__ import annotations

import asyncio
import base64
import json

import pytest
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.messages import Input, InputAck, Resize
from mgpu_jupyter.api.frames import INPUT_WINDOW_BYTES, MAX_INPUT_BYTES
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.master.node_link import PassInput
from mgpu_jupyter.scheduler.events import TaskReported
from mgpu_jupyter.server.presence import Presence
from tests.builders import ended

LIMIT_S = 60.0
WRITER = "writer01"


@pytest.fixture
def connect(app, jp_ws_fetch, jp_asyncio_loop):
    """Open the WebSocket of a job; all are closed in the end."""
    opened = []

    async def connect(job, **params):
        opened.append(await jp_ws_fetch(PREFIX, "jobs", job.id, "stream", params=params))
        return opened[-1]

    async def close():
        for socket in opened:
            was_open = socket.close_code is None
            socket.close()
            if was_open:
                while await asyncio.wait_for(socket.read_message(), LIMIT_S) is not None:
                    pass

    yield connect
    jp_asyncio_loop.run_until_complete(close())


@pytest.fixture
def handed_on(app, monkeypatch):
    """What was sent to nodes."""
    seen = asyncio.Queue()
    loop = asyncio.get_event_loop_policy().get_event_loop()
    link = app.service.master.link
    send = link.send

    def listen(commands):
        for command in commands:
            if isinstance(command, PassInput):
                loop.call_soon_threadsafe(seen.put_nowait, command.message)
            else:
                send([command])

    monkeypatch.setattr(link, "send", listen)
    return seen


async def next_of(socket, kind):
    while True:
        message = await asyncio.wait_for(socket.read_message(), LIMIT_S)
        assert message is not None, socket.close_reason
        if (frame := json.loads(message))["type"] == kind:
            return frame


async def take(queue):
    return await asyncio.wait_for(queue.get(), LIMIT_S)


async def closed(socket):
    while await asyncio.wait_for(socket.read_message(), LIMIT_S) is not None:
        pass
    return socket.close_code, socket.close_reason


def frame(kind, **fields):
    return json.dumps({"type": kind, **fields})


def packed(data):
    return base64.b64encode(data).decode()


async def test_what_is_typed_goes_to_the_first_process_and_what_is_read_comes_back(
    app, connect, run_job, handed_on, tell
):
    job = await run_job(stdin=True)
    socket = await connect(job, input=WRITER)
    key = job.attempt_key
    assert await take(handed_on) == Input(key=key, rank=0, writer=WRITER, offset=0)  # how far is it?
    app.service.hub.typed([InputAck(key=key, rank=0, writer=WRITER, offset=7)])
    assert await next_of(socket, "stdin_ack") == {"type": "stdin_ack", "offset": 7}
    await socket.write_message(frame("stdin", offset=7, data=packed(b"\x00\xff"), eof=True))
    assert await take(handed_on) == Input(
        key=key, rank=0, writer=WRITER, offset=7, data=b"\x00\xff", eof=True
    )
    await socket.write_message(frame("resize", rows=10, columns=20))
    assert await take(handed_on) == Resize(key=key, rank=0, rows=10, columns=20)
    app.service.hub.typed(
        [
            InputAck(key=key, rank=0, writer="another1", offset=99),
            InputAck(key=key, rank=0, writer=WRITER, offset=9, closed=True),
        ]
    )
    assert await next_of(socket, "stdin_ack") == {"type": "stdin_ack", "offset": 9, "closed": True}
    await tell(TaskReported(at=3.0, status=ended(job)))
    assert (await next_of(socket, "end"))["job"]["state"] == "completed"


async def test_a_question_that_got_lost_is_asked_again(app, connect, run_job, handed_on):
    job = await run_job(stdin=True)
    await connect(job, input=WRITER)
    assert await take(handed_on) == await take(handed_on)


@pytest.mark.parametrize(
    "message",
    [
        "no json",
        '{"type": "stdin"}',
        '{"type": "stdin", "offset": -1}',
        '{"type": "resize", "rows": 0, "columns": 1}',
        '{"type": "output", "offset": 1}',
        "[" * 10_000,
        b"\xff\xfe",
        frame("stdin", offset=0, data=packed(bytes(MAX_INPUT_BYTES + 1))),
        frame("stdin", offset=4 * INPUT_WINDOW_BYTES, data=packed(b"far ahead")),
    ],
)
async def test_what_breaks_the_rules_is_cut_off_with_a_word(connect, run_job, message):
    job = await run_job(stdin=True)
    socket = await connect(job, input=WRITER)
    await socket.write_message(message, binary=isinstance(message, bytes))
    code, reason = await closed(socket)
    assert (code, reason.partition(":")[0] in ("bad-frame", "too-much-input")) == (1008, True)


async def test_one_who_only_looks_types_nothing_and_a_writer_needs_a_name(connect, run_job, handed_on):
    job = await run_job(stdin=True)
    socket = await connect(job)
    await socket.write_message(frame("stdin", offset=0, data=packed(b"x")))
    await next_of(socket, "job")
    assert handed_on.empty()
    with pytest.raises(HTTPClientError) as caught:
        await connect(job, input="a b")
    assert caught.value.code == 400


async def test_one_who_may_only_read_does_not_type(app, jp_serverapp, connect, run_job, monkeypatch):
    job = await run_job(stdin=True)
    monkeypatch.setattr(
        jp_serverapp.authorizer, "is_authorized", lambda _handler, _user, action, _resource: action == "read"
    )
    with pytest.raises(HTTPClientError) as caught:
        await connect(job, input=WRITER)
    assert caught.value.code == 403


async def test_a_job_that_ends_with_its_client_is_ended_when_nobody_was_there_for_the_grace():
    now, bound, ended_jobs = [100.0], ["A", "B"], []

    async def jobs():
        return bound

    async def end(job_id):
        ended_jobs.append((job_id, now[0]))
        bound.remove(job_id)

    presence = Presence(30.0, jobs, end, lambda: now[0])
    with presence.attached("A"):
        await presence.look()
        now[0] = 129.0
        await presence.look()
        with presence.attached("A"):
            pass
        now[0] = 130.0
        await presence.look()
        assert ended_jobs == [("B", 130.0)]
    await presence.look()
    now[0] = 159.0
    await presence.look()
    with presence.attached("A"):  # it came back in time
        await presence.look()
    now[0] = 170.0
    await presence.look()
    assert len(ended_jobs) == 1
    now[0] = 200.0
    await presence.look()
    assert ended_jobs == [("B", 130.0), ("A", 200.0)]
