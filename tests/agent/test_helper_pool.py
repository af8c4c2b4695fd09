"""Root's side of the helpers, with helpers that a test plays: who is told what, and which helper is ended
when.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.channel import Channel
from mgpu_agent.run_as import helper_pool
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.helper_pool import Helpers
from mgpu_agent.run_as.requests import (
    Become,
    Ended,
    HelperPing,
    HelperPong,
    NotSpawned,
    Spawn,
    Spawned,
    request_decoder,
)
from mgpu_agent.run_as.spawn import SpawnFailure

ANNE = Account("anne", 1001, 1001, (1001,), "/home/anne", "/bin/sh")
BERT = Account("bert", 1002, 1002, (1002,), "/home/bert", "/bin/sh")
REQUEST = Spawn(number=0, group=1, argv=(b"run",), env={b"A": b"1"}, cwd="/place")


class Pool:
    """The helpers of a keeper, and the other end of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        self.poll = select.poll()
        self.helpers = Helpers(self.poll)
        self.ends: list[Channel[Any]] = []
        self.names: list[str] = []
        self.killed: list[tuple[int, int]] = []
        self.told: list[int | SpawnFailure] = []
        self.cannot_start = False
        monkeypatch.setattr(helper_pool, "start_helper", self._start)
        monkeypatch.setattr(helper_pool.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(helper_pool.os, "kill", lambda pid, number: self.killed.append((pid, number)))

    def _start(self, name: str) -> tuple[int, socket.socket]:
        if self.cannot_start:
            raise OSError(11, "Resource temporarily unavailable")
        near, far = socket.socketpair()
        self.names.append(name)
        self.ends.append(Channel(far, request_decoder, takes_descriptors=True))
        return 900 + len(self.ends), near

    def spawn(self, account: Account = ANNE, **more: Any) -> None:
        reader, writer = os.pipe()
        os.close(reader)
        self.helpers.spawn(account, REQUEST, (writer,), self.told.append, **more)

    def heard(self, which: int = 0) -> list[Any]:
        """Return what a helper was asked for."""
        heard: list[Any] = []
        while more := self.ends[which].receive():  # what has descriptors comes by itself
            heard += more
        return heard

    def answer(self, *answers: Any, which: int = 0) -> list[tuple[int, int]]:
        for one in answers:
            self.ends[which].put(one)
        self.ends[which].flush()
        return self.serve()

    def serve(self) -> list[tuple[int, int]]:
        return self.helpers.serve(dict(self.poll.poll(1000)))

    def settled(self) -> list[tuple[int, set[int]]]:
        adopted: list[tuple[int, set[int]]] = []
        self.helpers.settle(lambda uid, live: adopted.append((uid, set(live))))
        return adopted


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    pool = Pool(monkeypatch)
    yield pool
    pool.helpers.close()
    for end in pool.ends:
        end.close()


def no_helper(why: str, name: str = "anne") -> SpawnFailure:
    return SpawnFailure(
        "no-helper",
        f"The helper of {name} on this node {why}: end what stops or blocks processes of this user there.",
        "job",
    )


def test_one_helper_serves_an_account_and_tells_who_asked(pool: Pool) -> None:
    pool.spawn()
    pool.spawn()
    pool.spawn(BERT)
    asked = [*pool.heard(0), *pool.heard(1)]
    ended = [
        pool.answer(
            NotSpawned(number=2, code="not-found", message="No.", fault="request", exit_code=127),
            Spawned(number=1, pid=501),
            Ended(pid=501, status=9),
            Ended(pid=502, status=0),
        ),
        pool.answer(Spawned(number=3, pid=502), Spawned(number=3, pid=503), which=1),
        pool.answer(Ended(pid=503, status=0), Ended(pid=502, status=256), which=1),
    ]

    assert asked == [
        Become(account=ANNE, confinement=Confinement()),
        replace(REQUEST, number=1),
        replace(REQUEST, number=2),
        Become(account=BERT, confinement=Confinement()),
        replace(REQUEST, number=3),
    ]
    assert (pool.names, pool.helpers.pids) == (["anne", "bert"], {901, 902})
    assert pool.told == [SpawnFailure("not-found", "No.", "request", 127), 501, 502]
    assert ended == [[(501, 9)], [], [(502, 256)]]


def test_numbers_of_groups_and_requests_are_not_given_twice(pool: Pool) -> None:
    groups = [pool.helpers.new_group(), pool.helpers.new_group()]
    pool.spawn()

    assert (groups, pool.heard()[1].number, pool.helpers.new_group()) == ([1, 2], 3, 4)


@pytest.mark.parametrize(
    ("is_bound", "may_gain", "no_new_privs"),
    [(True, False, True), (True, True, False), (False, False, False), (False, True, False)],
)
def test_what_may_gain_privileges_has_a_helper_of_its_own(
    pool: Pool, is_bound: bool, may_gain: bool, no_new_privs: bool
) -> None:
    pool.helpers.confinement = Confinement(umask=0o077, no_new_privs=is_bound)
    pool.spawn(may_gain=may_gain)
    pool.spawn(may_gain=False)

    assert pool.heard()[0] == Become(
        account=ANNE, confinement=Confinement(umask=0o077, no_new_privs=no_new_privs)
    )
    assert len(pool.ends) == (2 if is_bound and may_gain else 1)


def test_a_helper_that_cannot_be_started_is_told_at_once(pool: Pool) -> None:
    pool.cannot_start = True
    reader, writer = os.pipe()
    pool.helpers.spawn(ANNE, REQUEST, (writer,), pool.told.append)
    with open(reader, "rb") as file:
        assert file.read() == b""  # the descriptor was closed

    assert pool.told == [
        SpawnFailure(
            "no-helper",
            "The node could not start a helper for anne: Resource temporarily unavailable.",
            "node",
        )
    ]
    assert pool.helpers.pids == set()


def test_a_helper_that_does_not_answer_in_time_is_ended(pool: Pool) -> None:
    pool.spawn()
    moments = list(pool.helpers.moments())
    pool.helpers.tend(107.9)
    before = list(pool.killed)
    pool.helpers.tend(108.0)
    told = list(pool.told)
    is_reaped = [pool.helpers.is_reaped(pid) for pid in (555, 901, 901)]
    adopted = pool.settled()

    assert (moments, before, pool.killed, told) == ([108.0], [], [(901, signal.SIGKILL)], [])
    assert (is_reaped, adopted, pool.told) == (
        [False, True, False],
        [(1001, set())],
        [no_helper("did not answer in time")],
    )
    assert (pool.settled(), pool.helpers.pids, list(pool.helpers.moments())) == ([], set(), [])


def test_a_helper_that_ends_leaves_its_processes_to_the_keeper(pool: Pool) -> None:
    pool.spawn()
    pool.spawn()
    pool.answer(Spawned(number=1, pid=501))
    pool.ends[0].close()
    pool.serve()
    still = pool.helpers.pids
    pool.helpers.is_reaped(901)

    assert (still, pool.settled()) == ({901}, [(1001, {501})])
    assert pool.told == [501, no_helper("was ended")]


def test_a_helper_whose_end_is_seen_first_is_let_go_of(pool: Pool) -> None:
    pool.spawn()
    is_reaped = pool.helpers.is_reaped(901)

    assert (is_reaped, pool.settled(), pool.told) == (True, [(1001, set())], [no_helper("was ended")])
    pool.spawn()
    assert pool.helpers.pids == {902}


def test_what_it_said_before_it_ended_counts(pool: Pool) -> None:
    pool.spawn()
    pool.heard()
    pool.ends[0].put(Spawned(number=1, pid=501))
    pool.ends[0].put(Ended(pid=501, status=0))
    pool.ends[0].flush()
    pool.ends[0].close()
    ended = pool.serve()
    if pool.helpers.pids and not pool.killed:
        ended += pool.serve()
    pool.helpers.is_reaped(901)

    assert (pool.told, ended, pool.settled()) == ([501], [(501, 0)], [(1001, set())])


def test_a_helper_with_live_processes_is_asked_whether_it_is_there(pool: Pool) -> None:
    pool.spawn()
    pool.heard()
    pool.answer(Spawned(number=1, pid=501))
    moments = [list(pool.helpers.moments())]
    pool.helpers.tend(101.9)
    early = pool.heard()
    pool.helpers.tend(102.0)
    asked = pool.heard()
    moments.append(list(pool.helpers.moments()))
    pool.helpers.tend(109.9)
    quiet = pool.heard()
    pool.now = 109.9
    pool.answer(HelperPong(number=2))
    moments.append(list(pool.helpers.moments()))
    pool.helpers.tend(112.0)

    assert (early, asked, quiet) == ([], [HelperPing(number=2)], [])
    assert moments == [[102.0], [110.0], [111.9]]
    assert (pool.heard(), pool.killed, pool.told) == ([HelperPing(number=3)], [], [501])
    pool.helpers.tend(120.0)
    assert pool.killed == [(901, signal.SIGKILL)]


def test_a_helper_that_nobody_needs_goes_after_a_while(pool: Pool) -> None:
    pool.spawn()
    pool.answer(Spawned(number=1, pid=501), Ended(pid=501, status=0))
    moments = list(pool.helpers.moments())
    pool.helpers.tend(159.9)
    before = list(pool.killed)
    pool.helpers.tend(160.0)

    assert (moments, before, pool.killed) == ([160.0], [], [(901, signal.SIGKILL)])
    pool.helpers.is_reaped(901)
    assert (pool.settled(), pool.told) == ([(1001, set())], [501])


def test_a_request_keeps_a_helper_from_being_idle(pool: Pool) -> None:
    pool.spawn()
    pool.answer(Spawned(number=1, pid=501), Ended(pid=501, status=0))
    pool.now = 150.0
    pool.spawn()
    pool.answer(NotSpawned(number=2, code="c", message="m", fault="job", exit_code=None))

    assert list(pool.helpers.moments()) == [210.0]


def test_what_a_helper_does_not_read_waits_and_is_sent_later(pool: Pool) -> None:
    request = replace(REQUEST, env={b"BIG": bytes(3_000_000)})
    pool.helpers.spawn(ANNE, request, (), pool.told.append)
    waits = dict(pool.poll.poll(0))
    heard: list[Any] = []
    while len(heard) < 2:
        heard += pool.heard()
        pool.serve()
    quiet = pool.poll.poll(0)

    assert (waits, quiet, len(heard[1].env[b"BIG"])) == ({}, [], 3_000_000)
    assert pool.heard() == []


def test_closed_helpers_see_the_end_and_are_not_killed(pool: Pool) -> None:
    pool.spawn()
    pool.heard()
    pool.helpers.close()

    assert (pool.ends[0].receive(), pool.killed, pool.helpers.pids) == (None, [], set())
