"""What is typed, resized and warned of on its way through the agent: given events, when one more, then
exactly these commands.
"""

from __future__ import annotations

import pytest

from mgpu_agent.core.commands import Command, Deliver, PassOn, Send
from mgpu_agent.core.events import Event, InputTaken, KeeperLost, LinkFell, ParcelPosted, TaskTold
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Input, InputAck, Launch, Post, Posted, Resize, Warn
from tests.agent.core_world import JOINED, KEY, a_machine, a_spec, a_status, said

TYPED = Input(key=KEY, rank=0, writer="w", offset=3, data=b"abc")
RESIZED = Resize(key=KEY, rank=0, rows=10, columns=20)
WARNED = Warn(key=KEY, signal=10, serial=100.0)
PARCEL = Posted(key=KEY, sender=NodeId("n2"), data=b"order")
OUT = Post(key=KEY, to=NodeId("n2"), data=b"order")
ACK = InputAck(key=KEY, rank=0, writer="w", offset=6)
RUNNING = (*JOINED, said(Launch(spec=a_spec())), TaskTold(at=1.0, status=a_status()))
OVER = (*RUNNING, TaskTold(at=2.0, status=a_status(ended=True)))
CASES: dict[str, tuple[tuple[Event, ...], Event, list[Command]]] = {
    "what is typed goes to the keeper": (RUNNING, said(TYPED), [PassOn(message=TYPED)]),
    "a new size goes to the keeper": (RUNNING, said(RESIZED), [PassOn(message=RESIZED)]),
    "a warning goes to the keeper": (RUNNING, said(WARNED), [PassOn(message=WARNED)]),
    "while the keeper is away, what is typed is asked for again later": (
        (*RUNNING, KeeperLost(at=2.0)),
        said(TYPED),
        [],
    ),
    "what is typed for a job that is over comes to nothing": (
        OVER,
        said(TYPED),
        [Send(message=InputAck(key=KEY, rank=0, writer="w", offset=3, closed=True))],
    ),
    "what is typed for a job that nobody knows comes to nothing": (
        JOINED,
        said(TYPED),
        [Send(message=InputAck(key=KEY, rank=0, writer="w", offset=3, closed=True))],
    ),
    "a parcel goes to the processes of its attempt": (RUNNING, said(PARCEL), [Deliver(message=PARCEL)]),
    "a parcel goes out": (RUNNING, ParcelPosted(at=2.0, parcel=OUT), [Send(message=OUT)]),
    "a parcel does not go out without a connection": (
        (*RUNNING, LinkFell(at=2.0, may_enrol=True)),
        ParcelPosted(at=2.0, parcel=OUT),
        [],
    ),
    "the size of a terminal that is gone": (OVER, said(RESIZED), []),
    "what was read is told": (RUNNING, InputTaken(at=2.0, ack=ACK), [Send(message=ACK)]),
    "what was read is not told without a connection": (
        (*RUNNING, LinkFell(at=2.0, may_enrol=True)),
        InputTaken(at=2.0, ack=ACK),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    given, when, then = CASES[name]
    assert a_machine(*given).handle(when) == then
