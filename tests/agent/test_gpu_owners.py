"""Whose a process on a GPU is, and an agent with NVIDIA's library."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import pytest

from mgpu_agent.gpu.nvml import NvmlGpuSource, open_nvml
from mgpu_agent.gpu.sampler import Sampler, is_ours
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuProcess, GpuSample, GpuTrouble, Trouble
from tests.agent.conftest import Node
from tests.agent.master import SmallMaster, wait_until
from tests.nvml.loaded import Load, load
from tests.nvml.stand_in import GIB, Card, StandIn, cards

__all__ = ("load",)  # fixtures

# --- whose a process is -----------------------------------------------------------------------------


def test_a_process_is_ours_by_mark_session_or_descent() -> None:
    ours = subprocess.Popen(
        ["sleep", "60"], env={"MGPU_TASK": "ledger/job/0", "PATH": os.defpath}, start_new_session=True
    )
    try:
        wait_until(
            lambda: is_ours(ours.pid, b"ledger/", ())
        )  # between fork and exec it has the test's environment
        found = [
            is_ours(ours.pid, b"another/", ()),
            is_ours(ours.pid, b"", (ours.pid,)),
            is_ours(ours.pid, b"", (os.getpid(),)),
            is_ours(os.getpid(), b"ledger/", (ours.pid,)),
            is_ours(2**30, b"ledger/", (ours.pid,)),
        ]
    finally:
        ours.kill()
        ours.wait()

    assert found == [False, True, True, False, False]


def test_the_sampler_marks_strangers_and_reads_at_once_when_asked(load: Load) -> None:
    stand_in = load(Card(uuid="GPU-a", compute={os.getpid(): 1}))
    told: list[str] = []
    sampler = Sampler(NvmlGpuSource(), frozenset((GpuUuid("GPU-a"),)), lambda: told.append("urgent"))
    sampler.hurry()
    wait_until(lambda: told)
    first = sampler.take()
    sampler.set_held({GpuUuid("GPU-a"): os.getpid()})
    sampler.hurry()
    wait_until(lambda: len(told) == 2)
    second = sampler.take()
    stand_in.cards.clear()
    sampler.close()

    assert [
        [process.outside for process in readings.samples[0].processes] for readings in (first, second)
    ] == [[True], [False]]
    assert 0.0 < first.begun_at < second.begun_at


def test_a_driver_that_hangs_at_the_start_costs_the_gpus_only(load: Load) -> None:
    stand_in = load(*cards(1))
    stand_in.is_hanging = True
    stand_in.write()
    source = open_nvml(limit_s=0.1)
    found = (source.gpus, source.sample({}), source.note)
    source.close()
    stand_in.is_hanging = False
    stand_in.write()

    assert found == ((), (), "The NVIDIA driver did not answer within 0.1 s: mend it and restart mgpu_node.")
    assert [gpu.uuid for gpu in open_nvml().gpus] == ["GPU-00000000"]


# --- an agent as a process --------------------------------------------------------------------------

A = GpuUuid("GPU-00000000")


def heartbeats_of(master: SmallMaster, kind: str | None) -> list[GpuSample]:
    """Return the readings of the first GPU with this trouble."""
    first = (beat.samples[0] for beat in master.heartbeats if beat.samples)
    return [sample for sample in first if (sample.trouble and sample.trouble.kind) == kind]


def test_an_agent_puts_its_gpu_out_before_it_tells_the_end(
    master: SmallMaster, node: Node, tmp_path: Path
) -> None:
    stand_in = StandIn(tmp_path, *cards(1))
    node.start(env=stand_in.env, fake_gpus=None)
    master.wait(lambda: heartbeats_of(master, None))
    unread = GpuTrouble(Trouble.UNREAD, "It has not been read yet.")
    assert master.hellos[0].samples == (GpuSample(uuid=A, trouble=unread),)

    go = tmp_path / "go"
    key = master.launch("sh", "-c", f"while [ ! -e {go} ]; do sleep 0.05; done", gpus=(A,))
    pid = master.wait_running(key).pid
    stand_in.cards[0].compute, stand_in.cards[0].used = {pid: GIB}, 2 * GIB
    stand_in.write()
    inside = master.wait(lambda: [sample for sample in heartbeats_of(master, None) if sample.processes])
    master.heartbeats.clear()
    master.order.clear()
    go.touch()
    master.wait_end(key)
    assert inside[0].processes == (GpuProcess(pid=pid, user=getpass.getuser(), memory_bytes=GIB, name="sh"),)
    assert master.order.index("Heartbeat") < master.order.index("TaskReport")
    still_there = GpuTrouble(Trouble.MEMORY, f"A process of its last job is still on it (pid {pid}).")
    master.wait(
        lambda: any(sample.trouble == still_there for sample in heartbeats_of(master, Trouble.MEMORY))
    )
    stand_in.cards[0].compute, stand_in.cards[0].used = {}, GIB
    stand_in.write()
    master.heartbeats.clear()
    master.wait(lambda: heartbeats_of(master, None))


@pytest.mark.slow
def test_a_driver_that_hangs_holds_up_no_agent(master: SmallMaster, node: Node, tmp_path: Path) -> None:
    stand_in = StandIn(tmp_path, *cards(1))
    node.start(env=stand_in.env, fake_gpus=None)
    master.wait(lambda: heartbeats_of(master, None))
    stand_in.is_hanging = True
    stand_in.write()
    master.wait(lambda: not master.heartbeats[-1].samples)
    key = master.launch("echo", "on")
    status = master.wait_end(key)
    code = node.terminate()

    assert (status.exit_code, master.text(key), code) == (0, "on\n", 0)
