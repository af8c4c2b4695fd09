"""The agent's real GPUs: which of them must not be handed out now, and why. Pure.

Theory of operation. Readings come with the time at which they began. A GPU whose job just ended is in trouble
until a reading that began later shows none of the node's processes on it and no more memory in use than
before the job. Simulated GPUs are never in trouble and cost nothing here. Outside processes are reported, and
the master decides whether they keep jobs off.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from mgpu_agent.core.commands import Command, Say
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo, GpuProcess, GpuSample, GpuTrouble, Trouble
from mgpu_agent.protocol.wording import size

TOLERANCE_BYTES = 128 * 1024 * 1024  # what a driver may keep after a job; a context of CUDA is larger
URGENT_S = 10.0  # a GPU that was just freed is read at every tick for so long, then at the usual pace
MUTE_S = 30.0  # a driver that gave no reading for so long hangs

_UNREAD = GpuTrouble(Trouble.UNREAD, "It has not been read yet.")
_FREED = GpuTrouble(Trouble.MEMORY, "Its last job just ended: its memory is looked at.")
_MUTE = GpuTrouble(Trouble.SILENT, f"The NVIDIA driver has given no reading for {MUTE_S:g} s.")


class Gpus:
    """The real GPUs of this node."""

    def __init__(self) -> None:
        self._samples: dict[GpuUuid, GpuSample] = {}
        self._before: dict[GpuUuid, int] = {}
        """Memory in use when no job and no outside process was on the GPU."""
        self._freed_at: dict[GpuUuid, float] = {}
        self._read_at = 0.0

    @property
    def samples(self) -> tuple[GpuSample, ...]:
        """Return the newest reading of every real GPU."""
        return tuple(self._samples.values())

    def know(self, gpus: Iterable[GpuInfo], at: float) -> None:
        """Take the list of GPUs; a new one is not handed out before it is read."""
        for gpu in gpus:
            if not gpu.simulated and gpu.uuid not in self._samples:
                self._samples[gpu.uuid] = GpuSample(uuid=gpu.uuid, trouble=_UNREAD)
                self._read_at = at

    def lost(self, uuids: Iterable[GpuUuid]) -> str:
        """Return what is wrong with the first of these that is lost, or an empty string."""
        for uuid in uuids:
            trouble = self._samples[uuid].trouble if uuid in self._samples else None
            if trouble is not None and trouble.kind == Trouble.LOST:
                return f"GPU {uuid}: {trouble.text}"
        return ""

    @property
    def has_lost(self) -> bool:
        """Tell whether any GPU is lost, so that the others' numbers may have changed."""
        return bool(self.lost(self._samples))

    def free(self, uuids: Iterable[GpuUuid], at: float) -> bool:
        """Note that a job released these GPUs; tell whether their memory must be checked."""
        real = [uuid for uuid in uuids if uuid in self._samples]
        for uuid in real:
            self._freed_at[uuid] = at
            sample = self._samples[uuid]
            if sample.trouble is None or sample.trouble.kind == Trouble.OUTSIDE:
                self._samples[uuid] = replace(sample, trouble=_FREED)
        return bool(real)

    def take(
        self, samples: tuple[GpuSample, ...], begun_at: float, at: float, held: Iterable[GpuUuid]
    ) -> tuple[GpuSample, ...]:
        """Return the readings, each with the trouble of its GPU."""
        if not self._samples:
            return samples
        self._read_at = at
        busy = set(held)
        return tuple(
            self._judge(sample, begun_at, sample.uuid in busy) if sample.uuid in self._samples else sample
            for sample in samples
        )

    def is_urgent(self, at: float) -> bool:
        """Tell whether a GPU was freed so recently that it should be read again at once."""
        return any(at - freed_at < URGENT_S for freed_at in self._freed_at.values())

    def fall_mute(self, at: float) -> bool:
        """Mark every GPU as silent when the driver has hung for too long; tell whether that is news."""
        if (
            not self._samples
            or at - self._read_at < MUTE_S
            or all(one.trouble == _MUTE for one in self._samples.values())
        ):
            return False
        self._samples = {uuid: GpuSample(uuid=uuid, trouble=_MUTE) for uuid in self._samples}
        return True

    def _judge(self, sample: GpuSample, begun_at: float, is_held: bool) -> GpuSample:
        uuid = sample.uuid
        if sample.trouble is None:
            sample = replace(sample, trouble=self._trouble(sample, begun_at, is_held=is_held))
        self._samples[uuid] = sample
        return sample

    def _trouble(self, sample: GpuSample, begun_at: float, *, is_held: bool) -> GpuTrouble | None:
        strangers = [process for process in sample.processes if process.outside]
        used = sample.memory_used_bytes
        own = None if used is None else max(0, used - sum(process.memory_bytes or 0 for process in strangers))
        if not is_held and (left := self._left_behind(sample, own, begun_at)) is not None:
            return left
        active = [process for process in strangers if not process.passive]
        if active:
            return _used_from_outside(active)
        if not is_held and own is not None:
            self._before[sample.uuid] = own
        return None

    def _left_behind(self, sample: GpuSample, own: int | None, begun_at: float) -> GpuTrouble | None:
        """Return the trouble that an ended job left on the GPU; None once its memory is back."""
        freed_at = self._freed_at.get(sample.uuid)
        if freed_at is not None and begun_at < freed_at:
            return _FREED
        left = [process.pid for process in sample.processes if not process.outside]
        if left:
            return GpuTrouble(Trouble.MEMORY, f"A process of its last job is still on it (pid {left[0]}).")
        before = self._before.get(sample.uuid)
        if freed_at is not None and own is not None and before is not None and own > before + TOLERANCE_BYTES:
            text = (
                f"{size(own - before)} of its last job's memory is not back: end what holds it, or restart "
                f"mgpu_node."
            )
            return GpuTrouble(Trouble.MEMORY, text)
        self._freed_at.pop(sample.uuid, None)
        return None


def _used_from_outside(processes: list[GpuProcess]) -> GpuTrouble:
    first = processes[0]
    more = f" and {len(processes) - 1} more" if len(processes) > 1 else ""
    return GpuTrouble(
        Trouble.OUTSIDE, f"In use outside mgpu by pid {first.pid} of {first.user or 'an unknown user'}{more}."
    )


class TroubleLog:
    """Logs each change of a GPU's trouble once."""

    def __init__(self) -> None:
        self._said: dict[GpuUuid, str] = {}

    def say(self, samples: Iterable[GpuSample]) -> list[Command]:
        """Return a line for each GPU that became lost or silent, or recovered."""
        commands: list[Command] = []
        for sample in samples:
            trouble = sample.trouble
            text = (
                trouble.text if trouble is not None and trouble.kind in (Trouble.LOST, Trouble.SILENT) else ""
            )
            if text != self._said.get(sample.uuid, ""):
                self._said[sample.uuid] = text
                fields: dict[str, str | int | float] = (
                    {"gpu": sample.uuid, "reason": text} if text else {"gpu": sample.uuid}
                )
                commands.append(
                    Say(event="gpu_out" if text else "gpu_back", fields=fields, is_warning=bool(text))
                )
        return commands
