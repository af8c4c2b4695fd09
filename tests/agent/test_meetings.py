"""Meetings over real sockets: who reaches whom by which address, and nobody else."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.network import kept_ports, meetings
from mgpu_agent.network.interfaces import ways_here
from mgpu_agent.network.kept_ports import KeptPorts
from mgpu_agent.network.meetings import Meetings, Strange, fingerprint_of, receive_visit, visit
from mgpu_agent.process.preparation import Preparation, look_for
from mgpu_agent.process.spool import Spool
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Peer, Reached, Unreached, Way
from mgpu_agent.protocol.messages import Meet, Met
from mgpu_agent.protocol.model import LaunchSpec, PythonWish, TaskSpec
from mgpu_agent.run_as.pythons import interpreter_of
from mgpu_agent.run_as.requests import Versions
from mgpu_agent.run_as.user_files import UserFiles
from tests.processes import wait_until

KEY = AttemptKey(JobId("AB12CD34"), 1, 5)
SPEC = LaunchSpec(
    key=KEY,
    node_id=NodeId("n1"),
    incarnation="i",
    user="ada",
    tasks=(TaskSpec(rank=0),),
    argv=("python3", "x.py"),
)
HERE = Way("127.0.0.1", "lo")


@pytest.fixture
def nodes() -> Iterator[list[Meetings]]:
    made = [Meetings(NodeId(name), "127.0.0.1", lambda: None) for name in ("n1", "n2", "n3")]
    yield made
    for one in made:
        one.close()


def a_meet(peers: dict[str, MeetingPoint], secret: bytes = b"secret", limit_s: float = 20.0) -> Meet:
    known = tuple(Peer(node_id=NodeId(name), ways=(HERE,), port=offer.port) for name, offer in peers.items())
    return Meet(key=KEY, secret=secret, peers=known, limit_s=limit_s)


def answer(node: Meetings) -> Met:
    return wait_until(lambda: next(iter(node.take()), None), "the node tells whom it reached")


def meet_all(nodes: list[Meetings], offers: dict[str, MeetingPoint]) -> list[Met]:
    for name, node in zip(offers, nodes, strict=True):
        node.meet(a_meet({other: offer for other, offer in offers.items() if other != name}))
    return [answer(node) for node in nodes]


def test_three_nodes_reach_each_other(nodes: list[Meetings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "fingerprint_of", lambda *_: Fingerprint(python="3.11.2"))
    offers = {name: node.open(SPEC) for name, node in zip(("n1", "n2", "n3"), nodes, strict=True)}
    assert nodes[0].open(SPEC) == offers["n1"]

    found = meet_all(nodes, offers)

    assert [set(met.reached) for met in found] == [
        {Reached(NodeId(other), "127.0.0.1") for other in offers if other != name} for name in offers
    ]
    assert [met.unreached for met in found] == [(), (), ()]
    assert found[0].fingerprint == Fingerprint(python="3.11.2")


def test_an_address_that_leads_to_another_node_is_no_way(nodes: list[Meetings]) -> None:
    first, second, _ = (node.open(SPEC) for node in nodes)
    nodes[0].meet(a_meet({"n3": second}))
    nodes[1].meet(a_meet({"n1": first}))

    (lost,) = answer(nodes[0]).unreached
    assert (lost.node_id, lost.why) == ("n3", "what answers there is not n3")


def test_one_that_does_not_know_the_secret_is_no_node_of_the_attempt(nodes: list[Meetings]) -> None:
    first, second = nodes[0].open(SPEC), nodes[1].open(SPEC)
    nodes[0].meet(a_meet({"n2": second}))
    nodes[1].meet(a_meet({"n1": first}, secret=b"another"))
    assert [answer(node).unreached[0].why for node in nodes[:2]] == [
        "what answers there is not n2",
        "what answers there is not n1",
    ]


def test_a_node_that_never_comes_is_silent_and_one_that_left_refuses(nodes: list[Meetings]) -> None:
    offers = {"n2": nodes[1].open(SPEC), "n3": nodes[2].open(SPEC)}
    nodes[2].leave(KEY)
    nodes[0].open(SPEC)
    nodes[0].meet(a_meet(offers, limit_s=1.0))
    found = {one.node_id: one.why for one in answer(nodes[0]).unreached}
    assert found == {"n2": "no answer", "n3": "connection refused"}


def test_when_all_are_reached_nobody_waits_for_ways_that_lead_nowhere(
    nodes: list[Meetings], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = nodes[0].open(SPEC), nodes[1].open(SPEC)
    nowhere, is_over, go = Way("192.0.2.99", "eth9"), threading.Event(), meetings._go

    def go_unless_nowhere(peer: Peer, way: Way, secret: bytes, until: float) -> Reached | Unreached:
        if way == nowhere:
            is_over.wait(30.0)
        return go(peer, way, secret, until)

    monkeypatch.setattr(meetings, "_go", go_unless_nowhere)
    peer = Peer(node_id=NodeId("n2"), ways=(nowhere, HERE), port=second.port)
    nodes[0].meet(Meet(key=KEY, secret=b"secret", peers=(peer,), limit_s=30.0))
    nodes[1].meet(a_meet({"n1": first}))
    met = answer(nodes[0])
    is_over.set()
    assert (met.reached, met.unreached) == (
        (Reached(NodeId("n2"), "127.0.0.1"),),
        (Unreached(NodeId("n2"), "192.0.2.99", "no answer"),),
    )


def test_a_meeting_can_begin_anew(nodes: list[Meetings]) -> None:
    first, second = nodes[0].open(SPEC), nodes[1].open(SPEC)
    nodes[0].meet(a_meet({"n2": replace(second, port=1)}, limit_s=0.5))
    assert answer(nodes[0]).reached == ()
    nodes[1].meet(a_meet({"n1": first}, secret=b"new"))
    nodes[0].meet(a_meet({"n2": second}, secret=b"new"))
    assert answer(nodes[0]).reached == (Reached(NodeId("n2"), "127.0.0.1"),)


def test_what_is_over_tells_nothing_and_what_was_never_open_is_left_alone(nodes: list[Meetings]) -> None:
    nodes[0].meet(a_meet({}))
    nodes[0].leave(KEY)
    told = threading.Event()
    with contextlib.closing(Meetings(NodeId("n2"), "127.0.0.1", told.set)) as node:
        node.open(SPEC)
        node.meet(a_meet({}))
        assert told.wait(20.0)
        node.forget(KEY)
        assert (nodes[0].take(), node.take()) == ([], [])


def test_only_the_node_of_rank_0_keeps_a_port(nodes: list[Meetings]) -> None:
    other = replace(SPEC, tasks=(TaskSpec(rank=2),))
    assert (nodes[0].open(SPEC).master_port > 0, nodes[1].open(other).master_port) == (True, 0)


@pytest.mark.parametrize(
    "words", [b"GET / HTTP/1.1\r\n\r\n" * 3, b"mgpu-meet1" + b"n" * 16 + b"x" * 32, b"mgpu"]
)
def test_strangers_are_hung_up_on(words: bytes) -> None:
    one, other = socket.socketpair()
    with one, other:
        one.sendall(words)
        one.shutdown(socket.SHUT_WR)
        with pytest.raises(Strange):
            receive_visit(other, b"secret", "n1")


def test_a_host_that_does_not_agree() -> None:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(5.0)

        def host() -> None:
            receive_visit(_Mute(other), b"secret", "n1")  # type: ignore[arg-type]
            other.sendall(b"no")

        thread = threading.Thread(target=host)
        thread.start()
        with pytest.raises(Strange, match="did not agree"):
            visit(one, b"secret", "n1")
        thread.join(5.0)


class _Mute:
    """A socket that swallows the last word."""

    def __init__(self, inner: socket.socket) -> None:
        self._inner = inner

    def recv(self, size: int) -> bytes:
        return self._inner.recv(size)

    def sendall(self, data: bytes) -> None:
        if data != b"ok":
            self._inner.sendall(data)


# --- ports, interfaces, fingerprints ---------------------------------------------------------------


def test_two_attempts_never_get_the_same_port_whatever_agent_asks() -> None:
    one, other, third = KeptPorts(), KeptPorts(), KeptPorts()
    try:
        port = one.keep(KEY)
        assert one.keep(KEY) == port
        assert other.keep(KEY) != port
        one.release(KEY)
        one.release(KEY)
        assert third.keep(KEY) == port
        with socket.socket() as rank_0:
            rank_0.bind(("127.0.0.1", port))  # kept for rank 0, not from it
    finally:
        for kept in (one, other, third):
            kept.close()


def test_a_port_in_use_is_not_given() -> None:
    kept = KeptPorts()
    port = kept.keep(KEY)
    kept.release(KEY)
    with socket.create_server(("127.0.0.1", port)):
        assert kept.keep(KEY) != port
    kept.close()


def test_no_port_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_ports, "_is_free", lambda _: False)
    monkeypatch.setattr(kept_ports, "TRIES", 3)
    with pytest.raises(OSError, match="none is free"):
        KeptPorts().keep(KEY)


def test_addresses_of_this_machine() -> None:
    ways = ways_here("127.0.0.1")
    assert Way("127.0.0.1", "lo") in ways
    assert [way.interface for way in ways] == sorted((way.interface for way in ways), key="lo".__eq__)
    assert ways_here("gpu001.example.com")[0] == Way("gpu001.example.com", "")


@pytest.mark.parametrize(
    ("fields", "interpreter"),
    [
        ({"argv": ("{python}", "train.py")}, "{python}"),
        ({"argv": ("{script}", "train.py")}, "{python}"),
        ({"argv": ("bash", "-lc", "cd /tmp && {python} train.py")}, "{python}"),
        ({"argv": ("bash", "-lc", "echo 'no end"), "env": {"PATH": "/nowhere"}}, ""),
        ({"argv": ("nothing-like-this",), "env": {"PATH": "/nowhere"}}, ""),
        ({"argv": (), "script": "pass", "python": PythonWish(path="{python}")}, "{python}"),
    ],
)
def test_the_python_that_a_launch_uses(tmp_path: object, fields: dict[str, object], interpreter: str) -> None:
    script = f"{tmp_path}/torchrun"
    python = f"{sys.exec_prefix}/bin/python3"
    with open(script, "w", opener=lambda path, flags: os.open(path, flags, 0o755)) as file:
        file.write(f"#!{python}\nimport torch\n")

    def filled(value: object) -> object:
        if isinstance(value, str):
            return value.format(python=python, script=script)
        if isinstance(value, tuple):
            return tuple(map(filled, value))
        return replace(value, path=python) if isinstance(value, PythonWish) else value

    spec = replace(SPEC, **{name: filled(value) for name, value in fields.items()})
    spool: Any = None
    task = Preparation(NodeId("n1"), spool, (), {b"PATH": b"/usr/bin:/bin"}).comparison_of(spec)
    assert interpreter_of(task) == interpreter.format(python=python)


def test_what_a_launch_finds_is_what_a_look_says_or_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meetings, "_DRIVER", "/nowhere")
    assert fingerprint_of(SPEC, lambda _: Versions(python="3.11", torch="2.1")) == Fingerprint(
        python="3.11", torch="2.1"
    )
    assert fingerprint_of(SPEC, lambda _: None) == Fingerprint()


def test_versions_are_looked_for_on_the_thread_of_the_jobs_user(tmp_path: Path) -> None:
    spool, users = Spool(tmp_path), UserFiles()
    places = Preparation(NodeId("n1"), spool, (), {})
    spec = replace(SPEC, argv=(sys.executable, "x.py"))
    found = look_for(users, places, spec)
    assert found is not None
    assert found.python == "{}.{}".format(*sys.version_info[:2])
    users.close()
    assert look_for(users, places, spec) is None
    spool.close()


def test_the_driver_is_read_from_the_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    path = f"{tmp_path}/version"
    with open(path, "w") as file:
        file.write(
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\nGCC "
            "version: 12\n"
        )
    monkeypatch.setattr(meetings, "_DRIVER", path)
    assert meetings._driver() == "570.86.15"
