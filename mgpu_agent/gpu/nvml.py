"""The GPUs that NVIDIA's management library knows. What a GPU does not tell is None; a missing library means no GPUs, and says so.

A GPU in MIG mode is never offered whole: its instances are GPUs of their own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import ParamSpec, TypeVar

import psutil
import pynvml

from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MIG_INDEX = 1_000  # indices of MIG instances start here: their parents' ones belong to CUDA


class NvmlGpuSource:
    """GPUs by NVML. Owns the library's initialisation."""

    def __init__(self) -> None:
        self._devices: list[tuple[GpuInfo, object]] = []
        self._note = ""
        self._is_open = False
        self._users: dict[tuple[int, float], str] = {}
        try:
            pynvml.nvmlInit()
            self._is_open = True
            self._devices = list(_devices())
            self._note = "" if self._devices else "The NVIDIA driver is there, but no GPU that can be used."
        except pynvml.NVMLError_LibraryNotFound:
            self._note = "No NVIDIA driver is installed: this node has no GPUs (mgpu_node --fake-gpus N simulates some)."
        except pynvml.NVMLError as error:
            self._note = f"NVIDIA's management library does not work here: {error}."

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """Return the GPUs that were found at the start."""
        return tuple(info for info, _ in self._devices)

    @property
    def note(self) -> str:
        """Say why there are none."""
        return self._note

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:  # noqa: ARG002 - real GPUs know by themselves
        """Read every GPU once."""
        return tuple(self._sample(info.uuid, handle) for info, handle in self._devices)

    def close(self) -> None:
        """Shut the library down."""
        if self._is_open:
            self._is_open = False
            _ask(pynvml.nvmlShutdown)

    def _sample(self, uuid: GpuUuid, handle: object) -> GpuSample:
        rates = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = _memory(handle)
        temperature = _ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU)
        milliwatts = _ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        return GpuSample(
            uuid=uuid,
            utilisation_percent=None if rates is None else float(rates.gpu),
            memory_used_bytes=None if memory is None else memory[1],
            temperature_c=None if temperature is None else float(temperature),
            power_w=None if milliwatts is None else milliwatts / 1000.0,
            processes=tuple(self._processes(handle)),
        )

    def _processes(self, handle: object) -> Iterator[GpuProcess]:
        seen: set[int] = set()
        for question in (pynvml.nvmlDeviceGetComputeRunningProcesses, pynvml.nvmlDeviceGetGraphicsRunningProcesses):
            for process in _ask(question, handle) or ():
                pid = int(process.pid)
                if pid not in seen:
                    seen.add(pid)
                    used = process.usedGpuMemory
                    yield GpuProcess(pid=pid, user=self._user(pid), memory_bytes=None if used is None else int(used))

    def _user(self, pid: int) -> str | None:
        """Return who runs a process; a name service is asked once per process, not at every reading."""
        try:
            process = psutil.Process(pid)
            key = (pid, process.create_time())
            if key not in self._users:
                if len(self._users) > 1000:
                    self._users.clear()
                self._users[key] = process.username()
            return self._users[key]
        except (psutil.Error, OSError):
            return None


def _devices() -> Iterator[tuple[GpuInfo, object]]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = _ask(pynvml.nvmlDeviceGetHandleByIndex, index)
        if handle is None:  # a GPU that fell off the bus
            continue
        mode = _ask(pynvml.nvmlDeviceGetMigMode, handle)
        if mode is not None and mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            yield from _instances(index, handle)
        elif (info := _info(index, handle)) is not None:
            yield info, handle


def _instances(parent_index: int, parent: object) -> Iterator[tuple[GpuInfo, object]]:
    for number in range(_ask(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
        handle = _ask(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, number)
        if handle is not None and (info := _info(_MIG_INDEX + 16 * parent_index + number, handle)) is not None:
            yield info, handle


def _info(index: int, handle: object) -> GpuInfo | None:
    uuid = _ask(pynvml.nvmlDeviceGetUUID, handle)
    if uuid is None:
        return None
    memory = _memory(handle)
    name = _ask(pynvml.nvmlDeviceGetName, handle)
    return GpuInfo(
        index=index,
        uuid=GpuUuid(_text(uuid)),
        name=_text(name) if name is not None else "NVIDIA GPU",
        memory_bytes=0 if memory is None else memory[0],
    )


def _memory(handle: object) -> tuple[int, int] | None:
    """Return total and used bytes; the newer question does not count what the driver reserves as used."""
    with contextlib.suppress(AttributeError):
        memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle, pynvml.nvmlMemory_v2)
        if memory is not None:
            return int(memory.total), int(memory.used)
    memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
    return None if memory is None else (int(memory.total), int(memory.used))


def _text(value: str | bytes) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _ask(question: Callable[_P, _T], *arguments: _P.args, **options: _P.kwargs) -> _T | None:
    """Return the answer, or None when the GPU, the driver or the library does not tell."""
    try:
        return question(*arguments, **options)
    except pynvml.NVMLError:
        return None
