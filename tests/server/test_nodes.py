"""Orders about nodes over REST: who may, what is answered, what is shown afterwards."""

from __future__ import annotations

import json

import pytest
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.scheduler.events import Event, NodeJoined, NodeLeft
from mgpu_jupyter.server.access import new_token, token_row
from tests.builders import facts


def tell(app, event: Event) -> None:
    """Let the master take in an event, as if its engine had told it."""
    app.service.master.post(
        lambda master, turn: master.apply(turn, event), lambda error: pytest.fail(str(error))
    )


async def shown(jp_fetch):
    return json.loads((await jp_fetch(PREFIX, "nodes", "n1")).body)


async def ask(jp_fetch, method, **body):
    try:
        response = await jp_fetch(
            PREFIX, "nodes", "n1", method=method, body=json.dumps(body) if body else None
        )
    except HTTPClientError as error:
        return error.code, json.loads(error.response.body)["code"]
    answer = json.loads(response.body)
    assert (answer["node_id"], answer["action"]) == ("n1", body.get("action", "remove"))
    return response.code, answer["message"]


async def test_an_administrator_drains_resumes_lists_and_removes(app, jp_fetch, os_user):
    app.service.master.store.bind_node_key(NodeId("n1"), "k" * 40)
    tell(app, NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts()))
    assert await ask(jp_fetch, "PATCH", action="drain", reason="dust") == (
        200,
        "It takes no new jobs; nothing runs on it.",
    )
    assert await ask(jp_fetch, "PATCH", action="only", users=["ann"], accounts=["lab"]) == (
        200,
        "Only ann, account lab may use it from now on; what runs goes on.",
    )
    node = await shown(jp_fetch)
    orders = node["orders"]
    assert (node["state"], node["reason"]) == ("draining", f"Drained by {os_user}: dust.")
    assert (orders["state"], orders["reason"], orders["by"], orders["lists_by"]) == (
        "draining",
        "dust",
        os_user,
        os_user,
    )
    assert orders["lists"] == {"allow_users": ["ann"], "allow_accounts": ["lab"]}
    assert await ask(jp_fetch, "PATCH", action="resume") == (200, "It takes jobs again.")
    assert (await shown(jp_fetch))["state"] == "online"
    assert await ask(jp_fetch, "DELETE") == (409, "node-connected")
    tell(app, NodeLeft(at=2.0, node_id=NodeId("n1"), reason="stopped"))
    assert (await ask(jp_fetch, "DELETE"))[0] == 200
    assert await ask(jp_fetch, "PATCH", action="drain") == (404, "no-such-node")


async def test_wrong_bodies_are_refused(app, jp_fetch):
    tell(app, NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts()))
    wrong = [
        ({"action": "deny"}, "nobody-named"),
        ({"action": "drain", "users": ["ann"]}, "names-not-used"),
        ({"action": "revoke", "users": ["ann"]}, "names-not-used"),
        ({"action": "deny", "users": [""]}, "invalid"),
        ({"action": "deny", "users": "ann"}, "invalid"),
        ({"action": "melt"}, "invalid"),
    ]
    assert [await ask(jp_fetch, "PATCH", **body) for body, _ in wrong] == [(400, code) for _, code in wrong]


@pytest.mark.parametrize("method", ["PATCH", "DELETE"])
async def test_others_may_not(app, http_server_client, jp_base_url, method):
    token = new_token()
    app.service.master.store.add_token(token_row(token, "ann"))
    tell(app, NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts()))
    response = await http_server_client.fetch(
        f"{jp_base_url}{PREFIX}/nodes/n1",
        method=method,
        headers={"Authorization": f"mgpu {token}"},
        body=b'{"action": "drain"}' if method == "PATCH" else None,
        raise_error=False,
    )

    assert (response.code, json.loads(response.body)["code"]) == (403, "not-admin")
