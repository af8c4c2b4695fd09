"""The GPUs that NVIDIA's management library knows, read as they are; what a GPU does not tell is None.
Decides nothing about jobs.

Theory of operation. The GPUs are listed once. A GPU that NVML calls lost is in trouble at once; one that
answers nothing is silent, and the library is initialised again before the next reading, which also finds a
driver that was restarted. A missing library means no GPUs, and a note says so. A GPU in MIG mode is never
offered whole.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

import psutil
import pynvml

from mgpu_agent.gpu.inventory import Device, NvmlQuestions, list_devices, memory_of
from mgpu_agent.gpu.source import GpuSource, NoGpus
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample, GpuTrouble, Trouble

log = logging.getLogger("mgpu.nvml")

NO_DRIVER = "No NVIDIA driver is installed: this node has no GPUs (mgpu_node --fake-gpus N simulates some)."
OPEN_S = 30.0  # a driver without persistence needs seconds for each of eight GPUs
_REOPEN_S = (1.0, 30.0)  # a driver that stays away is retried less and less often
_PEOPLE_REMEMBERED = 1_000
_MUTE_AFTER = 3  # a GPU that stays silent after this many initialisations of the library (7 s) is lost
_SERVICES = frozenset(("nvidia-cuda-mps-server", "nvidia-cuda-mps-control"))


class NvmlGpuSource:
    """GPUs by NVML. Owns the library's initialisation."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._devices: dict[GpuUuid, Device] = {}
        self._handles: dict[GpuUuid, Device] = {}
        """The devices that the library has known since it was last initialised."""
        self._note = ""
        self._is_open = False
        self._problem = ""
        self._reopen_at = 0.0
        self._reopen_failures = 0
        self._known = 0
        self._mute: Counter[GpuUuid] = Counter()
        """How often the library was initialised again while this GPU was silent."""
        self._lost: dict[GpuUuid, str] = {}
        """NVML's message when a GPU was lost; it stays lost until it answers."""
        self._people: dict[tuple[int, float], tuple[str, str]] = {}
        self._open_first()

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """Return the GPUs that were found at the start."""
        return tuple(device.info for device in self._devices.values())

    @property
    def note(self) -> str:
        """Say why there are none, or that some are missing."""
        return self._note

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:  # noqa: ARG002 - real GPUs know by themselves
        """Read every GPU once; a driver that was restarted is initialised anew."""
        if not self._devices:
            return ()
        if self._problem and self._clock() >= self._reopen_at:
            self._reopen()
        samples = tuple(self._sample(uuid) for uuid in self._devices)
        if not self._problem:
            self._reopen_failures = 0
        return samples

    def close(self) -> None:
        """Shut the library down."""
        if self._is_open:
            self._is_open = False
            NvmlQuestions().ask(pynvml.nvmlShutdown)

    # --- the library ---------------------------------------------------------------------------------

    def _open_first(self) -> None:
        try:
            pynvml.nvmlInit()
            self._is_open = True
            found, unanswered = list_devices()
        except pynvml.NVMLError_LibraryNotFound:
            self._note = NO_DRIVER
            return
        except pynvml.NVMLError as error:
            self._note = (
                f"NVIDIA's management library does not work here ({error}): mend the driver and "
                f"restart mgpu_node."
            )
            return
        self._devices = {device.info.uuid: device for device in found}
        self._handles = dict(self._devices)
        if unanswered:
            self._note = (
                f"{unanswered} of this machine's GPUs do not answer and are not offered: mend them "
                f"and restart mgpu_node."
            )
        elif not found:
            self._note = "The NVIDIA driver is there, but no GPU that can be used."

    def _reopen(self) -> None:
        """Initialise the library again and find the GPUs by their UUIDs."""
        first, most = _REOPEN_S
        self._reopen_at = self._clock() + min(most, first * 2.0 ** min(self._reopen_failures, 8))
        self._reopen_failures += 1
        self.close()
        try:
            pynvml.nvmlInit()
            self._is_open = True
            found, unanswered = list_devices()
        except pynvml.NVMLError as error:
            self._problem = _words(error)
            self._handles = {}
            return
        self._problem = ""
        self._handles = {device.info.uuid: device for device in found}
        missing = self._devices.keys() - self._handles.keys()
        self._mute = Counter({uuid: self._mute[uuid] + 1 for uuid in missing}) if unanswered else Counter()
        known = len(self._handles.keys() & self._devices.keys())
        if (
            self._reopen_failures == 1 or known != self._known
        ):  # logged once, not at every attempt to find a GPU that stays away
            log.warning("nvml_initialised_anew gpus=%d of=%d", known, len(self._devices))
        self._known = known

    # --- one GPU -------------------------------------------------------------------------------------

    def _sample(self, uuid: GpuUuid) -> GpuSample:
        if self._problem and not self._is_open:
            return _in_trouble(uuid, Trouble.SILENT, f"The NVIDIA driver does not answer ({self._problem}).")
        device = self._handles.get(uuid)
        if device is None:
            self._problem = "a GPU is missing"
            if 0 < self._mute[uuid] < _MUTE_AFTER and uuid not in self._lost:
                return _in_trouble(uuid, Trouble.SILENT, "It does not answer, though the driver does.")
            return self._say_lost(uuid, self._lost.get(uuid, "The NVIDIA driver does not find it any more."))
        questions = NvmlQuestions()
        sample = self._read(uuid, device, questions)
        if questions.lost:
            self._problem = questions.lost
            return self._say_lost(uuid, f"NVIDIA's driver says: {questions.lost}.")
        if questions.answers:
            self._lost.pop(uuid, None)
            return sample
        self._problem = _words(questions.error)
        return _in_trouble(uuid, Trouble.SILENT, f"The NVIDIA driver does not answer ({self._problem}).")

    def _say_lost(self, uuid: GpuUuid, text: str) -> GpuSample:
        self._lost[uuid] = text
        return _in_trouble(uuid, Trouble.LOST, text)

    def _read(self, uuid: GpuUuid, device: Device, questions: NvmlQuestions) -> GpuSample:
        ask, handle = questions.ask, device.handle
        whole = handle if device.parent is None else device.parent
        ask(pynvml.nvmlDeviceGetUUID, handle)  # every GPU answers this one: a sign of life
        rates = ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = memory_of(questions, handle)
        temperature = ask(pynvml.nvmlDeviceGetTemperature, whole, pynvml.NVML_TEMPERATURE_GPU)
        milliwatts = ask(pynvml.nvmlDeviceGetPowerUsage, whole)
        return GpuSample(
            uuid=uuid,
            utilisation_percent=None if rates is None else float(rates.gpu),
            memory_used_bytes=None if memory is None else memory[1],
            temperature_c=None if temperature is None else float(temperature),
            power_w=None if milliwatts is None else milliwatts / 1000.0,
            processes=tuple(self._processes(handle, questions)),
        )

    def _processes(self, handle: object, questions: NvmlQuestions) -> Iterator[GpuProcess]:
        seen: set[int] = set()
        for question, is_display in (
            (pynvml.nvmlDeviceGetComputeRunningProcesses, False),
            (pynvml.nvmlDeviceGetGraphicsRunningProcesses, True),
        ):
            for process in questions.ask(question, handle) or ():
                pid = int(process.pid)
                if pid not in seen:
                    seen.add(pid)
                    used = process.usedGpuMemory
                    user, name = self._person(pid)
                    memory_bytes = None if used is None else int(used)
                    yield GpuProcess(
                        pid=pid,
                        user=user,
                        memory_bytes=memory_bytes,
                        passive=is_display or name in _SERVICES,
                        name=name,
                    )

    def _person(self, pid: int) -> tuple[str | None, str]:
        """Return who runs a process, and its program; the name service is asked once for each process."""
        try:
            process = psutil.Process(pid)
            key = (pid, process.create_time())
            if key not in self._people:
                if len(self._people) >= _PEOPLE_REMEMBERED:
                    self._people.clear()
                self._people[key] = (process.username(), process.name())
            return self._people[key]
        except (psutil.Error, OSError):
            return None, ""


def open_nvml(limit_s: float = OPEN_S) -> GpuSource:
    """Return the GPUs of this machine, or none when the driver hangs: its jobs still need an agent."""
    opened: list[GpuSource] = []
    thread = threading.Thread(target=lambda: opened.append(NvmlGpuSource()), name="mgpu-nvml", daemon=True)
    thread.start()
    thread.join(limit_s)
    hangs = f"The NVIDIA driver did not answer within {limit_s:g} s: mend it and restart mgpu_node."
    return opened[0] if opened else NoGpus(hangs)


def _in_trouble(uuid: GpuUuid, kind: str, text: str) -> GpuSample:
    return GpuSample(uuid=uuid, trouble=GpuTrouble(kind, text))


def _words(error: Exception | None) -> str:
    if error is None:
        return "no question is answered"
    if isinstance(error, pynvml.NVMLError_LibRmVersionMismatch):
        return f"{error}: restart mgpu_node to use the new driver"
    return str(error)
