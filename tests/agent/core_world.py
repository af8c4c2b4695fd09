"""Values and builders for tests of the agent's core."""

from __future__ import annotations

from mgpu_agent.core.commands import (
    Command,
    Say,
    Send,
)
from mgpu_agent.core.events import (
    Began,
    Event,
    FrameArrived,
    KeeperAttached,
    LinkRose,
)
from mgpu_agent.core.machine import Machine
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.messages import (
    Hello,
    LaunchRefused,
    TaskReport,
    ToAgent,
    Welcome,
)
from mgpu_agent.protocol.model import (
    GpuInfo,
    LaunchSpec,
    NodeFacts,
    TaskSpec,
    TaskStatus,
)

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
        "message": f"The master does not know this node's key (any more): stop this agent and "
        f"{ASK_FOR_A_LINE}.",
    },
    is_warning=True,
)
NO_KEEPER_WARNING = Say(event="keeper_lost", is_warning=True)


def a_status(
    key: AttemptKey = KEY, rank: int = 0, *, ended: bool = False, gpus: tuple[GpuUuid, ...] = ()
) -> TaskStatus:
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
    return LaunchSpec(
        key=key, node_id=NODE, incarnation="boot/ledger", user="u", tasks=tasks, argv=("true",), gpus=gpus
    )


def said(message: ToAgent, at: float = 1.0, epoch: int = 1) -> FrameArrived:
    return FrameArrived(at=at, master_epoch=epoch, message=message)


def a_machine(
    *events: Event,
    is_enrolled: bool = True,
    is_embedded: bool = False,
    has_line: bool = False,
    master_epoch: int = 1,
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
    return [
        Send(message=LaunchRefused(key=KEY, code=code, message=message, fault=fault, exit_code=exit_code))
    ]
