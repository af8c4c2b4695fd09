"""Which GPUs NVML lists: in the order of their PCI addresses, MIG instances in place of their GPU, and what NVLink joins. Reads no load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec
import pynvml
from msgspec.structs import replace

from mgpu_agent.gpu.questions import Questions, memory_of
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo

MIG_INDEX = 1_000  # indices of MIG instances start here: their parents' ones belong to CUDA
MIG_PER_GPU = 16
_SWITCH = "switch"


class Device(msgspec.Struct, frozen=True):
    """A GPU or a MIG instance, and the handle by which NVML is asked about it."""

    info: GpuInfo
    handle: object
    parent: object = None
    """The handle of the whole GPU, which alone knows temperature and power."""


def list_devices() -> tuple[list[Device], int]:
    """Return what can be offered, and how many GPUs did not answer; raises NVMLError when the library does not work."""
    ask = Questions().ask
    handles = [ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(pynvml.nvmlDeviceGetCount())]
    present = sorted(
        ((_bus_id(handle), order, handle) for order, handle in enumerate(handles) if handle is not None), key=lambda one: one[:2]
    )
    devices: list[Device] = []
    unanswered = len(handles) - len(present)
    for index, (_, _, handle) in enumerate(present):
        mode = ask(pynvml.nvmlDeviceGetMigMode, handle)
        if mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            devices += _instances(index, handle)
        elif (info := _info(index, handle)) is not None:
            devices.append(Device(info, handle))
        else:
            unanswered += 1
    return _with_links(devices), unanswered


def _instances(parent_index: int, parent: object) -> Iterator[Device]:
    ask = Questions().ask
    uuid = ask(pynvml.nvmlDeviceGetUUID, parent)
    for number in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, number)
        info = None if handle is None else _info(MIG_INDEX + MIG_PER_GPU * parent_index + number, handle)
        if info is not None:
            yield Device(replace(info, mig_parent=_text(uuid or "")), handle, parent)


def _info(index: int, handle: object) -> GpuInfo | None:
    questions = Questions()
    uuid = questions.ask(pynvml.nvmlDeviceGetUUID, handle)
    if uuid is None:
        return None
    memory = memory_of(questions, handle)
    name = questions.ask(pynvml.nvmlDeviceGetName, handle)
    return GpuInfo(
        index=index,
        uuid=GpuUuid(_text(uuid)),
        name=_text(name) if name is not None else "NVIDIA GPU",
        memory_bytes=0 if memory is None else memory[0],
    )


def _with_links(devices: list[Device]) -> list[Device]:
    """Return the devices with what NVLink joins; all that hang on NVSwitches are joined with each other."""
    whole = {_bus_id(device.handle): device.info.uuid for device in devices if device.parent is None}
    links = {uuid: Counter(_far_ends(device.handle)) for device in devices if (uuid := device.info.uuid) in whole.values()}

    def joined(uuid: GpuUuid) -> dict[GpuUuid, int]:
        ends = links.get(uuid, Counter())
        found = {other: ends[bus] for bus, other in whole.items() if bus and ends[bus]}
        if ends[_SWITCH]:
            found.update({other: min(ends[_SWITCH], links[other][_SWITCH]) for other in links if other != uuid and links[other][_SWITCH]})
        return found

    return [msgspec.structs.replace(device, info=replace(device.info, nvlinks=joined(device.info.uuid))) for device in devices]


def _far_ends(handle: object) -> Iterator[str]:
    """Yield where each active link of a GPU ends: a PCI address, or a switch."""
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        questions = Questions()
        is_active = questions.ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if is_active is None and link == 0:  # a GPU without NVLink: seventeen questions less
            return
        if not is_active:
            continue
        kind = questions.ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            yield _SWITCH
        elif (pci := questions.ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)) is not None:
            yield _text(pci.busId).lower()


def _bus_id(handle: object) -> str:
    pci = Questions().ask(pynvml.nvmlDeviceGetPciInfo, handle)
    return "" if pci is None else _text(pci.busId).lower()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
