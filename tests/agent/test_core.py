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
    SaveEnrolment,
    SaveMasterEpoch,
    Say,
    Send,
    SetPace,
    StartLaunch,
    StopAttempt,
)
from mgpu_agent.core.events import (
    Began,
    EndAsked,
    Event,
    FrameArrived,
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
from mgpu_agent.core.machine import Machine, Phase
from mgpu_agent.core.reconnect import LONELY_S, SILENCE_S
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.messages import (
    Bye,
    Enrol,
    Enrolled,
    Forget,
    Heartbeat,
    Hello,
    Launch,
    LaunchRefused,
    Leave,
    OutputAck,
    Refuse,
    Resync,
    Stop,
    TaskReport,
    ToAgent,
    Welcome,
)
from mgpu_agent.protocol.model import GpuInfo, GpuSample, LaunchSpec, NodeFacts, OutputMark, TaskSpec, TaskStatus

NODE = NodeId("n1")
GPU = GpuUuid("GPU-SIM-n1-0")
KEY = AttemptKey(JobId("AAAAAAAA"), 1, 5)
OTHER = AttemptKey(JobId("BBBBBBBB"), 1, 6)
FACTS = NodeFacts(
    host="h",
    address="127.0.0.1",
    arch="x86_64",
    cpus=2,
    memory_bytes=1,
    boot_id="boot",
    incarnation="boot/ledger",
    agent_version="0",
    python="python",
    pid=1,
    gpus=(GpuInfo(index=0, uuid=GPU, name="g", memory_bytes=1, simulated=True),),
)
WELCOME = Welcome(cluster="c", heartbeat_s=2.0, sample_s=1.0, output_window_bytes=100)
ASK_FOR_A_LINE = "run `mgpu join-token` on the master's machine"
KEY_REFUSED_WARNING = Say(
    event="refused",
    fields={
        "code": "key-refused",
        "message": f"The master does not know this node's key (any more): stop this agent and {ASK_FOR_A_LINE}.",
    },
    is_warning=True,
)
NO_KEEPER_WARNING = Say(event="keeper_lost", is_warning=True)


def a_status(key: AttemptKey = KEY, rank: int = 0, *, ended: bool = False, gpus: tuple[GpuUuid, ...] = ()) -> TaskStatus:
    return TaskStatus(
        key=key,
        rank=rank,
        node_id=NODE,
        host="h",
        address="127.0.0.1",
        pid=10 + rank,
        started_at=1.0,
        gpus=gpus,
        ended_at=2.0 if ended else None,
        exit_code=0 if ended else None,
    )


def a_spec(key: AttemptKey = KEY, *, ranks: int = 1, gpus: tuple[GpuUuid, ...] = ()) -> LaunchSpec:
    tasks = tuple(TaskSpec(rank=rank) for rank in range(ranks))
    return LaunchSpec(key=key, node_id=NODE, incarnation="boot/ledger", user="u", tasks=tasks, argv=("true",), gpus=gpus)


def said(message: ToAgent, at: float = 1.0, epoch: int = 1) -> FrameArrived:
    return FrameArrived(at=at, master_epoch=epoch, message=message)


def a_machine(
    *events: Event, is_enrolled: bool = True, is_embedded: bool = False, has_line: bool = False, master_epoch: int = 1
) -> Machine:
    machine = Machine(
        node_id=NODE,
        public_key="key",
        is_enrolled=is_enrolled,
        is_embedded=is_embedded,
        has_line=has_line,
        master_epoch=master_epoch,
    )
    for event in events:
        machine.handle(event)
    return machine


ATTACHED = KeeperAttached(at=0.0, facts=FACTS)
JOINING = (Began(at=0.0), ATTACHED, LinkRose(at=0.0))
JOINED = (*JOINING, said(WELCOME, at=0.0))
HELLO = Send(message=Hello(node_id=NODE, facts=FACTS))


def reports(*statuses: TaskStatus) -> list[Command]:
    return [Send(message=TaskReport(status=status)) for status in statuses]


def refused(code: str, message: str, fault: str, exit_code: int | None = None) -> list[Command]:
    return [Send(message=LaunchRefused(key=KEY, code=code, message=message, fault=fault, exit_code=exit_code))]


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
        [SetPace(sample_s=1.0, output_window_bytes=100, received=()), Say(event="joined", fields={"cluster": "c"})],
    ),
    "Resync is answered with Hello": (JOINED, said(Resync(number=4)), [Send(message=Hello(node_id=NODE, facts=FACTS, answers=4))]),
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
    "another master needs an enrolment": (JOINED, MasterMoved(at=1.0, is_another=True), [Connect(enrolling=True)]),
    "Refuse is said once and waited out": (
        JOINING,
        said(Refuse(code="no", message="not you")),
        [Say(event="refused", fields={"code": "no", "message": "not you"}, is_warning=True), Connect(enrolling=False, delay_s=1.0)],
    ),
    "the same Refuse is not said again": (
        (*JOINING, said(Refuse(code="no", message="not you"))),
        said(Refuse(code="no", message="not you")),
        [Connect(enrolling=False, delay_s=2.0)],
    ),
    "no Welcome in time, master here: enrol again": (
        JOINING,
        Ticked(at=3.0, may_enrol=True),
        [Say(event="no_answer", fields={"phase": "joining"}, is_warning=True), Connect(enrolling=True, delay_s=0.1)],
    ),
    "no Welcome in time, master elsewhere: try again": (
        JOINING,
        Ticked(at=3.0),
        [Say(event="no_answer", fields={"phase": "joining"}, is_warning=True), Connect(enrolling=False, delay_s=0.1)],
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
    "a launch goes to the keeper": (JOINED, said(Launch(spec=a_spec(gpus=(GPU,)))), [StartLaunch(spec=a_spec(gpus=(GPU,)))]),
    "a launch that is under way is not repeated": ((*JOINED, said(Launch(spec=a_spec()))), said(Launch(spec=a_spec())), []),
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
        [FollowOutput(status=a_status(ended=True)), Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(ended=True),)))],
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
    "Forget of what runs does nothing": ((*JOINED, TaskTold(at=1.0, status=a_status())), said(Forget(keys=(KEY,))), []),
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
        [FollowOutput(status=a_status(ended=True)), Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(ended=True),)))],
    ),
    "Stop is over with the end": (
        (*JOINED, said(Stop(key=KEY, grace_s=3.0)), TaskTold(at=1.0, status=a_status(ended=True)), KeeperLost(at=1.0)),
        KeeperAttached(at=1.0, facts=FACTS),
        [Send(message=Hello(node_id=NODE, facts=FACTS, tasks=(a_status(ended=True),)))],
    ),
    "a failed launch is told": (
        (*JOINED, said(Launch(spec=a_spec()))),
        LaunchFailed(at=1.0, key=KEY, code="not-found", message="x: not found", fault="request", exit_code=127),
        refused("not-found", "x: not found", "request", 127),
    ),
    "a failed launch without a master is not told": (
        (*JOINED, said(Launch(spec=a_spec())), LinkFell(at=1.0, may_enrol=False)),
        LaunchFailed(at=1.0, key=KEY, code="not-found", message="x: not found", fault="request", exit_code=127),
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
    "a signal ends it without a master too": (JOINING, EndAsked(at=1.0, reason="Stopped."), [End(reason="Stopped.")]),
    "a lonely agent that is not embedded goes on": ((Began(at=0.0), Ticked(at=0.0)), Ticked(at=10 * LONELY_S), []),
}


@pytest.mark.parametrize("name", CASES)
def test_what_follows(name: str) -> None:
    given, when, then = CASES[name]
    machine = a_machine(*given)
    actual = machine.handle(when)

    assert then == actual


def test_enrolment_from_the_start() -> None:
    machine = a_machine(is_enrolled=False, master_epoch=0)
    steps = [
        machine.handle(Began(at=0.0)),
        machine.handle(LinkRose(at=0.0)),
        machine.handle(ATTACHED),
        machine.handle(Ticked(at=2.9)),
        machine.handle(Ticked(at=3.0)),
        machine.handle(LinkFell(at=3.0, may_enrol=True)),
        machine.handle(said(Refuse(code="no", message="not yet"))),
        machine.handle(MasterMoved(at=3.0, is_another=False)),
        machine.handle(said(Enrolled(node_id=NODE), epoch=4)),
        machine.handle(LinkRose(at=4.0)),
    ]

    assert steps == [
        [Connect(enrolling=True)],
        [Send(message=Enrol(node_id=NODE, public_key="key"))],
        [],
        [],
        [Say(event="no_answer", fields={"phase": "enrolling"}, is_warning=True), Connect(enrolling=True, delay_s=0.1)],
        [Connect(enrolling=True, delay_s=0.2)],
        [
            SaveMasterEpoch(master_epoch=1),
            Say(event="refused", fields={"code": "no", "message": "not yet"}, is_warning=True),
            Connect(enrolling=True, delay_s=4.0),
        ],
        [Connect(enrolling=True)],
        [SaveMasterEpoch(master_epoch=4), SaveEnrolment(), Say(event="enrolled"), Connect(enrolling=False)],
        [HELLO],
    ]


@pytest.mark.parametrize(
    ("given", "when", "then"),
    [
        (JOINED, said(Bye()), [End(reason="The master stopped.")]),
        ((*JOINED, said(Launch(spec=a_spec()))), said(Bye()), [Say(event="master_said_bye")]),
        (
            (
                *JOINED,
                said(Launch(spec=a_spec())),
                said(Bye()),
                LinkFell(at=1.0, may_enrol=False),
                TaskTold(at=2.0, status=a_status(ended=True)),
            ),
            Ticked(at=2.1),
            [End(reason="The master stopped, and the last job is over.")],
        ),
        ((*JOINED, said(Launch(spec=a_spec())), said(Bye()), LinkFell(at=1.0, may_enrol=False)), Ticked(at=2.0), []),
        ((Began(at=0.0), Ticked(at=0.0)), Ticked(at=LONELY_S - 1), []),
        ((Began(at=0.0), Ticked(at=0.0)), Ticked(at=LONELY_S), [End(reason="No master and nothing to run.")]),
        ((Began(at=0.0), KeeperAttached(at=0.0, facts=FACTS, tasks=(a_status(),)), Ticked(at=0.0)), Ticked(at=LONELY_S), []),
    ],
)
def test_an_embedded_agent_ends_with_its_master(given: tuple[Event, ...], when: Event, then: list[Command]) -> None:
    assert then == a_machine(*given, is_embedded=True).handle(when)


def test_held_gpus_name_a_pid() -> None:
    machine = a_machine(*JOINED, said(Launch(spec=a_spec(gpus=(GPU,)))))
    before = machine.held_gpus()
    machine.handle(TaskTold(at=1.0, status=a_status(gpus=(GPU,))))
    running = machine.held_gpus()
    machine.handle(TaskTold(at=1.0, status=a_status(gpus=(GPU,), ended=True)))

    assert (before, running, machine.held_gpus()) == ({GPU: 0}, {GPU: 10}, {})
    assert (machine.is_busy, machine.may_ship, machine.phase) == (False, True, Phase.WELCOMED)


def test_another_master_starts_its_own_epochs() -> None:
    machine = a_machine(*JOINED, master_epoch=1)
    machine.handle(MasterMoved(at=1.0, is_another=True))

    assert machine.master_epoch == 0
