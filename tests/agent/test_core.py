"""The agent's machine as tables: given events, when one more, then exactly these commands."""

from __future__ import annotations

import msgspec
import pytest

from mgpu_agent.core.commands import (
    Command,
    Connect,
    End,
    FollowOutput,
    ForgetAttempts,
    MoveOutput,
    SaveMasterEpoch,
    Say,
    Send,
    SetPace,
    StartLaunch,
    StopAttempt,
)
from mgpu_agent.core.connection import LONELY_S, SILENCE_S
from mgpu_agent.core.events import (
    Began,
    EndAsked,
    Event,
    KeeperAttached,
    KeeperLost,
    LaunchFailed,
    LinkFell,
    LinkRose,
    MasterMoved,
    Measured,
    TaskTold,
    Ticked,
)
from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.messages import (
    Bye,
    Forget,
    Heartbeat,
    Hello,
    Launch,
    Leave,
    OutputAck,
    Refuse,
    Resync,
    Stop,
)
from mgpu_agent.protocol.model import (
    GpuSample,
    OutputMark,
)
from tests.agent.core_world import (
    ATTACHED,
    FACTS,
    GPU,
    HELLO,
    JOINED,
    JOINING,
    KEY,
    KEY_REFUSED_WARNING,
    NO_KEEPER_WARNING,
    NODE,
    OTHER,
    WELCOME,
    a_machine,
    a_spec,
    a_status,
    refused,
    reports,
    said,
)

CASES: dict[str, tuple[tuple[Event, ...], Event, list[Command]]] = {
    "an enrolled agent connects with its own key": ((), Began(at=0.0), [Connect(enrolling=False)]),
    "Hello is the first word": (JOINING[:2], LinkRose(at=0.0), [HELLO]),
    "no Hello before the keeper has told what runs": (JOINING[:1], LinkRose(at=0.0), []),
    "Hello follows as soon as the keeper has told": ((Began(at=0.0), LinkRose(at=0.0)), ATTACHED, [HELLO]),
    "Hello names every task": (
        (Began(at=0.0), KeeperAttached(at=0.0, facts=FACTS, tasks=(a_status(), a_status(OTHER, ended=True)))),
        LinkRose(at=0.0),
        [Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(), a_status(OTHER, ended=True))))],
    ),
    "Welcome sets the pace": (
        JOINING,
        said(WELCOME),
        [
            SetPace(sample_s=1.0, output_window_bytes=100, received=()),
            Say(event="joined", fields={"cluster": "c"}),
        ],
    ),
    "Resync is answered with Hello": (
        JOINED,
        said(Resync(number=4)),
        [Send(message=Hello(node_id=NODE, facts=FACTS, answers=4))],
    ),
    "a fall of a working link is said": (
        JOINED,
        LinkFell(at=1.0, may_enrol=True),
        [Say(event="master_lost", is_warning=True), Connect(enrolling=False, delay_s=0.1)],
    ),
    "falls in a row are waited out longer": (
        (*JOINING, LinkFell(at=1.0, may_enrol=True), LinkFell(at=2.0, may_enrol=True)),
        LinkFell(at=3.0, may_enrol=True),
        [Connect(enrolling=False, delay_s=0.4)],
    ),
    "refused keys lead to a new enrolment": (
        JOINING,
        LinkFell(at=1.0, may_enrol=True, keys_refused=True),
        [Connect(enrolling=True, delay_s=0.1)],
    ),
    "refused keys without a runtime file lead to another try": (
        JOINING,
        LinkFell(at=1.0, may_enrol=False, keys_refused=True),
        [KEY_REFUSED_WARNING, Connect(enrolling=False, delay_s=1.0)],
    ),
    "refused keys are said once and tried again slowly": (
        (*JOINING, LinkFell(at=1.0, may_enrol=False, keys_refused=True)),
        LinkFell(at=2.0, may_enrol=False, keys_refused=True),
        [Connect(enrolling=False, delay_s=2.0)],
    ),
    "a moved master is followed": (JOINED, MasterMoved(at=1.0, is_another=False), [Connect(enrolling=False)]),
    "another master needs an enrolment": (
        JOINED,
        MasterMoved(at=1.0, is_another=True),
        [Connect(enrolling=True)],
    ),
    "Refuse is said once and waited out": (
        JOINING,
        said(Refuse(code="no", message="not you")),
        [
            Say(event="refused", fields={"code": "no", "message": "not you"}, is_warning=True),
            Connect(enrolling=False, delay_s=1.0),
        ],
    ),
    "the same Refuse is not said again": (
        (*JOINING, said(Refuse(code="no", message="not you"))),
        said(Refuse(code="no", message="not you")),
        [Connect(enrolling=False, delay_s=2.0)],
    ),
    "no Welcome in time, master here: enrol again": (
        JOINING,
        Ticked(at=3.0, may_enrol=True),
        [
            Say(event="no_answer", fields={"phase": "joining"}, is_warning=True),
            Connect(enrolling=True, delay_s=0.1),
        ],
    ),
    "no Welcome in time, master elsewhere: try again": (
        JOINING,
        Ticked(at=3.0),
        [
            Say(event="no_answer", fields={"phase": "joining"}, is_warning=True),
            Connect(enrolling=False, delay_s=0.1),
        ],
    ),
    "an older master is not obeyed": (
        JOINED,
        said(Launch(spec=a_spec()), epoch=0),
        [Say(event="old_master_ignored", fields={"epoch": 0, "known": 1}, is_warning=True)],
    ),
    "an older master is spoken of once": ((*JOINED, said(Bye(), epoch=0)), said(Bye(), epoch=0), []),
    "a newer master's epoch is saved first": (
        JOINED,
        said(OutputAck(mark=OutputMark(KEY, 0, 1, 3)), epoch=2),
        [SaveMasterEpoch(master_epoch=2), MoveOutput(mark=OutputMark(KEY, 0, 1, 3))],
    ),
    "a launch goes to the keeper": (
        JOINED,
        said(Launch(spec=a_spec(gpus=(GPU,)))),
        [StartLaunch(spec=a_spec(gpus=(GPU,)))],
    ),
    "a launch that is under way is not repeated": (
        (*JOINED, said(Launch(spec=a_spec()))),
        said(Launch(spec=a_spec())),
        [],
    ),
    "a repeated launch is answered with what is known": (
        (*JOINED, said(Launch(spec=a_spec())), TaskTold(at=1.0, status=a_status())),
        said(Launch(spec=a_spec())),
        reports(a_status()),
    ),
    "a launch for another node is refused": (
        JOINED,
        said(Launch(spec=msgspec.structs.replace(a_spec(), node_id=NodeId("n2")))),
        refused("wrong-node", "This is node n1, not n2.", "stale"),
    ),
    "a launch for an earlier incarnation is refused": (
        JOINED,
        said(Launch(spec=msgspec.structs.replace(a_spec(), incarnation="boot/older"))),
        refused("stale", "The launch was meant for the node as it was before it started anew.", "stale"),
    ),
    "a launch on a GPU that is not there is refused": (
        JOINED,
        said(Launch(spec=a_spec(gpus=(GpuUuid("GPU-X"),)))),
        refused("no-such-gpu", "This node has no GPU GPU-X.", "node"),
    ),
    "a launch on a GPU that is held is refused": (
        (*JOINED, said(Launch(spec=a_spec(OTHER, gpus=(GPU,))))),
        said(Launch(spec=a_spec(gpus=(GPU,)))),
        refused("gpu-busy", "A GPU of this launch is still held by attempt BBBBBBBB.1.6.", "node"),
    ),
    "a GPU is free again when all ranks have ended": (
        (
            *JOINED,
            said(Launch(spec=a_spec(OTHER, ranks=2, gpus=(GPU,)))),
            TaskTold(at=1.0, status=a_status(OTHER, 0, ended=True)),
            TaskTold(at=1.0, status=a_status(OTHER, 1, ended=True)),
        ),
        said(Launch(spec=a_spec(gpus=(GPU,)))),
        [StartLaunch(spec=a_spec(gpus=(GPU,)))],
    ),
    "without a keeper a launch waits": ((*JOINED, KeeperLost(at=1.0)), said(Launch(spec=a_spec())), []),
    "a launch that waited goes to the new keeper": (
        (*JOINED, KeeperLost(at=1.0), said(Launch(spec=a_spec()))),
        ATTACHED,
        [StartLaunch(spec=a_spec()), HELLO],
    ),
    "a launch that the old keeper took is answered by the new one's snapshot": (
        (*JOINED, said(Launch(spec=a_spec())), KeeperLost(at=1.0)),
        KeeperAttached(at=1.0, facts=FACTS, tasks=(a_status(ended=True),)),
        [
            FollowOutput(status=a_status(ended=True)),
            Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(ended=True),))),
        ],
    ),
    "a lost keeper is said": (JOINED, KeeperLost(at=1.0), [NO_KEEPER_WARNING]),
    "a start is followed and told": (
        (*JOINED, said(Launch(spec=a_spec()))),
        TaskTold(at=1.0, status=a_status()),
        [FollowOutput(status=a_status()), *reports(a_status())],
    ),
    "a task that was not asked for in this life is told too": (
        JOINED,
        TaskTold(at=1.0, status=a_status()),
        [FollowOutput(status=a_status()), *reports(a_status())],
    ),
    "an end is never taken back": (
        (*JOINED, TaskTold(at=1.0, status=a_status(ended=True))),
        TaskTold(at=1.0, status=a_status()),
        reports(a_status()),
    ),
    "without a master an end waits": (
        (*JOINING,),
        TaskTold(at=1.0, status=a_status(ended=True)),
        [FollowOutput(status=a_status(ended=True))],
    ),
    "an end is told again after ten seconds": (
        (*JOINED, TaskTold(at=1.0, status=a_status(ended=True)), Ticked(at=10.9, wall=7.0)),
        Ticked(at=11.0),
        reports(a_status(ended=True)),
    ),
    "a forgotten end is not told again": (
        (*JOINED, TaskTold(at=1.0, status=a_status(ended=True)), said(Forget(keys=(KEY,))), Ticked(at=10.0)),
        Ticked(at=11.5),
        [],
    ),
    "Forget passes what is over or unknown": (
        (*JOINED, TaskTold(at=1.0, status=a_status()), TaskTold(at=1.0, status=a_status(OTHER, ended=True))),
        said(Forget(keys=(KEY, OTHER))),
        [ForgetAttempts(keys=(OTHER,))],
    ),
    "Forget of what runs does nothing": (
        (*JOINED, TaskTold(at=1.0, status=a_status())),
        said(Forget(keys=(KEY,))),
        [],
    ),
    "Stop goes to the keeper": (
        (*JOINED, TaskTold(at=1.0, status=a_status())),
        said(Stop(key=KEY, grace_s=3.0, reason="cancelled")),
        [StopAttempt(key=KEY, grace_s=3.0, reason="cancelled")],
    ),
    "Stop of what ended is answered with the end": (
        (*JOINED, TaskTold(at=1.0, status=a_status(ended=True))),
        said(Stop(key=KEY, grace_s=3.0)),
        reports(a_status(ended=True)),
    ),
    "without a keeper Stop waits": ((*JOINED, KeeperLost(at=1.0)), said(Stop(key=KEY, grace_s=3.0)), []),
    "Stop goes to the new keeper as well": (
        (*JOINED, said(Stop(key=KEY, grace_s=3.0)), KeeperLost(at=1.0)),
        ATTACHED,
        [StopAttempt(key=KEY, grace_s=3.0, reason=""), HELLO],
    ),
    "Stop of what ended with the old keeper is dropped": (
        (*JOINED, TaskTold(at=1.0, status=a_status()), said(Stop(key=KEY, grace_s=3.0)), KeeperLost(at=1.0)),
        KeeperAttached(at=1.0, facts=FACTS, tasks=(a_status(ended=True),)),
        [
            FollowOutput(status=a_status(ended=True)),
            Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(ended=True),))),
        ],
    ),
    "Stop is over with the end": (
        (
            *JOINED,
            said(Stop(key=KEY, grace_s=3.0)),
            TaskTold(at=1.0, status=a_status(ended=True)),
            KeeperLost(at=1.0),
        ),
        KeeperAttached(at=1.0, facts=FACTS),
        [Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(ended=True),)))],
    ),
    "a failed launch is told": (
        (*JOINED, said(Launch(spec=a_spec()))),
        LaunchFailed(
            at=1.0, key=KEY, code="not-found", message="x: not found", fault="request", exit_code=127
        ),
        refused("not-found", "x: not found", "request", 127),
    ),
    "a failed launch without a master is not told": (
        (*JOINED, said(Launch(spec=a_spec())), LinkFell(at=1.0, may_enrol=False)),
        LaunchFailed(
            at=1.0, key=KEY, code="not-found", message="x: not found", fault="request", exit_code=127
        ),
        [],
    ),
    "a heartbeat when it is due": (
        JOINED,
        Ticked(at=2.0, wall=99.0, measured=Measured(load=0.5, cpu_percent=12.5, memory_available_bytes=7)),
        [Send(message=Heartbeat(at=99.0, load=0.5, cpu_percent=12.5, memory_available_bytes=7))],
    ),
    "no heartbeat before": (JOINED, Ticked(at=1.9), []),
    "readings ride along at once": (
        JOINED,
        Ticked(at=0.5, wall=99.0, samples=(GpuSample(uuid=GPU),)),
        [Send(message=Heartbeat(at=99.0, samples=(GpuSample(uuid=GPU),)))],
    ),
    "a master that takes no news is met anew": (
        (*JOINED, TaskTold(at=1.0, status=a_status(ended=True)), Ticked(at=SILENCE_S - 1.0)),
        Ticked(at=SILENCE_S, wall=99.0),
        [Say(event="master_silent", is_warning=True), Connect(enrolling=False)],
    ),
    "Bye is noted": (JOINED, said(Bye()), [Say(event="master_said_bye")]),
    "a signal ends the agent with a word": (
        JOINED,
        EndAsked(at=1.0, reason="Stopped."),
        [Send(message=Leave(reason="Stopped.")), End(reason="Stopped.")],
    ),
    "a signal ends it without a master too": (
        JOINING,
        EndAsked(at=1.0, reason="Stopped."),
        [End(reason="Stopped.")],
    ),
    "a lonely agent that is not embedded goes on": (
        (Began(at=0.0), Ticked(at=0.0)),
        Ticked(at=10 * LONELY_S),
        [],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    given, when, then = CASES[name]
    machine = a_machine(*given)
    actual = machine.handle(when)

    assert then == actual
