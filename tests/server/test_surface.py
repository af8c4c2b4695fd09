"""Every route and socket, asked with every kind of credential; who may do what stands in the tables of
`docs/security.md`, not here.

A route without a line there fails, and so does a line without a route. What must be refused is all sent
first, and changes nothing.
"""

from __future__ import annotations

import asyncio
import collections
import json
import re

import msgspec
import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.route import PREFIX, Kind
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.scheduler.events import NodeJoined
from mgpu_jupyter.server.access import new_token, token_row
from tests.builders import a_spec, facts
from tests.documents import SECURITY, table_of
from tests.server.test_access import routes_of_the_application

pytestmark = pytest.mark.slow

REFUSED = (401, 403)
BY_JUPYTER = 404  # what Jupyter's own check says to a page of another site that writes
# What the master itself says to those who may ask: there is no such file, the node is in use, it does not
# answer.
ITS_OWN_ANSWER = {"getResult": 404, "waitForJobs": 404, "removeNode": 409, "pingNode": 503}
BODIES = {"replaceJob": {"patch": {"gpus": 2}}}
LIMIT_S = 10.0
FOREIGN = "http://evil.example"


@pytest.fixture
def mgpu_config():
    return {"local_agent": False, "ping_timeout": 0.1}


def words(route):
    return f"{'WS' if route.kind is Kind.WEBSOCKET else route.method} {route.path}"


def test_the_document_has_a_line_for_each_route_and_no_other(app):
    listed = [row[0] for row in table_of(SECURITY, "route")]
    sockets = {route.path for route in ROUTES if route.kind is Kind.WEBSOCKET}
    served = [
        f"{'WS' if path in sockets else method} {path}" for method, path in routes_of_the_application(app)
    ]
    assert sorted(listed) == sorted(served)
    assert len(listed) == len(set(listed))


async def _heard_out(socket):
    """Read until the server has closed its side, too."""
    while await socket.read_message() is not None:
        pass


class Table:
    """What the document says."""

    def __init__(self):
        self.classes = dict(row[:2] for row in table_of(SECURITY, "route"))
        header = next(line for line in SECURITY.read_text().splitlines() if line.startswith("| credential |"))
        columns = [cell.strip() for cell in header.strip("|").split("|")][1:]
        self.answers = {
            row[0]: dict(zip(columns, row[1:], strict=True)) for row in table_of(SECURITY, "credential")
        }
        self.credentials = {re.sub(r", (reads|writes|sockets)$", "", name) for name in self.answers}
        assert set(self.classes.values()) <= set(columns)

    def says_yes(self, route, credential):
        kind = "sockets" if route.kind is Kind.WEBSOCKET else "writes" if route.is_write else "reads"
        row = self.answers.get(f"{credential}, {kind}") or self.answers[credential]
        answer = row[self.classes[words(route)]]
        assert answer in ("yes", "no"), answer
        return answer == "yes"


class Askers:
    """The headers and query of each kind of credential."""

    def __init__(self, app, http_server_client, base, port, jupyter_token):
        self.app, self.http, self.base, self.port, self.jupyter_token = (
            app,
            http_server_client,
            base,
            port,
            jupyter_token,
        )
        self.made, self.host = 0, "127.0.0.1"

    def token(self, user, **more):
        token = new_token()
        self.app.service.master.store.add_token(token_row(token, user, **more))
        return token

    async def prepare(self, add):
        self.ann, bob, carol, gone = [
            await add(name, **more)
            for name, more in (("ann", {}), ("bob", {}), ("carol", {"role": "admin"}), ("gone", {}))
        ]
        self.admin = self.app.service.token
        assert (await self.send("users/gone", "DELETE", f"mgpu {self.admin}"))[0] == 200
        cookie, xsrf = await self._cookie()
        mine = f"mgpu {self.ann}"
        self.kinds = {
            "nothing": ({}, ""),
            "a wrong mgpu token": ({"Authorization": f"mgpu {new_token()}"}, ""),
            "an expired mgpu token": ({"Authorization": f"mgpu {self.token('ann', expires_at=1.0)}"}, ""),
            "the token of a removed user": ({"Authorization": f"mgpu {gone}"}, ""),
            "the owner's mgpu token as Bearer": ({"Authorization": f"Bearer {self.ann}"}, ""),
            "the owner's mgpu token as token": ({"Authorization": f"token {self.ann}"}, ""),
            "an expired mgpu token as Bearer": (
                {"Authorization": f"Bearer {self.token('ann', expires_at=1.0)}"},
                "",
            ),
            "a wrong Bearer token": ({"Authorization": f"Bearer {new_token()}"}, ""),
            "the owner's mgpu token in the query": ({}, f"token={self.ann}"),
            "a wrong Jupyter token": ({"Authorization": "token wrong"}, ""),
            "another user's mgpu token": ({"Authorization": f"mgpu {bob}"}, ""),
            "the owner's mgpu token": ({"Authorization": mine}, ""),
            "an administrator's mgpu token": ({"Authorization": f"mgpu {carol}"}, ""),
            "the server's own Jupyter token": ({"Authorization": f"token {self.jupyter_token}"}, ""),
            "a Jupyter cookie without XSRF": ({"Cookie": cookie}, ""),
            "a Jupyter cookie with XSRF": ({"Cookie": f"{cookie}; _xsrf={xsrf}", "X-XSRFToken": xsrf}, ""),
            "a Jupyter cookie from a foreign page": (
                {"Cookie": f"{cookie}; _xsrf={xsrf}", "Origin": FOREIGN},
                "",
            ),
            "the owner's mgpu token from a foreign page": ({"Authorization": mine, "Origin": FOREIGN}, ""),
            "the owner's mgpu token under a foreign Host": (
                {"Authorization": mine, "Host": "evil.example"},
                "",
            ),
            "a Jupyter cookie under a foreign Host": (
                {"Cookie": f"{cookie}; _xsrf={xsrf}", "X-XSRFToken": xsrf, "Host": "evil.example"},
                "",
            ),
        }

    async def _cookie(self):
        """Log in as a browser does."""
        answer = await self.http.fetch(f"{self.base}login", raise_error=False)
        jar = dict(line.split(";")[0].split("=", 1) for line in answer.headers.get_list("Set-Cookie"))
        status = await self.http.fetch(f"{self.base}api/status?token={self.jupyter_token}")
        jar |= dict(line.split(";")[0].split("=", 1) for line in status.headers.get_list("Set-Cookie"))
        (login,) = [f"{name}={value}" for name, value in jar.items() if name.startswith("username-")]
        return login, jar["_xsrf"]

    async def send(self, path, method, authorization, body=None):
        url = f"{self.base}{PREFIX}/{path}"
        data = None if method in ("GET", "DELETE") else b"" if body is None else msgspec.json.encode(body)
        answer = await self.http.fetch(
            url, method=method, body=data, headers={"Authorization": authorization}, raise_error=False
        )
        return answer.code, json.loads(answer.body)

    async def fill(self, path, add, *, fresh):
        """Return a path with things in it that are there; fresh ones for requests that may take them away."""
        if "{job_id}" in path:
            if fresh:
                _, answer = await self.send("jobs", "POST", f"mgpu {self.ann}", a_spec(hold=True, gpus=1))
                self.job = answer["job_id"]
            path = path.replace("{job_id}", self.job)
        if "{user_name}" in path and fresh:
            self.made += 1
            await add(f"user{self.made}")
            path = path.replace("{user_name}", f"user{self.made}")
        return path.replace("{user_name}", "bob").replace("{node_id}", "n1")

    async def ask(self, route, credential, path):
        """Return the status of one request."""
        headers, query = self.kinds[credential]
        question = f"?{query}" if query else ""
        if route.kind is Kind.WEBSOCKET:
            try:
                socket = await websocket_connect(
                    HTTPRequest(
                        f"ws://{self.host}:{self.port}{self.base}{PREFIX}/{path}{question}", headers=headers
                    )
                )
            except HTTPClientError as error:
                return error.code
            socket.close()
            await asyncio.wait_for(_heard_out(socket), LIMIT_S)
            return 101
        self.made += 1
        wanted = (
            {"name": f"new{self.made}"}
            if route.operation == "addUser"
            else BODIES.get(route.operation, route.example)
        )
        body = (
            None
            if route.method in ("GET", "DELETE")
            else b""
            if wanted is None
            else json.dumps(wanted).encode()
        )
        answer = await self.http.fetch(
            f"{self.base}{PREFIX}/{path}{question}",
            method=route.method,
            headers=headers,
            body=body,
            raise_error=False,
            follow_redirects=False,
        )
        if answer.code in REFUSED:
            assert set(json.loads(answer.body)) == {"code", "message", "details"}
        return answer.code

    async def world(self):
        """Return all that refused requests could have changed."""
        found = [
            (await self.send(path, "GET", f"mgpu {self.admin}"))[1] for path in ("jobs", "nodes", "users")
        ]
        for node in found[1]["nodes"]:
            node.pop("last_seen_at")
        return found


@pytest.mark.timeout(120)
async def test_the_whole_surface_answers_as_the_document_says(
    app, http_server_client, jp_base_url, jp_http_port, jp_auth_header, add, tell
):
    table, tally = Table(), collections.Counter()
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))
    askers = Askers(
        app, http_server_client, jp_base_url, jp_http_port, jp_auth_header["Authorization"].split()[1]
    )
    await askers.prepare(add)
    assert set(askers.kinds) == table.credentials
    wrong = []

    async def judge(route, credential, *, fresh):
        path = await askers.fill(route.path, add, fresh=fresh)
        status = await askers.ask(route, credential, path)
        expected = ITS_OWN_ANSWER.get(route.operation, 101 if route.kind is Kind.WEBSOCKET else route.status)
        refusals = (*REFUSED, BY_JUPYTER) if credential == "a Jupyter cookie from a foreign page" else REFUSED
        is_right = status == expected if table.says_yes(route, credential) else status in refusals
        tally["served" if table.says_yes(route, credential) else "refused"] += 1
        if not is_right:
            wrong.append((words(route), credential, status))

    refused = [
        (route, credential)
        for route in ROUTES
        for credential in askers.kinds
        if not table.says_yes(route, credential)
    ]
    await askers.fill("{job_id}", add, fresh=True)
    before = await askers.world()
    for route, credential in refused:
        await judge(route, credential, fresh=False)
    assert await askers.world() == before
    for route in ROUTES:
        for credential in askers.kinds:
            if table.says_yes(route, credential):
                await judge(route, credential, fresh=True)

    print(f"{len(ROUTES)} routes x {len(askers.kinds)} credentials: {dict(tally)}, {len(wrong)} findings")
    assert wrong == []
    assert sum(tally.values()) == len(ROUTES) * len(askers.kinds)
