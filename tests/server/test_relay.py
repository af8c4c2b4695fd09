"""A server that relays: to a scripted master, so that everything it passes on (and does not) is seen byte by
byte.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application
from tornado.websocket import websocket_connect

from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.connecting import pin_of_file
from mgpu_jupyter.client.login import Login, store_login
from mgpu_jupyter.server.access import Person
from mgpu_jupyter.server.certificate import load_certificate
from mgpu_jupyter.server.relay import target_below
from tests.server.far_server import CHUNK, ERROR, TOKEN, Echo, Far, Flood, Socket, Torn


@pytest.fixture
def certificate(tmp_path):
    return load_certificate(tmp_path / "far-keys", "127.0.0.1")


@pytest.fixture
def far_server(jp_asyncio_loop, certificate):
    """A master elsewhere behind TLS, with a base URL of its own."""

    async def start():
        far = Far()
        base = f"/far/{PREFIX}"
        routes = [
            (f"{base}/flood", Flood, {"far": far}),
            (f"{base}/torn", Torn),
            (f"{base}/jobs/[A-Z0-9]+/stream", Socket, {"far": far}),
            (f"{base}/events", Socket, {"far": far}),
            (f"{base}/(.*)", Echo, {"far": far}),
        ]
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        far.application = Application(routes)
        far.context = context
        sockets = bind_sockets(0, "127.0.0.1")
        far.port = sockets[0].getsockname()[1]
        far.server = HTTPServer(far.application, ssl_options=context)
        far.server.add_sockets(sockets)
        return far

    async def stop(far):
        far.server.stop()
        await far.server.close_all_connections()

    far = jp_asyncio_loop.run_until_complete(start())
    yield far
    jp_asyncio_loop.run_until_complete(stop(far))


@pytest.fixture
def pin(certificate):
    return pin_of_file(certificate)


@pytest.fixture
def logged_in(far_server, pin, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    store_login(Login(url=f"https://127.0.0.1:{far_server.port}/far/", pin=pin, token=TOKEN), os.environ)


@pytest.fixture
def jp_server_config(logged_in, jp_server_config):
    return jp_server_config


@pytest.fixture
def far(far_server, app):
    return far_server


@pytest.fixture
def base(jp_http_port, jp_base_url, http_server_client):
    return f"localhost:{jp_http_port}{jp_base_url}{PREFIX}"


async def test_no_master_and_no_agent_are_started_here(far, app, state_dir, jp_fetch):
    health = json.loads((await jp_fetch(PREFIX, "health")).body)

    assert (app.service, app._agents, (state_dir / "mgpu.db").exists()) == (None, [], False)
    assert (health["status"], health["cluster"], health["relays_to"]) == (
        "ok",
        "far",
        f"https://127.0.0.1:{far.port}/far/",
    )


async def test_a_request_goes_out_with_the_logins_token_and_nothing_of_the_askers(
    far, jp_fetch, jp_base_url, jp_auth_header
):
    own = jp_auth_header["Authorization"].split()[1]
    headers = {"Idempotency-Key": "k1", "Cookie": "mine=1", "X-Odd": "1", "Content-Type": "application/json"}
    answer = await jp_fetch(
        PREFIX,
        "jobs",
        method="POST",
        body=b'{"command":["true"]}',
        headers=headers,
        params={"a": "1&2", "token": own},
    )
    method, uri, authorization, body, sent = far.seen[-1]

    assert (method, uri, authorization, body) == (
        "POST",
        f"/far/{PREFIX}/jobs?a=1%262",
        f"mgpu {TOKEN}",
        b'{"command":["true"]}',
    )
    assert (sent["Idempotency-Key"], sent["Host"], "Cookie" in sent, "X-Odd" in sent) == (
        "k1",
        f"127.0.0.1:{far.port}",
        False,
        False,
    )
    assert (answer.code, answer.headers["Location"]) == (201, f"{jp_base_url}{PREFIX}/jobs/AB12CD34")
    assert "theirs" not in str(answer.headers.get_list("Set-Cookie"))


async def test_answers_and_errors_pass_unaltered(far, jp_fetch):
    answer = await jp_fetch(PREFIX, "jobs", "AB12CD34", "output")
    assert (json.loads(answer.body), answer.headers["X-Mgpu-Next-Offset"]) == (
        {"path": "jobs/AB12CD34/output"},
        "7",
    )
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "bad", method="POST", body=b"{}")
    assert (caught.value.code, caught.value.response.body) == (418, ERROR)


@pytest.mark.parametrize("path", ["cluster/history", "nodes/n1/history", "jobs/AB12CD34/usage"])
async def test_the_past_is_the_masters(far, jp_fetch, path):
    answer = await jp_fetch(PREFIX, *path.split("/"), params={"points": "7"})
    assert json.loads(answer.body) == {"path": path}
    assert far.seen[-1][:3] == ("GET", f"/far/{PREFIX}/{path}?points=7", f"mgpu {TOKEN}")


async def test_live_figures_are_relayed_with_what_was_asked_for(far, base, jp_auth_header):
    own = jp_auth_header["Authorization"].split()[1]
    socket = await websocket_connect(f"ws://{base}/events?since=5&samples=1&queue=9&token={own}")
    socket.close()
    assert far.seen[-1][:3] == ("GET", f"/far/{PREFIX}/events?since=5&samples=1&queue=9", f"mgpu {TOKEN}")


async def test_routes_that_only_a_newer_master_knows_are_relayed_too(far, jp_fetch):
    assert json.loads((await jp_fetch(PREFIX, "things", "new")).body) == {"path": "things/new"}
    assert json.loads((await jp_fetch(PREFIX, "users", "ann", method="DELETE")).body) == {"path": "users/ann"}


async def test_strangers_are_refused_here_and_the_master_hears_nothing(
    far, app, http_server_client, jp_base_url, base
):
    for headers in (
        {},
        {"Authorization": "mgpu wrong"},
        {"Authorization": f"mgpu {TOKEN}"},
        {"Authorization": "token wrong"},
    ):
        for path in ("jobs", "health", "things/new"):
            response = await http_server_client.fetch(
                f"{jp_base_url}{PREFIX}/{path}", headers=headers, raise_error=False
            )
            assert response.code in (401, 403), (headers, path)
        with pytest.raises(HTTPClientError) as caught:
            await websocket_connect(HTTPRequest(f"ws://{base}/events", headers=headers))
        assert caught.value.code in (401, 403)
    assert far.seen == []


async def test_kernels_have_a_token_of_this_server_that_stays_over_a_restart(
    far, app, jp_serverapp, http_server_client, jp_base_url
):
    token = os.environ["MGPU_TOKEN"]
    assert token != TOKEN
    await app.stop_extension()
    await app._start_jupyter_server_extension(jp_serverapp)

    assert os.environ["MGPU_TOKEN"] == token
    response = await http_server_client.fetch(
        f"{jp_base_url}{PREFIX}/jobs", headers={"Authorization": f"mgpu {token}"}
    )
    assert response.code == 200
    elsewhere = await http_server_client.fetch(
        f"{jp_base_url}api/contents", headers={"Authorization": f"mgpu {token}"}, raise_error=False
    )
    assert elsewhere.code == 403


async def test_another_user_of_this_server_does_not_act_under_its_owners_login(
    far, app, jp_fetch, monkeypatch
):
    monkeypatch.setattr(app.access, "by_identity", lambda provider, name: Person("eve"))
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs")
    assert (caught.value.code, json.loads(caught.value.response.body)["code"], far.seen) == (
        403,
        "not-your-login",
        [],
    )


async def test_a_slow_reader_holds_the_master_back(far, app, base, jp_http_port, jp_base_url):
    reader, writer = await asyncio.open_connection("localhost", jp_http_port, limit=1024)
    request = (
        f"GET {jp_base_url}{PREFIX}/flood HTTP/1.1\r\nHost: "
        f"localhost:{jp_http_port}\r\nAuthorization: mgpu {app.own_token}\r\n\r\n"
    )
    writer.write(request.encode())
    assert b"200 OK" in await reader.readline()
    before = 0
    while before != far.sent or not before:  # until it came so far that nothing moves for half a second
        before = far.sent
        await asyncio.sleep(0.5)

    # What lies in socket buffers of the system is all that is under way.
    assert 0 < before < 300 * len(CHUNK)
    while far.sent == before:  # as soon as it reads on, so does the master
        assert await asyncio.wait_for(reader.read(len(CHUNK)), 60)
    assert not far.closed.is_set()
    writer.close()
    await asyncio.wait_for(far.closed.wait(), 60)


async def test_a_flood_arrives_whole(far, jp_fetch):
    answer = await jp_fetch(PREFIX, "flood")
    assert answer.body == CHUNK * 400


async def test_an_answer_that_tears_does_not_look_whole(far, http_server_client, jp_base_url, app):
    with pytest.raises(Exception, match=r"(?i)closed"):
        await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/torn", headers={"Authorization": f"mgpu {app.own_token}"}
        )


async def test_sockets_speak_both_ways_and_close_as_the_master_does(far, base, jp_auth_header):
    own = jp_auth_header["Authorization"].split()[1]
    socket = await websocket_connect(f"ws://{base}/jobs/AB12CD34/stream?offsets=0:5&token={own}")
    await socket.write_message("hello")
    assert json.loads(await socket.read_message()) == {"far": "hello"}
    await socket.write_message("bye")
    assert (await socket.read_message(), socket.close_code, socket.close_reason) == (None, 4001, "done")
    socket.close()
    assert far.seen[-1][:3] == ("GET", f"/far/{PREFIX}/jobs/AB12CD34/stream?offsets=0:5", f"mgpu {TOKEN}")


async def test_a_viewer_who_leaves_is_gone_for_the_master_too(far, base, jp_auth_header):
    socket = await websocket_connect(HTTPRequest(f"ws://{base}/events", headers=jp_auth_header))
    socket.close()
    await asyncio.wait_for(far.closed.wait(), 60)


async def test_a_refused_socket_is_refused_in_the_masters_words(far, base, jp_auth_header):
    with pytest.raises(HTTPClientError) as caught:
        await websocket_connect(HTTPRequest(f"ws://{base}/jobs/OTHERS00/stream", headers=jp_auth_header))
    assert (caught.value.code, caught.value.response.body) == (403, ERROR)


async def test_a_master_that_is_away_is_one_sentence_and_comes_back_by_itself(
    far, jp_fetch, base, jp_auth_header
):
    far.server.stop()
    await far.server.close_all_connections()
    url = f"https://127.0.0.1:{far.port}/far/"
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs")
    body = json.loads(caught.value.response.body)
    with pytest.raises(HTTPClientError) as by_socket:
        await websocket_connect(HTTPRequest(f"ws://{base}/events", headers=jp_auth_header))
    health = json.loads((await jp_fetch(PREFIX, "health")).body)

    sentence = (
        f"The master at {url} does not answer (connection refused): this server tries again with "
        f"every request."
    )
    assert (caught.value.code, body["code"], body["message"]) == (503, "master-unreachable", sentence)
    assert (by_socket.value.code, json.loads(by_socket.value.response.body)["message"]) == (503, sentence)
    assert (health["status"], health["message"], health["relays_to"]) == ("degraded", sentence, url)
    far.server = HTTPServer(far.application, ssl_options=far.context)
    far.server.listen(far.port, "127.0.0.1")
    assert (await jp_fetch(PREFIX, "jobs")).code == 200


async def test_a_master_with_another_certificate_gets_not_one_byte(far, jp_fetch, base, jp_auth_header):
    store_login(Login(url=f"https://127.0.0.1:{far.port}/far/", pin="ab" * 32, token=TOKEN), os.environ)
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs")
    with pytest.raises(HTTPClientError) as by_socket:
        await websocket_connect(HTTPRequest(f"ws://{base}/events", headers=jp_auth_header))

    assert (caught.value.code, json.loads(caught.value.response.body)["code"]) == (503, "wrong-certificate")
    assert (by_socket.value.code, json.loads(by_socket.value.response.body)["code"]) == (
        503,
        "wrong-certificate",
    )
    assert far.seen == []


async def test_logging_out_is_seen_at_once(far, jp_fetch, tmp_path):
    (tmp_path / "config" / "mgpu" / "login.json").unlink()
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs")
    assert json.loads(caught.value.response.body)["code"] == "logged-out"
    assert json.loads((await jp_fetch(PREFIX, "health")).body)["status"] == "failed"


@pytest.mark.parametrize(
    ("uri", "target"),
    [
        (f"/user/ann/{PREFIX}/jobs", "jobs"),
        (f"/{PREFIX}/jobs?token=t", "jobs"),
        (f"/{PREFIX}/jobs?a=1&token=t&b=%20", "jobs?a=1&b=%20"),
        (f"/{PREFIX}/jobs/%2e%2e/x?tokens=1", "jobs/%2e%2e/x?tokens=1"),
    ],
)
def test_what_is_asked_below_the_prefix(uri, target):
    assert target_below(uri) == target
