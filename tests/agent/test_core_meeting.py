"""Meetings of nodes, as the machine sees them: given events, when one more, then exactly these commands."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.core.commands import Command, MeetPeers, PrepareLaunch, Send, StartLaunch
from mgpu_agent.core.events import Event, LaunchPrepared, LinkFell, PeersMet
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.meeting import MeetingPoint, Peer, Reached, Way
from mgpu_agent.protocol.messages import Launch, LaunchRefused, Meet, Met, Prepare, Prepared, Start
from tests.agent.core_world import JOINED, KEY, a_machine, a_spec, said

SPEC = a_spec()
FOUND = replace(SPEC, env={"MASTER_ADDR": "192.0.2.1"})
OFFER = MeetingPoint(ways=(Way("192.0.2.1", "eth0"),), port=40_000)
PEER = Peer(node_id=NodeId("n2"), ways=(Way("192.0.2.2", "eth0"),), port=40_001)
MEET = Meet(key=KEY, secret=b"s", peers=(PEER,), limit_s=4.0)
MET = Met(key=KEY, reached=(Reached(NodeId("n2"), "192.0.2.2"),))
ASKED = (*JOINED, said(Prepare(spec=SPEC, hold_s=60.0, meets=True), at=10.0))
READY = (*ASKED, LaunchPrepared(at=10.0, key=KEY, offer=OFFER))
GOING = (*READY, said(MEET, at=10.0))
BACK = (*GOING, PeersMet(at=11.0, met=MET))
REFUSED = LaunchRefused(
    key=KEY, code="not-prepared", message="The node let the preparation go.", fault="stale"
)

CASES: dict[str, tuple[tuple[Event, ...], Event, list[Command]]] = {
    "a preparation says that there will be a meeting": (
        JOINED,
        said(Prepare(spec=SPEC, hold_s=60.0, meets=True)),
        [PrepareLaunch(spec=SPEC, meets=True)],
    ),
    "where it waits is told": (
        ASKED,
        LaunchPrepared(at=10.0, key=KEY, offer=OFFER),
        [Send(message=Prepared(key=KEY, offer=OFFER))],
    ),
    "where it waits is told again": (
        READY,
        said(Prepare(spec=SPEC, hold_s=60.0, meets=True)),
        [Send(message=Prepared(key=KEY, offer=OFFER))],
    ),
    "that it would run in scratch is told": (
        ASKED,
        LaunchPrepared(at=10.0, key=KEY, offer=OFFER, in_scratch=True),
        [Send(message=Prepared(key=KEY, offer=OFFER, in_scratch=True))],
    ),
    "that it would run in scratch is told again": (
        (*ASKED, LaunchPrepared(at=10.0, key=KEY, offer=OFFER, in_scratch=True)),
        said(Prepare(spec=SPEC, hold_s=60.0, meets=True)),
        [Send(message=Prepared(key=KEY, offer=OFFER, in_scratch=True))],
    ),
    "it goes to the others": (READY, said(MEET), [MeetPeers(message=MEET)]),
    "asked twice it goes once": (GOING, said(MEET), []),
    "it goes again when the others wait elsewhere": (
        BACK,
        said(replace(MEET, peers=(replace(PEER, port=1),))),
        [MeetPeers(message=replace(MEET, peers=(replace(PEER, port=1),)))],
    ),
    "what it found is told": (GOING, PeersMet(at=11.0, met=MET), [Send(message=MET)]),
    "what it found is told again": (BACK, said(MEET), [Send(message=MET)]),
    "without a connection it is told when asked": (
        (*GOING, LinkFell(at=10.5, may_enrol=True)),
        PeersMet(at=11.0, met=MET),
        [],
    ),
    "nobody goes to a meeting of what is not prepared": (JOINED, said(MEET), [Send(message=REFUSED)]),
    "a question that comes after the start is no reason to refuse it": (
        (*BACK, said(Start(key=KEY, spec=FOUND))),
        said(MEET),
        [],
    ),
    "what was found for nobody is dropped": (JOINED, PeersMet(at=11.0, met=MET), []),
    "Start brings what the meeting brought": (
        BACK,
        said(Start(key=KEY, spec=FOUND)),
        [StartLaunch(spec=FOUND)],
    ),
    "so does a whole launch": (BACK, said(Launch(spec=FOUND)), [StartLaunch(spec=FOUND)]),
}


@pytest.mark.parametrize(("given", "when", "then"), CASES.values(), ids=CASES.keys())
def test_meetings(given: tuple[Event, ...], when: Event, then: list[Command]) -> None:
    machine = a_machine()
    for event in given:
        machine.handle(event)
    assert machine.handle(when) == then
