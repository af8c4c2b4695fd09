"""Which real GPUs must not be handed out, and why: the agent's machine and its books of GPUs, with times and
readings as values.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.core.commands import Command, FollowOutput, ReadGpus, Say, Send, SetPace
from mgpu_agent.core.events import Event, KeeperAttached, LinkFell, LinkRose, TaskTold, Ticked
from mgpu_agent.core.gpus import MUTE_S, TOLERANCE_BYTES, URGENT_S, Gpus
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.messages import Heartbeat, Hello, Launch, LaunchRefused, TaskReport
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample, GpuTrouble, Trouble
from tests.agent.core_world import FACTS, KEY, NODE, WELCOME, a_machine, a_spec, a_status, said

A, B = GpuUuid("GPU-a"), GpuUuid("GPU-b")
GB = 1_000_000_000
REAL = replace(
    FACTS,
    gpus=tuple(
        GpuInfo(index=index, uuid=uuid, name="g", memory_bytes=40 * GB) for index, uuid in enumerate((A, B))
    ),
)
UNREAD = GpuTrouble(Trouble.UNREAD, "It has not been read yet.")
FREED = GpuTrouble(Trouble.MEMORY, "Its last job just ended: its memory is looked at.")
LOST = GpuTrouble(Trouble.LOST, "gone")
OURS = GpuProcess(pid=7, user="u", memory_bytes=3 * GB)
THEIRS = GpuProcess(pid=8, user="ann", memory_bytes=5 * GB, outside=True)


def reading(
    uuid: GpuUuid = A, used: int | None = GB, *processes: GpuProcess, trouble: GpuTrouble | None = None
) -> GpuSample:
    return GpuSample(uuid=uuid, memory_used_bytes=used, processes=processes, trouble=trouble)


def known(*samples: GpuSample) -> Gpus:
    """Books of two real GPUs that were read once."""
    gpus = Gpus()
    gpus.know(REAL.gpus, 0.0)
    gpus.take((reading(A), reading(B), *samples), 1.0, 1.0, ())
    return gpus


def judged(
    gpus: Gpus, sample: GpuSample, begun_at: float = 10.0, held: tuple[GpuUuid, ...] = ()
) -> GpuTrouble | None:
    (after,) = gpus.take((sample,), begun_at, begun_at + 0.1, held)
    assert replace(after, trouble=sample.trouble) == sample
    return after.trouble


def test_simulated_gpus_are_never_in_trouble() -> None:
    gpus = Gpus()
    gpus.know(FACTS.gpus, 0.0)
    samples = (reading(FACTS.gpus[0].uuid, GB, THEIRS),)

    assert gpus.take(samples, 1.0, 1.0, ()) == samples
    assert (gpus.samples, gpus.free((FACTS.gpus[0].uuid,), 1.0), gpus.fall_mute(1e6), gpus.has_lost) == (
        (),
        False,
        False,
        False,
    )


def test_a_gpu_beside_the_real_ones_is_passed_on_as_it_is() -> None:
    assert judged(known(), reading(GpuUuid("GPU-SIM"), GB, THEIRS)) is None


def test_a_real_gpu_is_out_until_it_was_read() -> None:
    gpus = Gpus()
    gpus.know(REAL.gpus, 0.0)
    before = gpus.samples
    gpus.take((reading(A),), 1.0, 1.0, ())
    gpus.know(REAL.gpus, 2.0)

    assert before == (GpuSample(uuid=A, trouble=UNREAD), GpuSample(uuid=B, trouble=UNREAD))
    assert gpus.samples == (reading(A), GpuSample(uuid=B, trouble=UNREAD))


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (reading(A, 6 * GB, THEIRS), "In use outside mgpu by pid 8 of ann."),
        (
            reading(A, 6 * GB, replace(THEIRS, user=None), replace(THEIRS, pid=9)),
            "In use outside mgpu by pid 8 of an unknown user and 1 more.",
        ),
        (reading(A, 6 * GB, replace(THEIRS, passive=True)), None),
        (reading(A, None), None),
    ],
)
def test_a_stranger_that_computes_is_trouble_and_a_display_is_not(
    sample: GpuSample, text: str | None
) -> None:
    assert judged(known(), sample) == (None if text is None else GpuTrouble(Trouble.OUTSIDE, text))


def test_a_freed_gpu_is_in_trouble_until_its_memory_is_back() -> None:
    gpus = known()
    assert gpus.free((A,), 10.0)
    not_back = GpuTrouble(
        Trouble.MEMORY,
        "1.9 GiB of its last job's memory is not back: end what holds it, or restart mgpu_node.",
    )
    at_once = gpus.samples

    assert at_once == (reading(A, trouble=FREED), reading(B))
    assert [
        judged(gpus, reading(A), 9.9),  # began before the end
        judged(gpus, reading(A, 4 * GB, OURS), 10.1),
        judged(gpus, reading(A, 3 * GB), 10.2),
        judged(gpus, reading(A, 8 * GB, THEIRS), 10.3),  # what a stranger uses is not the job's, the rest is
        judged(gpus, reading(A, GB + TOLERANCE_BYTES), 10.4),
        judged(gpus, reading(A, 3 * GB), 10.5),  # long back: what is used now is the driver's own business
    ] == [
        FREED,
        GpuTrouble(Trouble.MEMORY, "A process of its last job is still on it (pid 7)."),
        not_back,
        not_back,
        None,
        None,
    ]


def test_a_gpu_that_does_not_tell_its_memory_is_back_when_no_process_is_on_it() -> None:
    gpus = known()
    gpus.free((A,), 10.0)

    assert [judged(gpus, reading(A, None, OURS), 10.1), judged(gpus, reading(A, None), 10.2)] == [
        GpuTrouble(Trouble.MEMORY, "A process of its last job is still on it (pid 7)."),
        None,
    ]


def test_a_held_gpu_may_be_used_and_a_stranger_on_it_is_seen() -> None:
    gpus = known()

    assert judged(gpus, reading(A, 30 * GB, OURS), held=(A,)) is None
    assert judged(gpus, reading(A, 30 * GB, OURS, THEIRS), held=(A,)) == GpuTrouble(
        Trouble.OUTSIDE, "In use outside mgpu by pid 8 of ann."
    )
    gpus.free((A,), 20.0)
    assert gpus.samples[0].trouble == FREED


def test_readings_are_urgent_for_a_while_after_the_end() -> None:
    gpus = known()
    gpus.free((A,), 10.0)

    assert [gpus.is_urgent(at) for at in (10.0, 10.0 + URGENT_S - 0.1, 10.0 + URGENT_S)] == [
        True,
        True,
        False,
    ]
    judged(gpus, reading(A), 10.1)
    assert not gpus.is_urgent(10.2)


def test_a_lost_gpu_stays_lost_when_its_job_ends() -> None:
    gpus = known()
    judged(gpus, reading(A, None, trouble=LOST), held=(A,))
    gpus.free((A,), 10.0)

    assert (gpus.lost((B, A)), gpus.lost((B,)), gpus.has_lost) == ("GPU GPU-a: gone", "", True)
    judged(gpus, reading(A), 10.5)
    assert (gpus.lost((A,)), gpus.has_lost) == ("", False)


def test_a_driver_that_hangs_puts_all_out_once() -> None:
    gpus = known()
    mute = GpuTrouble(Trouble.SILENT, "The NVIDIA driver has given no reading for 30 s.")
    found = [gpus.fall_mute(at) for at in (1.0 + MUTE_S - 0.1, 1.0 + MUTE_S, 2.0 + MUTE_S)]

    assert found == [False, True, False]
    assert gpus.samples == (GpuSample(uuid=A, trouble=mute), GpuSample(uuid=B, trouble=mute))


# --- the machine ------------------------------------------------------------------------------------

ATTACHED = KeeperAttached(at=0.0, facts=REAL)
READ = Ticked(at=1.0, samples=(reading(A), reading(B)), read_at=0.9)
JOINED: tuple[Event, ...] = (ATTACHED, LinkRose(at=0.0), said(WELCOME, at=0.0), READ)
RUNNING: tuple[Event, ...] = (
    *JOINED,
    said(Launch(spec=a_spec(gpus=(A,)))),
    TaskTold(at=2.0, status=a_status(gpus=(A,))),
)
ENDED = TaskTold(at=3.0, status=a_status(gpus=(A,), ended=True))


def beat(*samples: GpuSample, at: float = 0.0) -> Command:
    return Send(message=Heartbeat(at=at, samples=samples))


def test_hello_and_welcome_with_real_gpus() -> None:
    machine = a_machine(ATTACHED)
    hello = Hello(
        node_id=NODE,
        facts=REAL,
        samples=(GpuSample(uuid=A, trouble=UNREAD), GpuSample(uuid=B, trouble=UNREAD)),
    )

    assert machine.handle(LinkRose(at=0.0)) == [Send(message=hello)]
    assert machine.handle(said(WELCOME)) == [
        SetPace(sample_s=1.0, output_window_bytes=100, received=()),
        Say(event="joined", fields={"cluster": "c"}),
        ReadGpus(),
    ]
    assert machine.handle(READ) == [beat(reading(A), reading(B))]


def test_the_end_of_a_task_is_told_after_its_gpu_was_put_out() -> None:
    machine = a_machine(*RUNNING)

    assert machine.handle(ENDED) == [
        FollowOutput(status=ENDED.status),
        beat(reading(A, trouble=FREED), reading(B)),
        ReadGpus(),
        Send(message=TaskReport(status=ENDED.status)),
    ]
    assert machine.handle(ENDED) == [Send(message=TaskReport(status=ENDED.status))]
    assert machine.handle(Ticked(at=2.9, wall=5.0)) == [ReadGpus()]
    back = (reading(A), reading(B))
    assert machine.handle(Ticked(at=3.2, wall=6.0, samples=back, read_at=3.05)) == [beat(*back, at=6.0)]
    assert machine.handle(Ticked(at=3.3)) == []


def test_an_end_that_nobody_hears_is_in_the_next_hello() -> None:
    machine = a_machine(*RUNNING, LinkFell(at=2.5, may_enrol=False))

    assert machine.handle(ENDED) == [FollowOutput(status=ENDED.status)]
    assert machine.handle(LinkRose(at=4.0)) == [
        Send(
            message=Hello(
                node_id=NODE,
                facts=REAL,
                tasks=(ENDED.status,),
                samples=(reading(A, trouble=FREED), reading(B)),
            )
        )
    ]


def test_a_task_that_ended_with_its_keeper_frees_its_gpu_too() -> None:
    machine = a_machine(*RUNNING)
    _, first = machine.handle(KeeperAttached(at=3.0, facts=REAL, tasks=(ENDED.status,)))
    back = (reading(A), reading(B))
    machine.handle(Ticked(at=3.2, samples=back, read_at=3.1))
    _, second = machine.handle(KeeperAttached(at=4.0, facts=REAL, tasks=(ENDED.status,)))

    freed = (reading(A, trouble=FREED), reading(B))
    assert [first, second] == [
        Send(message=Hello(node_id=NODE, facts=REAL, tasks=(ENDED.status,), samples=samples))
        for samples in (freed, back)
    ]


def test_a_lost_gpu_is_logged_once_and_takes_no_launch() -> None:
    machine = a_machine(*JOINED)
    lost = (reading(A, None, trouble=LOST), reading(B))

    assert machine.handle(Ticked(at=2.0, samples=lost, read_at=1.9)) == [
        Say(event="gpu_out", fields={"gpu": A, "reason": "gone"}, is_warning=True),
        beat(*lost),
    ]
    assert machine.has_lost_gpu
    assert machine.handle(Ticked(at=2.5, samples=lost, read_at=2.4)) == [beat(*lost)]
    assert machine.handle(said(Launch(spec=a_spec(gpus=(A,))))) == [
        Send(message=LaunchRefused(key=KEY, code="gpu-lost", message="GPU GPU-a: gone", fault="node"))
    ]
    assert machine.handle(Ticked(at=3.0, samples=(reading(A), reading(B)), read_at=2.9)) == [
        Say(event="gpu_back", fields={"gpu": A}),
        beat(reading(A), reading(B)),
    ]


def test_a_hanging_driver_is_told() -> None:
    machine = a_machine(*JOINED)
    mute = GpuTrouble(Trouble.SILENT, "The NVIDIA driver has given no reading for 30 s.")
    *said_, heartbeat = machine.handle(Ticked(at=1.0 + MUTE_S))

    assert heartbeat == beat(GpuSample(uuid=A, trouble=mute), GpuSample(uuid=B, trouble=mute))
    assert said_ == [
        Say(event="gpu_out", fields={"gpu": uuid, "reason": mute.text}, is_warning=True) for uuid in (A, B)
    ]
