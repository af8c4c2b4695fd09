"""The GPUs that NVML lists: in the order of their PCI addresses, MIG instances in place of their GPU, and
which of them NVLink joins. Reads no load.

`ask` calls NVML: it returns None for what cannot be told, and remembers errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import ParamSpec, TypeVar

import msgspec
import pynvml
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo

_P = ParamSpec("_P")
_T = TypeVar("_T")
# These mean that something is broken; every other error means that the answer is not available here.
_BROKEN = frozenset(
    (
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_TIMEOUT,
        pynvml.NVML_ERROR_IRQ_ISSUE,
        pynvml.NVML_ERROR_OPERATING_SYSTEM,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN,
    )
)
_LOST = frozenset(
    (pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED, pynvml.NVML_ERROR_GPU_NOT_FOUND)
)


class NvmlQuestions:
    """The questions of one reading of one GPU, and the errors that they met."""

    def __init__(self) -> None:
        self.answers = 0
        self.error: Exception | None = None
        """The first error that means a fault."""
        self.lost = ""
        """NVML's message when the GPU is gone or must be reset."""

    def ask(self, question: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T | None:
        """Return the answer, or None when the GPU, the driver or the library has none."""
        try:
            answer = question(*arguments, **options)
        except pynvml.NVMLError as error:
            if error.value in _LOST:
                self.lost = self.lost or str(error)
            elif error.value in _BROKEN:
                self.error = self.error or error
            return None
        except pynvml.NVMLLibraryMismatchError:  # an older library without this function
            return None
        self.answers += 1
        return answer


def memory_of(questions: NvmlQuestions, handle: object) -> tuple[int, int] | None:
    """Return total and used bytes; the newer call does not count what the driver reserves as used."""
    memory = questions.ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
    if memory is None:
        memory = questions.ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else (int(memory.total), int(memory.used))


MIG_INDEX = 1_000  # indices of MIG instances start here: smaller ones are those of whole GPUs
MIG_PER_GPU = 16
_SWITCH = "switch"


class Device(msgspec.Struct, frozen=True):
    """A GPU or a MIG instance, and its NVML handle."""

    info: GpuInfo
    handle: object
    parent: object = None
    """The handle of the whole GPU, which alone has temperature and power."""


def list_devices() -> tuple[list[Device], int]:
    """Return the GPUs that can be offered, and how many did not answer; raises NVMLError when NVML does not
    work.
    """
    ask = NvmlQuestions().ask
    handles = [ask(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(pynvml.nvmlDeviceGetCount())]
    present = sorted(
        ((_bus_id(handle), order, handle) for order, handle in enumerate(handles) if handle is not None),
        key=lambda one: one[:2],
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
    ask = NvmlQuestions().ask
    uuid = ask(pynvml.nvmlDeviceGetUUID, parent)
    for number in range(ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
        handle = ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, number)
        info = None if handle is None else _info(MIG_INDEX + MIG_PER_GPU * parent_index + number, handle)
        if info is not None:
            yield Device(replace(info, mig_parent=_text(uuid or "")), handle, parent)


def _info(index: int, handle: object) -> GpuInfo | None:
    questions = NvmlQuestions()
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
    """Return the devices with their NVLink groups; all that are connected to NVSwitches are joined."""
    whole = {_bus_id(device.handle): device.info.uuid for device in devices if device.parent is None}
    links = {
        uuid: Counter(_far_ends(device.handle))
        for device in devices
        if (uuid := device.info.uuid) in whole.values()
    }

    def joined(uuid: GpuUuid) -> dict[GpuUuid, int]:
        ends = links.get(uuid, Counter())
        found = {other: ends[bus] for bus, other in whole.items() if bus and ends[bus]}
        if ends[_SWITCH]:
            found.update(
                {
                    other: min(ends[_SWITCH], links[other][_SWITCH])
                    for other in links
                    if other != uuid and links[other][_SWITCH]
                }
            )
        return found

    return [
        msgspec.structs.replace(device, info=replace(device.info, nvlinks=joined(device.info.uuid)))
        for device in devices
    ]


def _far_ends(handle: object) -> Iterator[str]:
    """Yield where each active link of a GPU ends: a PCI address, or a switch."""
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        questions = NvmlQuestions()
        is_active = questions.ask(pynvml.nvmlDeviceGetNvLinkState, handle, link)
        if is_active is None and link == 0:  # a GPU without NVLink: seventeen questions fewer
            return
        if not is_active:
            continue
        kind = questions.ask(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            yield _SWITCH
        elif (pci := questions.ask(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)) is not None:
            yield _text(pci.busId).lower()


def _bus_id(handle: object) -> str:
    pci = NvmlQuestions().ask(pynvml.nvmlDeviceGetPciInfo, handle)
    return "" if pci is None else _text(pci.busId).lower()


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
