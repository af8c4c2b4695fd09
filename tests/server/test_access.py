"""Every route and WebSocket of the application, asked without a token, with a bad one, and by someone
else.
"""

from __future__ import annotations

import json

import msgspec
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_jupyter.api.route import PREFIX, Kind
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.server.access import Person, new_token, token_row
from mgpu_jupyter.server.handlers import ALL, Guarded
from tests.builders import a_spec

VERBS = ("get", "post", "put", "patch", "delete")


def routes_of_the_application(app):
    """Return (method, path) of all that the application really serves below the prefix."""
    found = []
    for pattern, handler, *_ in app.handlers:
        if issubclass(handler, Guarded) and handler.path != ".*":
            assert pattern.startswith(f"/{PREFIX}/")
            found += [
                (verb.upper(), handler.path)
                for verb in VERBS
                if verb in vars(handler) or (verb == "get" and hasattr(handler, "frames"))
            ]
    return found


def test_the_application_serves_exactly_the_routes_of_the_table(app):
    assert sorted(routes_of_the_application(app)) == sorted((route.method, route.path) for route in ROUTES)
    assert len(ALL) == len({route.path for route in ROUTES})


def filled(path):
    return path.replace("{job_id}", "ABCD1234").replace("{node_id}", "n1").replace("{user_name}", "ann")


CREDENTIALS = {
    "nothing": {},
    "a bad mgpu token": {"Authorization": f"mgpu {new_token()}"},
    "an empty mgpu token": {"Authorization": "mgpu"},
    "a bad Jupyter token": {"Authorization": "token wrong"},
    "another scheme": {"Authorization": "Basic dXNlcjpwYXNz"},
}


@pytest.mark.parametrize("credentials", CREDENTIALS)
async def test_every_route_refuses_those_it_does_not_know(app, http_server_client, jp_base_url, credentials):
    for method, path in routes_of_the_application(app):
        url = f"{jp_base_url}{PREFIX}/{filled(path)}"
        body = b"{}" if method in ("POST", "PUT", "PATCH") else None
        response = await http_server_client.fetch(
            url,
            method=method,
            headers=CREDENTIALS[credentials],
            body=body,
            raise_error=False,
            follow_redirects=False,
        )
        assert response.code in (401, 403), (method, path, response.code)
        answer = json.loads(response.body)
        assert set(answer) == {"code", "message", "details"}, (method, path)


@pytest.mark.parametrize("credentials", CREDENTIALS)
async def test_every_websocket_refuses_those_it_does_not_know(
    app, http_server_client, jp_http_port, jp_base_url, credentials
):
    sockets = [route for route in ROUTES if route.kind is Kind.WEBSOCKET]
    assert len(sockets) == 2
    for route in sockets:
        url = f"ws://localhost:{jp_http_port}{jp_base_url}{PREFIX}/{filled(route.path)}"
        with pytest.raises(HTTPClientError) as caught:
            await websocket_connect(HTTPRequest(url, headers=CREDENTIALS[credentials]))
        assert caught.value.code in (401, 403), route.path


async def test_a_websocket_from_a_foreign_page_is_refused(
    app, http_server_client, jp_http_port, jp_base_url, jp_auth_header
):
    url = f"ws://localhost:{jp_http_port}{jp_base_url}{PREFIX}/events"
    with pytest.raises(HTTPClientError) as caught:
        await websocket_connect(HTTPRequest(url, headers={**jp_auth_header, "Origin": "http://evil.example"}))
    assert caught.value.code == 403


async def test_ten_requests_with_the_same_token_belong_to_one_user(jp_fetch, os_user):
    """Jupyter's default identity provider invents a name for every request; the job's user is the OS user."""
    names = set()
    for _ in range(10):
        created = await jp_fetch(PREFIX, "jobs", method="POST", body=msgspec.json.encode(a_spec()))
        job = await jp_fetch(PREFIX, "jobs", json.loads(created.body)["job_id"])
        cluster = await jp_fetch(PREFIX, "cluster")
        names |= {json.loads(job.body)["user"], json.loads(cluster.body)["user"]}
    assert names == {os_user}


async def test_an_mgpu_token_works_for_mgpu_and_for_nothing_else(
    app, http_server_client, jp_base_url, os_user
):
    header = {"Authorization": f"mgpu {app.service.token}"}

    mine = await http_server_client.fetch(f"{jp_base_url}{PREFIX}/cluster", headers=header)
    jupyter = await http_server_client.fetch(f"{jp_base_url}api/contents", headers=header, raise_error=False)

    assert json.loads(mine.body)["user"] == os_user
    assert jupyter.code == 403


async def test_an_mgpu_token_needs_no_xsrf_cookie(app, http_server_client, jp_base_url):
    header = {"Authorization": f"mgpu {app.service.token}"}
    body = msgspec.json.encode(a_spec())

    response = await http_server_client.fetch(
        f"{jp_base_url}{PREFIX}/jobs", method="POST", headers=header, body=body
    )

    assert response.code == 201


async def test_an_expired_token_is_refused(app, http_server_client, jp_base_url):
    token = new_token()
    row = msgspec.structs.replace(token_row(token, "ann"), expires_at=1.0)
    app.service.master.store.add_token(row)

    response = await http_server_client.fetch(
        f"{jp_base_url}{PREFIX}/cluster", headers={"Authorization": f"mgpu {token}"}, raise_error=False
    )

    assert (response.code, json.loads(response.body)["code"]) == (401, "bad-token")


async def test_users_see_the_queue_but_read_and_cancel_only_their_own_jobs(
    app, http_server_client, jp_http_port, jp_base_url, jp_fetch
):
    token = new_token()
    app.service.master.store.add_token(token_row(token, "ann"))
    header = {"Authorization": f"mgpu {token}"}
    created = await jp_fetch(PREFIX, "jobs", method="POST", body=msgspec.json.encode(a_spec()))
    job_id = json.loads(created.body)["job_id"]

    async def ask(path, method="GET", body=None):
        url = f"{jp_base_url}{PREFIX}/{path}"
        response = await http_server_client.fetch(
            url, method=method, headers=header, body=body, raise_error=False
        )
        return response.code, json.loads(response.body).get("code")

    assert await ask("jobs") == (200, None)
    assert await ask(f"jobs/{job_id}") == (200, None)
    assert await ask(f"jobs/{job_id}/output") == (403, "not-yours")
    assert await ask(f"jobs/{job_id}/cancel", "POST", b"") == (403, "not-yours")
    assert await ask(f"jobs/{job_id}", "PATCH", b'{"hold": true}') == (403, "not-yours")
    assert await ask(f"jobs/{job_id}/requeue", "POST", b"") == (403, "not-yours")
    with pytest.raises(HTTPClientError) as caught:
        await websocket_connect(
            HTTPRequest(
                f"ws://localhost:{jp_http_port}{jp_base_url}{PREFIX}/jobs/{job_id}/stream", headers=header
            )
        )
    assert caught.value.code == 403
    cancelled = await jp_fetch(PREFIX, "jobs", job_id, "cancel", method="POST", body=b"")
    assert cancelled.code == 202


async def test_the_authorizer_of_the_server_has_the_last_word(app, jp_serverapp, jp_fetch, monkeypatch):
    seen = []

    def is_authorized(handler, user, action, resource):
        seen.append((action, resource))
        return action == "read"

    monkeypatch.setattr(jp_serverapp.authorizer, "is_authorized", is_authorized)

    await jp_fetch(PREFIX, "jobs")
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs", method="POST", body=msgspec.json.encode(a_spec()))

    assert caught.value.code == 403
    assert seen == [("read", "mgpu"), ("write", "mgpu")]


class OtherProvider:
    """Stands for a site's own identity provider."""


def test_a_configured_identity_provider_names_the_user(app, os_user):
    assert app.access.by_identity(OtherProvider(), "ann") == Person("ann", is_admin=False)
    assert app.access.by_identity(OtherProvider(), os_user) == Person(os_user, is_admin=True)


async def test_what_is_not_there_is_said_in_json(jp_fetch):
    for path, code in (
        ("nothing", "not-found"),
        ("jobs/NOSUCH00", "no-such-job"),
        ("nodes/n9", "no-such-node"),
    ):
        with pytest.raises(HTTPClientError) as caught:
            await jp_fetch(PREFIX, *path.split("/"))
        assert caught.value.code == 404
        assert json.loads(caught.value.response.body)["code"] == code
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "cluster", method="DELETE")
    assert (caught.value.code, json.loads(caught.value.response.body)["code"]) == (405, "method-not-allowed")
