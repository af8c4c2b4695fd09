"""Launches in two steps, what is forgotten, and leases: given events, when one more, then exactly these
commands of the machine.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.core.commands import (
    Command,
    FollowOutput,
    ForgetAttempts,
    PrepareLaunch,
    RenewLeases,
    Send,
    StartLaunch,
    StopAttempt,
)
from mgpu_agent.core.events import (
    Began,
    Event,
    KeeperLost,
    LaunchFailed,
    LaunchPrepared,
    LinkFell,
    LinkRose,
    TaskTold,
    Ticked,
)
from mgpu_agent.protocol.messages import (
    Forget,
    Heard,
    Heartbeat,
    Hello,
    Launch,
    LaunchRefused,
    Prepare,
    Prepared,
    Resync,
    Start,
    Stop,
)
from tests.agent.core_world import (
    ATTACHED,
    FACTS,
    GPU,
    JOINED,
    JOINING,
    KEY,
    NODE,
    OTHER,
    WELCOME,
    a_machine,
    a_spec,
    a_status,
    reports,
    said,
)

SPEC = a_spec(gpus=(GPU,))
ASKED = (*JOINED, said(Prepare(spec=SPEC, hold_s=60.0), at=10.0))
READY = (*ASKED, LaunchPrepared(at=10.0, key=KEY))
STARTED = (*READY, said(Start(key=KEY), at=11.0))
BOTH_RANKS = said(Launch(spec=a_spec(ranks=2)))
RANK_0, RANK_1 = (TaskTold(at=1.0, status=a_status(rank=rank, ended=True)) for rank in (0, 1))
BUSY_NO_MORE = a_status(OTHER, ended=True, gpus=(GPU,))
YES: list[Command] = [Send(message=Prepared(key=KEY))]


def no(code: str, message: str, fault: str = "stale") -> list[Command]:
    return [Send(message=LaunchRefused(key=KEY, code=code, message=message, fault=fault))]


CASES: dict[str, tuple[tuple[Event, ...], Event, list[Command]]] = {
    "a preparation is looked into, and nothing is started": (
        JOINED,
        said(Prepare(spec=SPEC, hold_s=60.0)),
        [PrepareLaunch(spec=SPEC)],
    ),
    "what can be started is told": (ASKED, LaunchPrepared(at=10.0, key=KEY), YES),
    "what can be started is told after the next Hello if there is no connection": (
        (*ASKED, LinkFell(at=10.0, may_enrol=True)),
        LaunchPrepared(at=10.0, key=KEY),
        [],
    ),
    "what cannot be started is refused": (
        ASKED,
        LaunchFailed(at=10.0, key=KEY, code="no-python", message="None.", fault="node"),
        no("no-python", "None.", "node"),
    ),
    "a refused preparation holds no GPU": (
        (*ASKED, LaunchFailed(at=10.0, key=KEY, code="no-python", message="None.", fault="node")),
        said(Prepare(spec=a_spec(OTHER, gpus=(GPU,)), hold_s=60.0)),
        [PrepareLaunch(spec=a_spec(OTHER, gpus=(GPU,)))],
    ),
    "a preparation keeps its GPUs": (
        READY,
        said(Launch(spec=a_spec(OTHER, gpus=(GPU,)))),
        [
            Send(
                message=LaunchRefused(
                    key=OTHER,
                    code="gpu-busy",
                    message=f"A GPU of this launch is still held by attempt {KEY}.",
                    fault="node",
                )
            )
        ],
    ),
    "a preparation for the node as it was is refused": (
        JOINED,
        said(Prepare(spec=replace(SPEC, incarnation="old"), hold_s=60.0)),
        no("stale", "The launch was meant for the node as it was before it started anew."),
    ),
    "a preparation without a keeper is refused": (
        (*JOINED, KeeperLost(at=1.0)),
        said(Prepare(spec=SPEC, hold_s=60.0)),
        no("keeper-away", "The node's keeper is away."),
    ),
    "a repeated question is answered again": (READY, said(Prepare(spec=SPEC, hold_s=60.0), at=20.0), YES),
    "a repeated question waits for the first": (ASKED, said(Prepare(spec=SPEC, hold_s=60.0), at=20.0), []),
    "a question about what is being started is not answered": (
        STARTED,
        said(Prepare(spec=SPEC, hold_s=60.0)),
        [],
    ),
    "a question about what runs is answered with that": (
        (*STARTED, TaskTold(at=12.0, status=a_status())),
        said(Prepare(spec=SPEC, hold_s=60.0)),
        reports(a_status()),
    ),
    "a launch that was refused stays refused, however late it comes again": (
        (
            *JOINED,
            said(Launch(spec=SPEC)),
            LaunchFailed(at=1.0, key=KEY, code="stale", message="Too late.", fault="stale"),
        ),
        said(Launch(spec=SPEC), at=9.0),
        no("stale", "Too late."),
    ),
    "a launch that was refused for its GPU stays refused when that is free": (
        (
            *JOINED,
            said(Launch(spec=a_spec(OTHER, gpus=(GPU,)))),
            said(Launch(spec=SPEC)),
            TaskTold(at=1.0, status=BUSY_NO_MORE),
        ),
        said(Launch(spec=SPEC)),
        no("gpu-busy", f"A GPU of this launch is still held by attempt {OTHER}.", "node"),
    ),
    "a start that was refused is not prepared any more": (
        (*JOINED, said(Start(key=KEY))),
        said(Prepare(spec=SPEC, hold_s=60.0)),
        no("not-prepared", "The node let the preparation go."),
    ),
    "a preparation that was refused is not started any more": (
        (*ASKED, LaunchFailed(at=10.0, key=KEY, code="no-python", message="None.", fault="node")),
        said(Start(key=KEY)),
        no("no-python", "None.", "node"),
    ),
    "a launch that was refused is looked at anew on a new connection": (
        (
            *JOINED,
            said(Launch(spec=SPEC)),
            LaunchFailed(at=1.0, key=KEY, code="stale", message="Too late.", fault="stale"),
            LinkFell(at=2.0, may_enrol=True),
            LinkRose(at=3.0),
            said(WELCOME, at=3.0),
        ),
        said(Launch(spec=SPEC)),
        [StartLaunch(spec=SPEC)],
    ),
    "Start starts what was prepared": (READY, said(Start(key=KEY)), [StartLaunch(spec=SPEC)]),
    "a repeated Start starts nothing": (STARTED, said(Start(key=KEY)), []),
    "a Start of what runs is answered with that": (
        (*STARTED, TaskTold(at=12.0, status=a_status())),
        said(Start(key=KEY)),
        reports(a_status()),
    ),
    "a Start of what nobody prepared is refused": (
        JOINED,
        said(Start(key=KEY)),
        no("not-prepared", "The node let the preparation go."),
    ),
    "a whole launch starts what was prepared, too": (
        READY,
        said(Launch(spec=SPEC)),
        [StartLaunch(spec=SPEC)],
    ),
    "Start without a keeper waits for one": ((*READY, KeeperLost(at=11.0)), said(Start(key=KEY)), []),
    "a new keeper starts what waited, and not what is only prepared": (
        (
            *READY,
            said(Prepare(spec=a_spec(OTHER), hold_s=60.0)),
            KeeperLost(at=11.0),
            said(Start(key=KEY)),
            LinkFell(at=11.0, may_enrol=True),
        ),
        ATTACHED,
        [StartLaunch(spec=SPEC)],
    ),
    "Stop lets a preparation go, for good": (
        READY,
        said(Stop(key=KEY, grace_s=0.0, reason="No.")),
        [StopAttempt(key=KEY, grace_s=0.0, reason="No.")],
    ),
    "a stopped preparation frees its GPUs at once": (
        (*READY, said(Stop(key=KEY, grace_s=0.0))),
        said(Launch(spec=a_spec(OTHER, gpus=(GPU,)))),
        [StartLaunch(spec=a_spec(OTHER, gpus=(GPU,)))],
    ),
    "news of a preparation that was stopped comes too late": (
        (*ASKED, said(Stop(key=KEY, grace_s=0.0))),
        LaunchPrepared(at=11.0, key=KEY),
        [],
    ),
    "what nobody starts is let go after its time": (
        (*READY, Ticked(at=69.9)),
        Ticked(at=70.0),
        [ForgetAttempts(keys=(KEY,))],
    ),
    "what was let go is not started any more": (
        (*READY, Ticked(at=70.0)),
        said(Start(key=KEY)),
        no("not-prepared", "The node let the preparation go."),
    ),
    "a repeated question makes the time begin anew": (
        (*READY, said(Prepare(spec=SPEC, hold_s=60.0), at=50.0), Ticked(at=99.0)),
        Ticked(at=100.0),
        [],
    ),
    "a rank that is saved keeps the others of its attempt": (
        (
            *JOINED,
            BOTH_RANKS,
            RANK_0,
            RANK_1,
            said(Forget(keys=(KEY,), ranks=(0,))),
            Ticked(at=10.9, wall=7.0),
        ),
        Ticked(at=11.0),
        reports(a_status(ended=True), a_status(rank=1, ended=True)),
    ),
    "ranks that were saved one by one go together": (
        (*JOINED, BOTH_RANKS, RANK_0, said(Forget(keys=(KEY,), ranks=(0,))), RANK_1),
        said(Forget(keys=(KEY,), ranks=(1,))),
        [ForgetAttempts(keys=(KEY,))],
    ),
    "ranks that were saved together go together": (
        (*JOINED, BOTH_RANKS, RANK_0, RANK_1),
        said(Forget(keys=(KEY, KEY, OTHER), ranks=(0, 1, 0))),
        [ForgetAttempts(keys=(KEY, OTHER))],
    ),
    "Hello names what is prepared": (
        (*READY, said(Prepare(spec=a_spec(OTHER), hold_s=60.0)), LinkFell(at=12.0, may_enrol=True)),
        LinkRose(at=13.0),
        [Send(message=Hello(node_id=NODE, facts=FACTS, prepared=(KEY,)))],
    ),
    "Hello carries a beat": (
        (Began(at=0.0, boot=700.0), ATTACHED),
        LinkRose(at=0.0),
        [Send(message=Hello(node_id=NODE, facts=FACTS, beat=700.0))],
    ),
    "a heartbeat carries a beat": (
        JOINED,
        Ticked(at=2.0, wall=9.0, boot=702.0),
        [Send(message=Heartbeat(at=9.0, beat=702.0))],
    ),
    "a beat that was heard renews leases from when it was sent": (
        (*JOINED, Ticked(at=2.0, boot=702.0), Ticked(at=4.0, boot=704.0)),
        said(Heard(beat=702.0)),
        [RenewLeases(alive_at=702.0)],
    ),
    "a beat that was heard already renews nothing": (
        (*JOINED, Ticked(at=2.0, boot=702.0), said(Heard(beat=702.0))),
        said(Heard(beat=702.0)),
        [],
    ),
    "a beat that was never sent renews nothing": (
        (*JOINED, Ticked(at=2.0, boot=702.0)),
        said(Heard(beat=703.0)),
        [],
    ),
    "a beat that is no number renews nothing": (
        (*JOINED, Ticked(at=2.0, boot=702.0)),
        said(Heard(beat=float("nan"))),
        [],
    ),
    "a start counts from the last beat that was heard": (
        (*JOINED, Ticked(at=2.0, boot=702.0), said(Heard(beat=702.0))),
        said(Launch(spec=a_spec())),
        [StartLaunch(spec=a_spec(), alive_at=702.0)],
    ),
    "a start that waits for a keeper counts from what was heard when it came": (
        (
            *JOINED,
            Ticked(at=2.0, boot=702.0),
            said(Heard(beat=702.0)),
            KeeperLost(at=2.0),
            said(Launch(spec=a_spec())),
            Ticked(at=4.0, boot=704.0),
            said(Heard(beat=704.0)),
            LinkFell(at=5.0, may_enrol=True),
        ),
        ATTACHED,
        [StartLaunch(spec=a_spec(), alive_at=702.0)],
    ),
    "an adopted task is followed": (
        (*JOINED, LinkFell(at=1.0, may_enrol=True)),
        replace(ATTACHED, tasks=(a_status(),)),
        [FollowOutput(status=a_status())],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name: str) -> None:
    given, when, then = CASES[name]
    assert a_machine(*given).handle(when) == then


def test_welcome_renews_leases_from_when_hello_was_sent() -> None:
    machine = a_machine(Began(at=0.0, boot=700.0), *JOINING[1:])
    commands = machine.handle(said(replace(WELCOME, beat=700.0)))
    assert commands[0] == RenewLeases(alive_at=700.0)


BETWEEN: dict[str, tuple[Event, list[Command]]] = {
    "a refusal": (
        LaunchFailed(at=1.0, key=KEY, code="stale", message="Too late.", fault="stale"),
        no("stale", "Too late."),
    ),
    "a start": (TaskTold(at=1.0, status=a_status()), reports(a_status())),
    "an end": (TaskTold(at=1.0, status=a_status(ended=True)), reports(a_status(ended=True))),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_comes_up_after_hello_is_told_after_welcome(name: str) -> None:
    """The master may have sent the launch after it heard Hello, and the launch may have overtaken Welcome."""
    event, told = BETWEEN[name]
    machine = a_machine(*JOINING, said(Launch(spec=a_spec())))

    before = [command for command in machine.handle(event) if isinstance(command, Send)]
    after = [command for command in machine.handle(said(WELCOME)) if isinstance(command, Send)]

    assert (before, after) == ([], told)
    assert [command for command in machine.handle(said(WELCOME)) if isinstance(command, Send)] == []


def test_what_came_up_before_a_hello_is_in_it() -> None:
    machine = a_machine(*JOINING, said(Launch(spec=a_spec())), TaskTold(at=1.0, status=a_status()))

    assert machine.handle(said(Resync())) == [
        Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(),)))
    ]
    assert [command for command in machine.handle(said(WELCOME)) if isinstance(command, Send)] == []


def test_what_comes_up_without_a_connection_is_told_by_the_next_hello_alone() -> None:
    machine = a_machine(
        *JOINED, said(Launch(spec=a_spec())), said(Resync()), LinkFell(at=1.0, may_enrol=True)
    )

    assert [
        command
        for command in machine.handle(TaskTold(at=1.0, status=a_status()))
        if isinstance(command, Send)
    ] == []
    assert machine.handle(LinkRose(at=2.0)) == [
        Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(),)))
    ]
    assert [command for command in machine.handle(said(WELCOME)) if isinstance(command, Send)] == []


def test_what_is_prepared_keeps_the_agent_busy_until_it_is_let_go() -> None:
    machine = a_machine(*READY)
    assert machine.is_busy
    machine.handle(Ticked(at=70.0))
    assert not machine.is_busy
