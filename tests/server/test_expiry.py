"""What goes on for a token ends with it: at its own end, and when it is taken away."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_jupyter.api.route import NDJSON, PREFIX
from mgpu_jupyter.server.access import new_token, token_row
from tests.builders import a_spec

LIVES_S = 1.5
LATE_S = 1.0


@pytest.fixture
def token_for(app):
    async def make(user, expires_at):
        token = new_token()
        row = token_row(token, user, expires_at=expires_at)
        await app.service.write(lambda store: store.add_token(row))
        return token

    return make


@pytest.fixture
def base(jp_http_port, jp_base_url, http_server_client):
    return f"localhost:{jp_http_port}{jp_base_url}{PREFIX}"


async def ended(waiting):
    """Return when it ended, however it did."""
    try:
        while await waiting():
            pass
    except Exception:
        pass
    return time.time()


async def open_all(base, token, job_id):
    """Open one of each kind; return what ends when they do."""
    headers = {"Authorization": f"mgpu {token}"}
    sockets = [
        await websocket_connect(HTTPRequest(f"ws://{base}/{path}", headers=headers))
        for path in ("events?since=0", f"jobs/{job_id}/stream", f"jobs/{job_id}/stream?input=abcdefgh")
    ]

    async def read(socket):
        return await socket.read_message() is not None

    async def follow(accept):
        path = f"http://{base}/jobs/{job_id}/output?follow=1"
        await AsyncHTTPClient().fetch(
            path, headers={**headers, "Accept": accept}, request_timeout=30, streaming_callback=lambda _: None
        )
        return False

    waits = [lambda socket=socket: read(socket) for socket in sockets] + [
        lambda kind=kind: follow(kind) for kind in (NDJSON, "*/*")
    ]
    return sockets, [asyncio.ensure_future(ended(wait)) for wait in waits]


async def test_streams_of_every_kind_end_with_their_token(app, ask, token_for, base):
    job_id = (await ask("jobs", await token_for("ann", None), "POST", a_spec()))[1]["job_id"]
    expires_at = time.time() + LIVES_S
    sockets, waiting = await open_all(base, await token_for("ann", expires_at), job_id)
    times = await asyncio.wait_for(asyncio.gather(*waiting), 20)

    assert [round(at - expires_at, 2) for at in times if not 0 <= at - expires_at < LATE_S] == []
    assert [(one.close_code, one.close_reason) for one in sockets] == [
        (1008, "Your login has expired: log in again.")
    ] * 3
    for one in sockets:
        one.close()


@pytest.mark.parametrize("role", ["user", "admin"])
async def test_streams_of_every_kind_end_when_their_token_is_taken_away(app, ask, add, base, role):
    token = await add("ann", role=role)
    other = await add("bob")
    job_id = (await ask("jobs", token, "POST", a_spec()))[1]["job_id"]
    headers = {"Authorization": f"mgpu {other}"}
    bobs = await websocket_connect(HTTPRequest(f"ws://{base}/events?since=0", headers=headers))
    sockets, waiting = await open_all(base, token, job_id)
    removed_at = time.time()
    assert (await ask("users/ann", app.service.token, "DELETE"))[0] == 200
    times = await asyncio.wait_for(asyncio.gather(*waiting), 20)

    assert [round(at - removed_at, 2) for at in times if not at - removed_at < LATE_S] == []
    assert {(one.close_code, one.close_reason) for one in sockets} == {
        (1008, "You were logged out by an administrator.")
    }
    assert json.loads(await bobs.read_message())
    for one in (*sockets, bobs):
        one.close()


async def test_who_does_not_answer_the_goodbye_is_cut_off(app, token_for, base, jp_http_port, jp_base_url):
    expires_at = time.time() + LIVES_S
    token = await token_for("ann", expires_at)
    reader, writer = await asyncio.open_connection("localhost", jp_http_port)
    head = [
        f"GET {jp_base_url}{PREFIX}/events HTTP/1.1",
        f"Host: localhost:{jp_http_port}",
        "Connection: Upgrade",
        "Upgrade: websocket",
    ]
    head += [
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        f"Authorization: mgpu {token}",
        "",
        "",
    ]
    writer.write("\r\n".join(head).encode())
    while await asyncio.wait_for(reader.read(65536), 20):
        pass
    at = time.time()
    writer.close()
    assert 0 <= at - expires_at < LATE_S + 0.5
