"""A master elsewhere that means harm: what it sends must not become a page, a cookie, a redirect or a load of
this server's origin.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import struct

import pytest
from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.login import Login, store_login
from mgpu_jupyter.server import foreign, relay
from tests.server.hostile_server import GUARD, JSON, NASTY, NOT_OURS, SCRIPT, SENTENCE, Hostile, answer, frame

pytestmark = pytest.mark.slow


@pytest.fixture
def hostile(jp_asyncio_loop, tmp_path, monkeypatch):
    hostile = Hostile()
    server = jp_asyncio_loop.run_until_complete(asyncio.start_server(hostile.serve, "127.0.0.1", 0))
    port = server.sockets[0].getsockname()[1]
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    store_login(Login(url=f"http://127.0.0.1:{port}/far/", pin="", token="t"), os.environ)
    yield hostile
    server.close()
    jp_asyncio_loop.run_until_complete(hostile.end())


@pytest.fixture
def jp_server_config(hostile, jp_server_config):
    return jp_server_config


@pytest.fixture
def get(app, jp_fetch, jp_base_url):
    """Ask through the relay and return (status, headers without those of the connection, body)."""

    async def get(**headers):
        try:
            told = await jp_fetch(
                PREFIX, "jobs", "AB12CD34", follow_redirects=False, headers=headers, decompress_response=False
            )
        except HTTPClientError as error:
            told = error.response
            if told is None:
                raise
        ours = ("Server", "Date", "Set-Cookie", "Connection")
        left = {name: value for name, value in told.headers.get_all() if name not in ours}
        assert left.pop("Access-Control-Allow-Origin", "") == ""  # Jupyter's own word
        assert "theirs" not in str(told.headers.get_list("Set-Cookie"))
        return told.code, left, told.body

    return get


async def refused(get, **headers):
    status, told, body = await get(**headers)
    assert (status, json.loads(body)) == (502, NOT_OURS)
    told.pop("Etag", None)
    assert told == {**GUARD, "Content-Type": "application/json", "Content-Length": str(len(body))}


async def test_a_page_does_not_pass(hostile, get):
    for status in ["200 OK", "201 Created", "403 Forbidden", "500 Oops"]:
        for kind in [
            "text/html",
            "text/html; charset=utf-7",
            "image/svg+xml",
            "application/xhtml+xml",
            "text/xml",
            "application/javascript",
            "text/css",
            "text/plain",
            "application/json+html",
            "multipart/x-mixed-replace; boundary=x",
            "application/pdf",
            "",
        ]:
            hostile.bytes = answer(status, *([f"Content-Type: {kind}"] if kind else []), body=SCRIPT)
            await refused(get)


async def test_errors_are_json_only(hostile, get):
    hostile.bytes = answer("404 Not Found", "Content-Type: application/octet-stream", body=SCRIPT)
    await refused(get)


async def test_a_status_that_is_none_of_ours_does_not_pass(hostile, get):
    for status in [
        "100 Continue",
        "103 Early Hints",
        "199 Odd",
        "300 Choices",
        "301 Moved",
        "302 Found",
        "304 Not Modified",
        "307 Temporary",
        "308 Permanent",
        "600 Odd",
        "999 Odd",
    ]:
        hostile.bytes = answer(status, JSON, "Location: https://evil.example/", body=b"{}")
        await refused(get)


async def test_early_hints_before_an_answer_do_not_pass(hostile, get):
    hostile.bytes = b"HTTP/1.1 103 Early Hints\r\nLink: </x>; rel=preload\r\n\r\n" * 3 + answer(
        "200 OK", JSON, body=b"{}"
    )
    await refused(get)


async def test_unchanged_is_for_those_who_have_it(hostile, get):
    hostile.bytes = b'HTTP/1.1 304 Not Modified\r\nEtag: "x"\r\nContent-Type: text/html\r\n\r\n'
    assert await get(**{"If-None-Match": '"x"'}) == (304, {**GUARD, "Etag": '"x"'}, b"")


async def test_no_header_passes_that_is_not_ours(hostile, get):
    hostile.bytes = answer(
        "200 OK",
        "Content-Type: application/json; charset=utf-7",
        *NASTY,
        "Location: javascript:alert(1)",
        body=b"{}",
    )
    expected = {**GUARD, "Content-Type": "application/json", "Content-Length": "2", "X-Mgpu-Next-Offset": "7"}
    assert await get() == (200, expected, b"{}")


async def test_headers_of_ours_pass(hostile, get, jp_base_url):
    told = {
        "Retry-After": "3",
        "Cache-Control": "no-store",
        "Etag": '"abc"',
        "X-Mgpu-Complete": "true",
        "X-Mgpu-Sha256": "ab" * 32,
    }
    lines = [f"{name}: {value}" for name, value in told.items()]
    hostile.bytes = answer("201 Created", JSON, *lines, f"Location: /far/{PREFIX}/jobs/AB12CD34", body=b"{}")
    expected = {
        **GUARD,
        **told,
        "Content-Type": "application/json",
        "Content-Length": "2",
        "Location": f"{jp_base_url}{PREFIX}/jobs/AB12CD34",
    }
    assert await get() == (201, expected, b"{}")


async def test_no_location_leads_elsewhere(hostile, get):
    for location in [
        "https://evil.example/",
        f"https://evil.example/{PREFIX}/jobs/AB12CD34",
        f"//evil.example/{PREFIX}/jobs/AB12CD34",
        "javascript:alert(1)",
        f"javascript:/{PREFIX}/jobs",
        f"data:text/html,/{PREFIX}/jobs",
        f"/far/{PREFIX}/../../../lab",
        f"/far/{PREFIX}/jobs/%2e%2e",
        f"/far/{PREFIX}//evil.example",
        f"/far/{PREFIX}/jobs?token=x",
        f"/far/{PREFIX}/jobs#x",
        f"\\\\evil.example/{PREFIX}/jobs",
        "/lab",
        "",
    ]:
        hostile.bytes = answer("201 Created", JSON, f"Location: {location}", body=b"{}")
        assert await get() == (
            201,
            {**GUARD, "Content-Type": "application/json", "Content-Length": "2"},
            b"{}",
        )


async def test_what_jobs_wrote_is_saved_and_not_shown(hostile, get):
    for kind in ["application/octet-stream", "application/x-ndjson; charset=utf-7"]:
        hostile.bytes = answer(
            "200 OK", f"Content-Type: {kind}", "Content-Disposition: inline; filename=x.html", body=SCRIPT
        )
        told = {
            "Content-Type": kind.partition(";")[0],
            "Content-Disposition": "attachment",
            "X-Accel-Buffering": "no",
        }
        assert await get() == (200, {**GUARD, **told, "Content-Length": str(len(SCRIPT))}, SCRIPT)


async def test_what_is_compressed_does_not_pass(hostile, get):
    for encoding in ["gzip", "deflate", "br", "identity"]:
        bomb = gzip.compress(bytes(1 << 24))
        hostile.bytes = answer("200 OK", JSON, f"Content-Encoding: {encoding}", body=bomb)
        await refused(get)


async def test_a_wrong_length_does_not_pass(hostile, get):
    for length in ["-1", "abc", "0x10", "1, 2", "9" * 30, "1e3", str(foreign.MAX_JSON_BYTES + 1)]:
        hostile.bytes = answer("200 OK", JSON, body=b"{}", length=length)
        await refused(get)


async def test_a_length_that_is_too_long_does_not_look_whole(hostile, app, http_server_client, jp_base_url):
    hostile.bytes = answer("200 OK", JSON, body=b"{}", length="200")
    with pytest.raises(Exception, match=r"(?i)closed"):
        await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/jobs", headers={"Authorization": f"mgpu {app.own_token}"}
        )


async def test_a_length_that_is_too_short_cuts_the_rest_off(hostile, get):
    hostile.bytes = answer(
        "200 OK", JSON, body=b"{}" + answer("200 OK", "Content-Type: text/html", body=SCRIPT), length="2"
    )
    assert (await get())[2] == b"{}"


async def test_huge_headers_cost_no_more_than_their_limit(hostile, get):
    hostile.bytes = b"HTTP/1.1 200 OK\r\n" + b"X: " + bytes(1 << 25).replace(b"\0", b"x") + b"\r\n\r\n{}"
    status, _, body = await get()
    assert (status, json.loads(body)["code"]) == (503, "master-unreachable")
    assert hostile.wrote < 1 << 25


async def test_json_without_an_end_is_cut(hostile, app, http_server_client, jp_base_url, monkeypatch):
    monkeypatch.setattr(relay, "MAX_JSON_BYTES", 1 << 20)
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    hostile.bytes = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk * 64
    )
    with pytest.raises(Exception, match=r"(?i)closed"):
        await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/jobs", headers={"Authorization": f"mgpu {app.own_token}"}
        )


async def test_health_without_an_end_is_a_sentence(hostile, app, jp_fetch):
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    hostile.bytes = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunk * 64
    )
    health = json.loads((await jp_fetch(PREFIX, "health")).body)
    assert (health["status"], health["message"]) == ("degraded", SENTENCE)


@pytest.fixture
def connect(app, jp_http_port, jp_base_url, jp_auth_header, http_server_client):
    async def connect():
        return await websocket_connect(
            HTTPRequest(f"ws://localhost:{jp_http_port}{jp_base_url}{PREFIX}/events", headers=jp_auth_header)
        )

    return connect


async def test_only_json_objects_pass_a_socket(hostile, connect):
    for nasty in [
        frame(1, b"<script>"),
        frame(1, b"[]"),
        frame(1, b'"text"'),
        frame(1, b"{} {}"),
        frame(1, b'{"a":'),
        frame(1, b""),
        frame(2, b"{}"),
    ]:
        hostile.said = [frame(1, b'{"kind":"ping"}'), nasty, frame(1, b'{"kind":"late"}')]
        socket = await connect()
        assert await socket.read_message() == '{"kind":"ping"}'
        assert await socket.read_message() is None
        assert (socket.close_code, socket.close_reason) == (1011, f"not-mgpu: {SENTENCE}"[:120])
        socket.close()


async def test_how_a_socket_is_closed_is_cleaned(hostile, connect):
    for sent, code, reason in [
        (struct.pack(">H", 4001) + "a\x1b]0;x\x07\u202e".encode(), 4001, "a?]0;x??"),
        (struct.pack(">H", 1008) + b"x" * 123, 1008, "x" * 120),
        (struct.pack(">H", 1015), 1013, None),
        (struct.pack(">H", 2), 1013, None),
        (b"", 1013, None),
    ]:
        hostile.said = [bytes([0x88, len(sent)]) + sent]
        socket = await connect()
        assert (await socket.read_message(), socket.close_code, socket.close_reason) == (None, code, reason)
        socket.close()


async def test_a_socket_that_is_refused_with_a_page_is_refused_in_our_words(hostile, connect):
    for told in [
        answer("302 Found", "Location: https://evil.example/", body=SCRIPT),
        answer("200 OK", "Content-Type: text/html", body=SCRIPT),
        answer("403 Forbidden", "Content-Type: text/html", body=SCRIPT),
        answer(
            "403 Forbidden",
            "Content-Encoding: gzip",
            body=gzip.compress(b'{"code":"a","message":"' + bytes(1 << 24) + b'"}'),
        ),
        answer("403 Forbidden", JSON, body=b'{"code":"a","message":"' + b"x" * (1 << 20) + b'"}'),
    ]:
        hostile.bytes = told
        with pytest.raises(HTTPClientError) as caught:
            await connect()
        assert (caught.value.code, json.loads(caught.value.response.body)) == (502, NOT_OURS)
        assert {name: caught.value.response.headers[name] for name in (*GUARD, "Content-Type")} == {
            **GUARD,
            "Content-Type": "application/json",
        }
        assert "Location" not in caught.value.response.headers


async def test_a_socket_that_is_refused_as_ours_are_keeps_its_words(hostile, connect):
    body = b'{"code":"too-many","message":"Later.","details":{}}'
    hostile.bytes = answer("429 Too Many", JSON, *NASTY[:10], "Retry-After: 2", body=body)
    with pytest.raises(HTTPClientError) as caught:
        await connect()
    told = caught.value.response
    assert (told.code, told.body, told.headers["Retry-After"]) == (429, body, "2")
    assert told.headers.get("Access-Control-Allow-Origin", "") == ""
