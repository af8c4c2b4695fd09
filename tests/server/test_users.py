"""Users of a shared master over REST: who may add them, what they may do, and how they end."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.login import read_line
from tests.builders import a_spec


async def test_a_login_line_names_this_server_and_its_user(app, ask, add, jp_serverapp):
    status, answer = await ask("users", app.service.token, "POST", {"name": "ann", "ttl_s": 60})
    login = read_line(answer["line"])

    assert (status, answer["user"]["name"], answer["user"]["role"]) == (201, "ann", "user")
    assert answer["user"]["expires_at"] == pytest.approx(answer["user"]["created_at"] + 60)
    assert (login.url, login.pin) == (app.public_url_now(), "")
    status, cluster = await ask("cluster", login.token)
    assert (status, cluster["user"], cluster["admin"]) == (200, "ann", False)
    status, answer = await ask("users", app.service.token)
    assert [(user["name"], user["role"]) for user in answer["users"]] == [("ann", "user")]


async def test_only_the_hash_of_a_token_is_kept(app, add, state_dir):
    token = await add("ann")

    for path in (state_dir / "mgpu.db", state_dir / "mgpu.db-wal"):
        assert token.encode() not in path.read_bytes()
    with contextlib.closing(sqlite3.connect(state_dir / "mgpu.db")) as connection:
        assert connection.execute("SELECT name, role FROM users").fetchall() == [("ann", "user")]


async def test_roles(ask, add):
    ann, bob = await add("ann"), await add("bob", role="admin")

    for path, method, body in (
        ("users", "GET", None),
        ("users", "POST", {"name": "eve"}),
        ("users/bob", "DELETE", None),
    ):
        status, answer = await ask(path, ann, method, body)
        assert (status, answer["code"]) == (403, "not-admin")
    assert (await ask("cluster", bob))[1]["admin"] is True
    _, submitted = await ask("jobs", ann, "POST", a_spec())
    assert (await ask(f"jobs/{submitted['job_id']}", bob))[1]["user"] == "ann"
    assert (await ask(f"jobs/{submitted['job_id']}/cancel", bob, "POST", {}))[0] == 202


async def test_a_removed_user_is_out_at_once(app, ask, add, http_server_client, jp_http_port, jp_base_url):
    token = await add("ann")
    _, submitted = await ask("jobs", token, "POST", a_spec())
    headers = {"Authorization": f"mgpu {token}"}
    base = f"localhost:{jp_http_port}{jp_base_url}{PREFIX}"
    socket = await websocket_connect(HTTPRequest(f"ws://{base}/events?since=0", headers=headers))
    assert await socket.read_message() is not None

    status, answer = await ask("users/ann", app.service.token, "DELETE")

    assert (status, answer["name"]) == (200, "ann")
    while await socket.read_message() is not None:
        pass
    assert socket.close_code == 1008
    socket.close()
    assert (await ask("cluster", token))[0] == 401
    with pytest.raises(HTTPClientError) as caught:
        await websocket_connect(HTTPRequest(f"ws://{base}/events", headers=headers))
    assert caught.value.code == 401
    assert (await ask(f"jobs/{submitted['job_id']}", app.service.token))[1]["state"] == "queued"
    assert (await ask("users/ann", app.service.token, "DELETE"))[1]["code"] == "no-such-user"


async def test_a_follow_of_a_removed_user_breaks_off(
    app, ask, add, http_server_client, jp_http_port, jp_base_url
):
    token = await add("ann")
    _, submitted = await ask("jobs", token, "POST", a_spec())
    came = []
    url = f"{jp_base_url}{PREFIX}/jobs/{submitted['job_id']}/output?follow=1"
    headers = {"Authorization": f"mgpu {token}", "Accept": "application/x-ndjson"}

    async def remove():
        assert (await ask("users/ann", app.service.token, "DELETE"))[0] == 200

    async def receive(chunk):
        if not came:
            came.append(chunk)
            await remove()

    with pytest.raises(Exception, match=r"(?i)closed"):
        await http_server_client.fetch(url, headers=headers, streaming_callback=receive)
    assert came


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"name": "ann"}, 409, "user-exists"),
        ({"name": ""}, 400, "invalid"),
        ({"name": "a b"}, 400, "invalid"),
        ({"name": "ann\n"}, 400, "invalid"),
        ({"name": "<script>"}, 400, "invalid"),
        ({"name": "a" * 65}, 400, "invalid"),
        ({"name": "bob", "role": "king"}, 400, "invalid"),
        ({"name": "bob", "ttl_s": 0}, 400, "invalid"),
        ({"name": "bob", "token": "mine"}, 400, "invalid"),
    ],
)
async def test_users_that_are_refused(app, ask, add, body, status, code):
    await add("ann")

    found, answer = await ask("users", app.service.token, "POST", body)

    assert (found, answer["code"]) == (status, code)


async def test_a_plain_user_cannot_have_an_administrators_name(app, ask, os_user):
    status, answer = await ask("users", app.service.token, "POST", {"name": os_user})
    assert (status, answer["code"]) == (409, "is-admin")
    status, _ = await ask("users", app.service.token, "POST", {"name": os_user, "role": "admin"})
    assert status == 201
    assert (await ask(f"users/{os_user}", app.service.token, "DELETE"))[0] == 200
    assert (await ask("cluster", app.service.token))[0] == 200  # the machine's own token stays
