"""The real `pynvml` against a stand-in for NVIDIA's library: inventory, readings, faults, and a driver that
comes and goes.
"""

from __future__ import annotations

import getpass
import logging
import os
import subprocess
import sys

import psutil
import pytest

from mgpu_agent.gpu.nvml import NvmlGpuSource
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample, GpuTrouble, Trouble
from tests.agent.master import wait_until
from tests.nvml.loaded import Load, load
from tests.nvml.stand_in import GIB, LOST, NOT_SUPPORTED, RESET_REQUIRED, UNKNOWN, Card, cards

__all__ = ("load",)  # fixtures


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def info(index: int, uuid: str, **changes: object) -> GpuInfo:
    values: dict[str, object] = {
        "index": index,
        "uuid": uuid,
        "name": "Stand-in A100",
        "memory_bytes": 40 * GIB,
    }
    return GpuInfo(**{**values, **changes})  # type: ignore[arg-type]


def troubles(source: NvmlGpuSource) -> list[GpuTrouble | None]:
    return [sample.trouble for sample in source.sample({})]


def silent(why: str = "Unknown Error") -> GpuTrouble:
    return GpuTrouble(Trouble.SILENT, f"The NVIDIA driver does not answer ({why}).")


def test_gpus_are_numbered_by_their_pci_address(load: Load) -> None:
    first, second, third = cards(3)
    first.bus, third.bus = third.bus, first.bus
    load(first, second, third)

    assert NvmlGpuSource().gpus == (info(0, "GPU-00000002"), info(1, "GPU-00000001"), info(2, "GPU-00000000"))


def test_a_reading_names_processes_users_and_memory(load: Load) -> None:
    card = Card(uuid="GPU-a", used=9 * GIB, utilisation=87, temperature=71, milliwatts=243_500)
    card.compute, card.graphics = {os.getpid(): 5 * GIB, 2**30: 7}, {os.getpid(): 3, 1: 11}
    load(card)

    (sample,) = NvmlGpuSource().sample({})

    assert sample == GpuSample(
        uuid=GpuUuid("GPU-a"),
        utilisation_percent=87.0,
        memory_used_bytes=9 * GIB,
        temperature_c=71.0,
        power_w=243.5,
        processes=(
            GpuProcess(
                pid=os.getpid(), user=getpass.getuser(), memory_bytes=5 * GIB, name=psutil.Process().name()
            ),
            GpuProcess(pid=2**30, user=None, memory_bytes=7),
            GpuProcess(pid=1, user="root", memory_bytes=11, passive=True, name=psutil.Process(1).name()),
        ),
    )


def test_what_is_not_supported_is_none(load: Load) -> None:
    stand_in = load(Card(uuid="GPU-a"))
    names = (
        "UtilizationRates",
        "Temperature",
        "PowerUsage",
        "MemoryInfo",
        "MemoryInfo_v2",
        "ComputeRunningProcesses_v3",
        "MigMode",
        "Name",
    )
    stand_in.denied = {f"nvmlDeviceGet{name}": NOT_SUPPORTED for name in names}
    stand_in.write()
    source = NvmlGpuSource()

    assert source.gpus == (info(0, "GPU-a", name="NVIDIA GPU", memory_bytes=0),)
    assert source.sample({}) == (GpuSample(uuid=GpuUuid("GPU-a")),)


def test_the_older_question_for_memory_is_asked_where_the_newer_is_not_known(load: Load) -> None:
    stand_in = load(Card(uuid="GPU-a", used=3 * GIB))
    stand_in.denied = {"nvmlDeviceGetMemoryInfo_v2": NOT_SUPPORTED}
    stand_in.write()

    assert NvmlGpuSource().sample({})[0].memory_used_bytes == 3 * GIB


def test_functions_that_an_older_library_does_not_have(load: Load) -> None:
    load(Card(uuid="GPU-a", compute={1: 2}), flags=("-DWITHOUT_TEMPERATURE", "-DWITHOUT_PROCESSES"))
    (sample,) = NvmlGpuSource().sample({})

    assert (sample.temperature_c, sample.power_w, sample.processes, sample.trouble) == (None, 50.0, (), None)


def test_mig_instances_stand_in_place_of_their_gpu(load: Load) -> None:
    whole, parent = cards(2)
    parent.is_mig = True
    instances = [
        Card(
            uuid=f"MIG-{number}",
            name="A100 MIG 1g.5gb",
            total=5 * GIB,
            used=number,
            parent=1,
            compute={os.getpid(): 1},
        )
        for number in (1, 2)
    ]
    stand_in = load(whole, parent, *instances)
    source = NvmlGpuSource()

    assert source.gpus == (
        info(0, "GPU-00000000"),
        info(1016, "MIG-1", name="A100 MIG 1g.5gb", memory_bytes=5 * GIB, mig_parent="GPU-00000001"),
        info(1017, "MIG-2", name="A100 MIG 1g.5gb", memory_bytes=5 * GIB, mig_parent="GPU-00000001"),
    )
    process = GpuProcess(
        pid=os.getpid(), user=getpass.getuser(), memory_bytes=1, name=psutil.Process().name()
    )
    assert source.sample({})[1:] == tuple(
        GpuSample(
            uuid=GpuUuid(f"MIG-{number}"),
            memory_used_bytes=number,
            temperature_c=40.0,
            power_w=50.0,
            processes=(process,),
        )
        for number in (1, 2)
    )
    stand_in.cards[1].fault = LOST
    stand_in.write()
    assert [trouble and trouble.kind for trouble in troubles(source)] == [None, Trouble.LOST, Trouble.LOST]


def test_nvlink_joins_gpus_directly_or_by_switches(load: Load) -> None:
    a, b, c, d, e = cards(5)
    a.links, b.links = (b.bus, b.bus, b.bus), (a.bus, a.bus, a.bus, "00000000:ff:00.0")
    c.links, d.links = ("switch",) * 6, ("switch",) * 4
    load(a, b, c, d, e)

    assert [gpu.nvlinks for gpu in NvmlGpuSource().gpus] == [
        {b.uuid: 3},
        {a.uuid: 3},
        {d.uuid: 4},
        {c.uuid: 4},
        {},
    ]


@pytest.mark.parametrize(("code", "words"), [(LOST, "GPU is lost"), (RESET_REQUIRED, "GPU requires restart")])
def test_a_gpu_is_lost_and_comes_back(load: Load, code: int, words: str) -> None:
    stand_in = load(*cards(2))
    source = NvmlGpuSource()
    stand_in.cards[1].fault = code
    stand_in.write()
    lost = troubles(source)
    stand_in.cards[1].fault = 0
    stand_in.write()

    assert lost == [None, GpuTrouble(Trouble.LOST, f"NVIDIA's driver says: {words}.")]
    assert troubles(source)[0] is None
    wait_until(lambda: troubles(source) == [None, None])


def test_a_gpu_that_does_not_answer_at_the_start_is_not_offered(load: Load) -> None:
    stand_in = load(*cards(2))
    stand_in.cards[0].fault = LOST
    stand_in.write()
    source = NvmlGpuSource()

    assert ([gpu.uuid for gpu in source.gpus], source.note) == (
        ["GPU-00000001"],
        "1 of this machine's GPUs do not answer and are not offered: mend them and restart mgpu_node.",
    )


def test_a_driver_without_gpus_and_one_that_does_not_work(load: Load) -> None:
    stand_in = load()
    empty = NvmlGpuSource()
    stand_in.down = UNKNOWN
    stand_in.write()
    broken = NvmlGpuSource()

    assert [(source.gpus, source.sample({}), source.note) for source in (empty, broken)] == [
        ((), (), "The NVIDIA driver is there, but no GPU that can be used."),
        (
            (),
            (),
            (
                "NVIDIA's management library does not work here (Unknown Error): mend the driver and restart "
                "mgpu_node."
            ),
        ),
    ]


@pytest.mark.parametrize("left", [2, 1], ids=["all are back", "one is gone"])
def test_a_driver_that_restarts_is_initialised_anew(
    load: Load, caplog: pytest.LogCaptureFixture, left: int
) -> None:
    clock = Clock()
    stand_in = load(*cards(2))
    source = NvmlGpuSource(clock)
    stand_in.down = UNKNOWN
    stand_in.write()
    away = [troubles(source), troubles(source)]
    stand_in.down = 0
    gone = [stand_in.cards.pop() for _ in range(2 - left)]
    stand_in.restart_driver()
    clock.now = 1.0
    with caplog.at_level(logging.WARNING, "mgpu.nvml"):
        back = troubles(source)

    lost = GpuTrouble(Trouble.LOST, "The NVIDIA driver does not find it any more.")
    assert away == [[silent(), silent()], [silent(), silent()]]
    assert back == [None, None if left == 2 else lost]
    assert caplog.messages == [f"nvml_initialised_anew gpus={left} of=2"]
    stand_in.cards += gone
    stand_in.restart_driver()
    clock.now = 100.0
    assert (troubles(source), len(source.gpus)) == (
        [silent("Uninitialized")] * 2 if left == 2 else [None, None],
        2,
    )


def test_a_restart_between_two_readings_costs_one(load: Load) -> None:
    stand_in = load(*cards(1))
    source = NvmlGpuSource(Clock())
    stand_in.restart_driver()

    assert [troubles(source), troubles(source)] == [[silent("Uninitialized")], [None]]


def test_a_driver_that_stays_away_is_looked_for_less_and_less(load: Load) -> None:
    clock = Clock()
    stand_in = load(*cards(1))
    source = NvmlGpuSource(clock)
    stand_in.down = UNKNOWN
    stand_in.write()
    troubles(source)
    troubles(source)  # looked for at 0: the next times are 1, 3, 7 …
    stand_in.down = 0
    stand_in.write()
    found = []
    for now in (0.9, 1.0):
        clock.now = now
        found.append(troubles(source))

    assert found == [[silent()], [None]]


def test_one_gpu_that_stays_mute_is_lost_and_the_other_is_well(load: Load) -> None:
    clock = Clock()
    stand_in = load(*cards(2))
    source = NvmlGpuSource(clock)
    stand_in.cards[0].fault = UNKNOWN
    stand_in.write()
    found = []
    for now in (0.0, 1.0, 3.0):
        clock.now = now
        found.append(troubles(source)[0])
        assert troubles(source)[1] is None

    mute = GpuTrouble(Trouble.SILENT, "It does not answer, though the driver does.")
    assert found == [silent(), mute, GpuTrouble(Trouble.LOST, "The NVIDIA driver does not find it any more.")]
    stand_in.cards[0].fault = 0
    stand_in.write()
    clock.now = 100.0
    assert troubles(source) == [None, None]


def test_a_library_that_is_missing(tmp_path: object) -> None:
    """In a process of its own, with the loader's real search."""
    code = "from mgpu_agent.gpu.nvml import NvmlGpuSource as S; s = S(); print(s.gpus, s.sample({}), s.note)"
    env = {**os.environ, "LD_LIBRARY_PATH": str(tmp_path)}
    answer = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    if "No NVIDIA driver" not in answer.stdout:
        pytest.skip("this machine has an NVIDIA driver")

    assert (
        answer.stdout
        == "() () No NVIDIA driver is installed: this node has no GPUs (mgpu_node --fake-gpus N simulates "
        "some).\n"
    )
