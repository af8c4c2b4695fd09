"""The hub, who is with a job, what each user may ask for at once, and rows of numbers over time."""

from __future__ import annotations

import asyncio
import math
from contextlib import ExitStack
from types import SimpleNamespace

import pytest

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.model.settings import Limits
from mgpu_jupyter.server.hub import Hub
from mgpu_jupyter.server.limits import Bucket, Cost, RequestShares, Turns, too_many
from mgpu_jupyter.server.live.rings import Growing, Points, Ring, Tiers
from mgpu_jupyter.server.presence import Presence

JOB = JobId("JOB00001")
KIB = 1024


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


# --- the hub, presence -----------------------------------------------------------------------------------


async def test_the_hub_delivers_replies_then_jobs_then_flags_once_for_all_that_is_published():
    hub = Hub(asyncio.get_running_loop())
    heard = []
    saved = [SimpleNamespace(job=SimpleNamespace(id=JobId(name))) for name in ("A", "B")]
    with ExitStack() as stack:
        stack.enter_context(hub.listen(lambda jobs: heard.append(("jobs", [saved.job.id for saved in jobs]))))
        names = {name: stack.enter_context(hub.watch(JobId(name))) for name in ("A", "C", "D")}
        every = stack.enter_context(hub.watch())
        hub.publish([lambda: heard.append("reply")], saved[:1], {JobId("C")})
        hub.publish([lambda: heard.append("reply 2")], saved[1:], set())
        at_once = list(heard)
        await settle()
        flags = {name: await watch.wait(0.001) for name, watch in (*names.items(), ("any", every))}
        hub.publish([], [], set())
        await settle()
        any_again = [await every.wait(0.001), await every.wait(0.001), await names["A"].wait(0.001)]

    assert (at_once, heard) == ([], ["reply", "reply 2", ("jobs", ["A", "B"])])
    assert flags == {"A": True, "C": True, "D": False, "any": True}
    assert any_again == [True, False, False]


async def test_two_who_watch_the_same_are_told_both_until_they_leave():
    hub = Hub(asyncio.get_running_loop())
    with hub.watch(JOB) as first:
        with hub.watch(JOB) as second:
            hub.publish([], [], {JOB})
            await settle()
            both = [await first.wait(0.001), await second.wait(0.001)]
        hub.publish([], [], {JOB})
        await settle()
        one = [await first.wait(0.001), await second.wait(0.001)]

    assert (both, one) == ([True, True], [True, False])


async def test_a_loop_that_is_closed_hears_nothing_and_nothing_fails():
    loop = asyncio.new_event_loop()
    hub = Hub(loop)
    loop.close()
    hub.publish([lambda: None], [], set())
    hub.publish([lambda: None], [], set())


async def test_presence_looks_every_second_and_a_failure_does_not_end_that(monkeypatch):
    looks = []

    async def jobs():
        looks.append(len(looks))
        if len(looks) == 1:
            raise Unavailable("busy", "Busy.")
        return []

    monkeypatch.setattr("mgpu_jupyter.server.presence.LOOK_S", 0.001)
    presence = Presence(1.0, jobs, None, lambda: 0.0)
    presence.stop()
    presence.start()
    for _ in range(1000):
        if len(looks) > 2:
            break
        await asyncio.sleep(0.002)
    presence.stop()
    await settle()
    count = len(looks)
    await asyncio.sleep(0.02)

    assert (count > 2, len(looks)) == (True, count)


# --- limits ----------------------------------------------------------------------------------------------


def test_a_bucket_fills_with_time_up_to_its_bound():
    bucket = Bucket(2.0, 3.0, 3.0, 100.0)
    waits = [
        bucket.wait_s(at)
        for at in (100.0, 100.0, 100.0, 100.0, 100.25, 100.5, 99.0, 200.0, 200.0, 200.0, 200.0)
    ]

    assert waits == [0.0, 0.0, 0.0, 0.5, 0.25, 0.0, 0.5, 0.0, 0.0, 0.0, 0.5]


@pytest.mark.parametrize(("wait_s", "after_s"), [(0.0, 1), (0.5, 1), (1.0, 1), (1.1, 2), (7.0, 7)])
def test_a_refusal_says_when_to_come_back(wait_s, after_s):
    error = too_many("why", wait_s)

    assert (error.code, error.message, error.details) == (
        "too-many-requests",
        f"That is too much at once (why): try again in {after_s} s.",
        {"retry_after_s": after_s},
    )


def test_streams_and_bodies_of_each_user_are_counted():
    shares = RequestShares(Limits(streams=2, body_mb=1))
    for _ in range(2):
        shares.begin_stream("ann")
    with pytest.raises(Unavailable, match="you have 2 streams open"):
        shares.begin_stream("ann")
    shares.begin_stream("bob")
    shares.end_stream("ann")
    shares.begin_stream("ann")
    shares.end_stream("nobody")
    shares.begin_bytes("ann", 1024 * KIB - 1)
    shares.begin_bytes("ann", 1)
    with pytest.raises(Unavailable, match="you send more than 1 MiB at once"):
        shares.begin_bytes("ann", 1)
    shares.end_bytes("ann", 1)
    shares.begin_bytes("ann", 1)


def test_heavy_requests_have_a_rate_of_their_own_and_streams_take_no_turn():
    shares = RequestShares(Limits(requests_per_s=5.0, heavy_per_s=0.25, burst_s=1.0), lambda: 3.0)
    shares.ask("ann", Cost.HEAVY)
    with pytest.raises(Unavailable) as caught:
        shares.ask("ann", Cost.HEAVY)
    for _ in range(5):
        shares.ask("ann", Cost.STREAM)
    with pytest.raises(Unavailable, match="you may send 5 requests a second"):
        shares.ask("ann", Cost.LIGHT)

    assert (
        caught.value.message
        == "That is too much at once (you may send 0.25 heavy requests a second): try again in 4 s."
    )
    assert shares.turns(Cost.STREAM) is None
    assert shares.turns(Cost.LIGHT) is not shares.turns(Cost.HEAVY)


async def test_turns_go_round_among_users_and_come_back_when_given_back():
    turns = Turns(2, 1, 10)
    log = []

    async def work(name, gate):
        async with turns.turn(name[0]):
            log.append(name)
            await gate.wait()

    gates = {name: asyncio.Event() for name in ("a1", "a2", "a3", "b1", "c1")}
    tasks = [asyncio.ensure_future(work(name, gate)) for name, gate in gates.items()]
    await settle()
    rounds = [list(log)]
    for name in ("a1", "b1", "c1", "a2"):
        gates[name].set()
        await settle()
        rounds.append(list(log))
    gates["a3"].set()
    await asyncio.gather(*tasks)

    assert rounds[0] == ["a1", "b1"]
    assert log[:2] == ["a1", "b1"]
    assert sorted(log) == sorted(gates)
    assert log.index("c1") < log.index("a3")
    async with turns.turn("a"), turns.turn("b"):
        late = asyncio.ensure_future(turns.turn("c").__aenter__())
        await settle()
        assert not late.done()
    await settle()
    assert late.done()


# --- rings -----------------------------------------------------------------------------------------------


def test_a_ring_overwrites_its_oldest_step():
    ring = Ring(10.0, 3, 2)
    for at in (0.0, 5.0, 10.0, 20.0, 30.0, 40.0, 45.0):
        ring.add(at, (at, None if at == 10.0 else 1.0))
    times, rows = ring.rows(0.0)
    recent, _ = ring.rows(30.0)
    later, _ = ring.rows(41.0)

    assert (ring.span_s, times, recent, later) == (30.0, [10.0, 20.0, 30.0, 40.0], [30.0, 40.0], [])
    assert [row[0] for row in rows] == [10.0, 20.0, 30.0, 42.5]
    assert [math.isnan(row[1]) for row in rows] == [True, False, False, False]


def test_the_finest_ring_that_reaches_so_far_is_read():
    tiers = Tiers(((1.0, 4), (10.0, 4)), 1)
    for at in range(40):
        tiers.add(float(at), (float(at),))

    assert tiers.read(36.0, 40.0, 10) == Points(1.0, [36.0, 37.0, 38.0, 39.0], [[36.0, 37.0, 38.0, 39.0]])
    assert tiers.read(36.0, 40.0, 3) == Points(2.0, [36.0, 38.0], [[36.5, 38.5]])
    assert tiers.read(0.0, 40.0, 10) == Points(10.0, [0.0, 10.0, 20.0, 30.0], [[4.5, 14.5, 24.5, 34.5]])
    assert tiers.read(-500.0, 40.0, 10).step_s == 10.0
    assert Tiers(((1.0, 4),), 2).read(0.0, 4.0, 10) == Points(1.0, [], [[], []])


def test_a_growing_record_halves_itself():
    record = Growing(1.0, 2, 1)
    empty = record.read(5)
    steps = []
    for at in range(6):
        record.add(float(at), (float(at),))
        steps.append(record.step_s)
    told = record.read(5)
    record.add(100.0, (None,))

    assert (empty, steps) == (Points(1.0, [], [[]]), [1.0, 1.0, 1.0, 1.0, 2.0, 2.0])
    assert told == Points(2.0, [0.0, 2.0, 4.0], [[0.5, 2.5, 4.5]])
    assert record.read(5) == Points(2.0, [0.0, 2.0, 4.0, 100.0], [[0.5, 2.5, 4.5, None]])
