"""One user's flood is that user's own trouble: turns, rates, streams and bodies, and what is said to whoever
passes them.
"""

from __future__ import annotations

import asyncio

import pytest
from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.model.cluster_file import Limits
from mgpu_jupyter.server.limits import MIB, Cost, RequestShares, Turns
from tests.builders import a_spec

LIMIT_S = 20.0


@pytest.fixture
def mgpu_config():
    limits = {"at_once": 4, "waiting": 40, "heavy_per_s": 0.5, "burst_s": 6.0, "streams": 2, "body_mb": 1}
    return {"local_agent": False, "limits": limits}


@pytest.fixture
def send(http_server_client, jp_http_port, jp_base_url):
    """Send a request on a connection of its own; return status, Retry-After and body."""
    client = AsyncHTTPClient(force_instance=True, max_clients=2000)

    async def send(path, token, method="GET", body=None):
        url, headers = (
            f"http://localhost:{jp_http_port}{jp_base_url}{PREFIX}/{path}",
            {"Authorization": f"mgpu {token}"},
        )
        told = await client.fetch(
            url, method=method, body=body, headers=headers, raise_error=False, request_timeout=LIMIT_S
        )
        return told.code, told.headers.get("Retry-After"), told.body

    yield send
    client.close()


# --- turns -------------------------------------------------------------------------------------------


async def test_users_are_served_in_turn_and_the_flood_waits_for_itself():
    turns, order, gate = Turns(2, 1, 1000), [], asyncio.Event()

    async def work(user, number):
        async with turns.turn(user):
            await gate.wait()
            order.append((user, number))

    flood = [asyncio.ensure_future(work("ann", number)) for number in range(100)]
    await asyncio.sleep(0)
    others = [asyncio.ensure_future(work(user, number)) for number in range(3) for user in ("bob", "eve")]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*flood, *others), LIMIT_S)

    last = max(order.index((user, 2)) for user in ("bob", "eve"))
    assert (len(order), [number for user, number in order if user == "ann"]) == (106, list(range(100)))
    assert last < 10


async def test_one_user_never_has_all_turns():
    turns, gate, done = Turns(4, 2, 1000), asyncio.Event(), []

    async def stuck():
        async with turns.turn("ann"):
            await gate.wait()

    async def quick():
        async with turns.turn("bob"):
            done.append("bob")

    held = [asyncio.ensure_future(stuck()) for _ in range(50)]
    await asyncio.sleep(0)
    await asyncio.wait_for(quick(), LIMIT_S)
    assert (done, sum(one.done() for one in held)) == (["bob"], 0)
    gate.set()
    await asyncio.wait_for(asyncio.gather(*held), LIMIT_S)


async def test_who_stops_waiting_costs_no_turn():
    turns = Turns(1, 1, 1000)
    async with turns.turn("ann"):
        waiting = [asyncio.ensure_future(turns._take("ann")) for _ in range(3)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
    async with asyncio.timeout(LIMIT_S), turns.turn("bob"), asyncio.timeout(1):
        pass
    late = asyncio.ensure_future(turns._take("ann"))
    await asyncio.sleep(0)
    assert late.done()


async def test_too_many_who_wait_are_refused():
    turns = Turns(1, 1, 2)
    async with turns.turn("ann"):
        waiting = [asyncio.ensure_future(turns._take("ann")) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(Unavailable, match="2 requests of yours wait already"):
            await turns._take("ann")
        for one in waiting:
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


def test_permits_come_back_with_time():
    now = [0.0]
    shares = RequestShares(Limits(requests_per_s=2.0, burst_s=2.0), lambda: now[0])
    for _ in range(4):
        shares.ask("ann", Cost.LIGHT)
    with pytest.raises(Unavailable) as caught:
        shares.ask("ann", Cost.LIGHT)
    shares.ask("bob", Cost.LIGHT)
    shares.ask("ann", Cost.HEAVY)
    now[0] = 0.5
    shares.ask("ann", Cost.LIGHT)

    assert (caught.value.code, caught.value.details) == ("too-many-requests", {"retry_after_s": 1})
    assert (
        caught.value.message
        == "That is too much at once (you may send 2 requests a second): try again in 1 s."
    )


def test_bodies_under_way_are_counted():
    shares = RequestShares(Limits(body_mb=1))
    shares.begin_bytes("ann", 5 * MIB)  # one alone is always taken
    with pytest.raises(Unavailable, match="more than 1 MiB at once"):
        shares.begin_bytes("ann", 1)
    shares.begin_bytes("bob", 1)
    shares.end_bytes("ann", 5 * MIB)
    shares.begin_bytes("ann", 1)


# --- over HTTP ---------------------------------------------------------------------------------------


async def test_a_flood_does_not_delay_another(app, add, send, monkeypatch):
    ann, bob, order = await add("ann"), await add("bob"), []
    real = app.service.jobs

    async def slow(wanted):
        await asyncio.sleep(0.02)
        return await real(wanted)

    monkeypatch.setattr(app.service, "jobs", slow)

    async def ask(name, token):
        assert (await send("jobs?limit=1", token))[0] == 200
        order.append(name)

    flood = [asyncio.ensure_future(ask("ann", ann)) for _ in range(40)]
    while not order:  # it is under way
        await asyncio.sleep(0.005)
    for _ in range(3):
        await asyncio.wait_for(ask("bob", bob), LIMIT_S)
    before = order.index("bob", order.index("bob", order.index("bob") + 1) + 1)
    await asyncio.wait_for(asyncio.gather(*flood), LIMIT_S)

    assert (len(order), before < 25) == (43, True), order


async def test_heavy_requests_are_refused_with_a_sentence_and_a_time(app, add, send):
    ann, bob = await add("ann"), await add("bob")
    body = b'{"command":["true"],"gpus":0}'
    statuses = [await send("jobs/dry-run", ann, "POST", body) for _ in range(4)]

    assert [status for status, *_ in statuses] == [200, 200, 200, 429]
    sentence = b"That is too much at once (you may send 0.5 heavy requests a second): try again in 2 s."
    assert statuses[3][1:] == (
        "2",
        b'{"code":"too-many-requests","message":"' + sentence + b'","details":{"retry_after_s":2}}',
    )
    assert (await send("jobs/dry-run", bob, "POST", body))[0] == 200
    assert (await send("pythons", ann, "POST", b"{}"))[0] == 429
    assert (await send("jobs", ann))[0] == 200  # what is cheap goes on
    assert [(await send("jobs/dry-run", app.service.token, "POST", body))[0] for _ in range(6)] == [
        200
    ] * 6  # an administrator


async def test_streams_are_counted_and_given_back(app, add, ask, jp_http_port, jp_base_url, send):
    ann, bob = await add("ann"), await add("bob")
    job_id = (await ask("jobs", ann, "POST", a_spec()))[1]["job_id"]
    base = f"ws://localhost:{jp_http_port}{jp_base_url}{PREFIX}"

    async def connect(token, path="events"):
        return await websocket_connect(
            HTTPRequest(f"{base}/{path}", headers={"Authorization": f"mgpu {token}"})
        )

    first, second, other = await connect(ann), await connect(ann, f"jobs/{job_id}/stream"), await connect(bob)
    with pytest.raises(HTTPClientError) as caught:
        await connect(ann)
    assert (caught.value.code, caught.value.response.headers["Retry-After"]) == (429, "1")
    assert (await send(f"jobs/{job_id}/output?follow=1", ann))[0] == 429
    first.close()
    async with asyncio.timeout(LIMIT_S):
        while (await send(f"jobs/{job_id}/output", ann))[0] == 429:
            await asyncio.sleep(0.01)
    again = await connect(ann)
    for one in (first, second, other, again):
        one.close()


async def test_bodies_under_way_are_refused_before_they_are_read(app, add, jp_http_port, jp_base_url, send):
    ann = await add("ann")
    head = (
        f"POST {jp_base_url}{PREFIX}/jobs HTTP/1.1\r\nHost: localhost:{jp_http_port}\r\nAuthorization: "
        f"mgpu {ann}\r\n"
    )
    _, writer = await asyncio.open_connection("localhost", jp_http_port)
    writer.write(f"{head}Content-Length: {2 * MIB}\r\n\r\n{{".encode())
    async with asyncio.timeout(LIMIT_S):
        while (await send("jobs", ann, "POST", b"[]"))[0] != 429:  # until the slow one has come
            await asyncio.sleep(0.01)
    assert (await send("jobs", ann))[0] == 200
    writer.close()
    async with asyncio.timeout(LIMIT_S):
        while (await send("jobs", ann, "POST", b"[]"))[0] == 429:
            await asyncio.sleep(0.01)
