"""Joining and revoking over REST: who may, what is answered, and what a restart keeps."""

from __future__ import annotations

import json

import msgspec
import pytest
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.join import read_join
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.master.ports import Batch
from mgpu_jupyter.server.access import new_token, token_row
from mgpu_jupyter.server.joining import Listening
from tests.processes import wait_until


async def ask(jp_fetch, body, *path, method="POST", headers=None):
    options = {} if headers is None else {"headers": headers}
    response = await jp_fetch(
        PREFIX, *(path or ("join-tokens",)), method=method, body=msgspec.json.encode(body), **options
    )
    return response.code, json.loads(response.body)


async def refused(jp_fetch, body, *path, **options):
    with pytest.raises(HTTPClientError) as caught:
        await ask(jp_fetch, body, *path, **options)
    return caught.value.code, json.loads(caught.value.response.body)["code"]


async def test_a_line_names_the_address_and_says_once_that_the_link_listens_there(app, jp_fetch, os_user):
    port = app.service.listening.port
    status, first = await ask(jp_fetch, {"node_id": "gpu-1", "ttl_s": 60, "listen": ["127.0.0.2"]})
    _, second = await ask(jp_fetch, {})

    join = read_join(first["line"])
    assert (status, first["command"]) == (201, f"mgpu_node --join {first['line']} --node-id gpu-1")
    assert (join.addresses, join.node_id, join.cluster) == ((f"tcp://127.0.0.2:{port}",), "gpu-1", "mgpu")
    assert (
        first["message"]
        == f"The link now listens on tcp://127.0.0.2:{port} too, after every restart as well; only machines "
        f"with a key get in."
    )
    assert (second["message"], second["command"]) == ("", f"mgpu_node --join {second['line']}")
    kept = [
        (key.public_key, key.created_by, key.node_id) for key in app.service.master.store.recover().join_keys
    ]
    assert kept == [
        (join.public_key, os_user, "gpu-1"),
        (read_join(second["line"]).public_key, os_user, None),
    ]
    assert join.secret_key.encode() not in b"".join(
        path.read_bytes() for path in app.service.place.path.glob("mgpu.db*")
    )


async def test_addresses_are_bound_again_at_each_start_and_one_that_is_gone_is_a_warning(
    app, jp_serverapp, jp_fetch
):
    await ask(jp_fetch, {"listen": ["127.0.0.3"]})
    app.service.master.store.set_setting("link_addresses", '["127.0.0.3", "192.0.2.77"]')
    port = app.service.listening.port
    await app.stop_extension()
    await app._start_jupyter_server_extension(jp_serverapp)

    health = json.loads((await jp_fetch(PREFIX, "health")).body)

    assert (health["status"], health["link_addresses"]) == ("ok", [f"tcp://127.0.0.3:{port}"])
    (warning,) = health["warnings"]
    assert warning.startswith(
        "Nodes that joined by 192.0.2.77 cannot connect: 192.0.2.77 is no address of this machine"
    )


async def test_a_restart_keeps_who_is_revoked_and_which_lines_still_work(app, jp_serverapp, jp_fetch):
    store = app.service.master.store
    lines = [
        read_join((await ask(jp_fetch, {"ttl_s": ttl_s, "listen": ["127.0.0.4"]}))[1]["line"])
        for ttl_s in (600, 600, 60)
    ]
    store.bind_node_key(NodeId("n1"), lines[0].server_key)
    store.bind_node_key(NodeId("n2"), "k" * 40, lines[1].public_key)
    store.commit(Batch(revoked={NodeId("n1"): "Revoked by root."}))
    await app.stop_extension()
    await app._start_jupyter_server_extension(jp_serverapp)
    enrolment = app.service.master.enrolment
    assert enrolment.knows(f":join:{lines[2].public_key}"), "until it expires"
    app.service.clock._offset += 61.0
    app.service.master.link.wake()
    wait_until(lambda: not enrolment.knows(f":join:{lines[2].public_key}"), "the third line is refused")
    known = [
        enrolment.knows(name)
        for name in ("n1", "n2", f":join:{lines[0].public_key}", f":join:{lines[1].public_key}")
    ]
    assert known == [False, True, True, False]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"listen": ["0.0.0.0"]}, "bad-address"),
        ({"listen": ["gpu.example.com"]}, "bad-address"),
        ({"listen": ["192.0.2.1"]}, "no-such-address"),
        ({"node_id": "../x"}, "invalid"),
        ({"ttl_s": 0}, "invalid"),
        ({"ttl_s": 1e9}, "invalid"),
        ({"secret": 1}, "invalid"),
    ],
)
async def test_wishes_that_cannot_be_are_refused_and_leave_nothing(app, jp_fetch, body, code):
    assert await refused(jp_fetch, body) == (400, code)
    assert app.service.master.store.recover().join_keys == ()


async def test_nodes_are_administered_by_a_closed_set_of_actions(app, jp_fetch):
    assert await refused(jp_fetch, {"action": "revoke"}, "nodes", "n9", method="PATCH") == (
        404,
        "no-such-node",
    )
    assert await refused(jp_fetch, {"action": "melt"}, "nodes", "n9", method="PATCH") == (400, "invalid")
    assert await refused(
        jp_fetch, {"action": "revoke", "reason": "x" * 501}, "nodes", "n9", method="PATCH"
    ) == (400, "invalid")


async def test_only_administrators_let_machines_in_or_out(app, http_server_client, jp_base_url):
    token = new_token()
    app.service.master.store.add_token(token_row(token, "ann"))
    for method, path in (("POST", "join-tokens"), ("PATCH", "nodes/n1")):
        response = await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/{path}",
            method=method,
            headers={"Authorization": f"mgpu {token}"},
            body=b"{}",
            raise_error=False,
        )
        assert (response.code, json.loads(response.body)["code"]) == (403, "not-admin")


def test_a_machine_without_a_default_route_must_be_told_its_address(monkeypatch):
    listening = Listening(8790)
    monkeypatch.setattr("mgpu_jupyter.server.joining.default_route_address", lambda: "192.0.2.5")
    assert listening.wanted(()) == ("192.0.2.5",)
    monkeypatch.setattr("mgpu_jupyter.server.joining.default_route_address", lambda: None)
    with pytest.raises(Exception, match="name the address that others reach with --listen"):
        listening.wanted(())
