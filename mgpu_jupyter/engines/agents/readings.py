"""What nodes report about themselves: readings of GPUs, their load, findings of their own checks, their
clocks compared with the master's. Reports changes that matter; decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeGuard

from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.messages import Heartbeat
from mgpu_agent.protocol.model import Ailment, GpuSample, GpuTrouble, HealthChecks, Trouble
from mgpu_jupyter.master.node_link import NewestReading
from mgpu_jupyter.model.settings import Health
from mgpu_jupyter.scheduler.events import Event, GpusChanged, NodeChecked
from mgpu_jupyter.scheduler.model import Load

STEPS = 20  # a change of less than a twentieth is noise
_HIGHEST_PERCENT = 1e6


class Readings:
    """The newest readings of all nodes. Used by the master's thread."""

    def __init__(self) -> None:
        self._samples: dict[NodeId, tuple[GpuSample, ...]] = {}
        self._memory: dict[NodeId, int] = {}
        self._newest: dict[NodeId, Load] = {}
        self._told: dict[NodeId, tuple[int | None, ...]] = {}

    def know(self, node_id: NodeId, memory_bytes: int) -> None:
        """Note a node that joined, with its memory; earlier readings count as news again."""
        self._memory[node_id] = memory_bytes
        self._told.pop(node_id, None)

    def take_samples(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> None:
        """Take readings of all GPUs of a node."""
        self._samples[node_id] = samples

    def take_load(self, node_id: NodeId, beat: Heartbeat) -> Load | None:
        """Take the load in a heartbeat, and return it if it changed enough."""
        before = self._newest.get(node_id, Load())
        busy = [
            sample.utilisation_percent for sample in beat.samples if _is_number(sample.utilisation_percent)
        ]
        load = replace(before, gpu_percent=sum(busy) / len(busy)) if busy else before
        if _is_number(beat.cpu_percent):
            load = replace(
                load, cpu_percent=beat.cpu_percent, memory_available_bytes=beat.memory_available_bytes
            )
        self._newest[node_id] = load
        rounded = (
            _round(load.gpu_percent, 100.0),
            _round(load.cpu_percent, 100.0),
            _round(load.memory_available_bytes, self._memory.get(node_id, 0)),
        )
        if rounded == self._told.get(node_id, (None, None, None)):
            return None
        self._told[node_id] = rounded
        return load

    def newest(self, node_id: NodeId) -> NewestReading:
        """Return all that is known of a node."""
        return NewestReading(samples=self._samples.get(node_id, ()), load=self._newest.get(node_id, Load()))

    def forget(self, node_id: NodeId) -> None:
        """Forget a node."""
        self._samples.pop(node_id, None)
        for known in (self._memory, self._newest, self._told):
            known.pop(node_id, None)


def _is_number(value: float | None) -> TypeGuard[float]:
    """Tell whether a node sent a finite number: a faulty one may report infinite load."""
    return value is not None and 0.0 <= value <= _HIGHEST_PERCENT


def _round(value: float | None, whole: float) -> int | None:
    return None if value is None or whole <= 0 else round(value / whole * STEPS)


WRONG_BEATS = 3  # one late beat is a slow machine; three in a row are a clock
_MIB = 1 << 20


class Ailments:
    """The newest findings about all nodes. Used by the master's thread."""

    def __init__(self, settings: Health, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._settings = settings
        self._clock = clock
        self._wall = wall
        self._readings: dict[NodeId, dict[GpuUuid, GpuTrouble]] = {}
        self._found: dict[NodeId, tuple[Ailment, ...]] = {}
        self._clocks: dict[NodeId, str] = {}
        self._wrong_beats: dict[NodeId, int] = {}
        self._told_gpus: dict[NodeId, dict[GpuUuid, GpuTrouble]] = {}
        self._told: dict[NodeId, tuple[str, ...]] = {}

    @property
    def checks(self) -> HealthChecks:
        """What nodes are asked to check."""
        settings = self._settings
        return HealthChecks(
            every_s=settings.every_s,
            min_free_bytes=int(settings.min_free_mb * _MIB),
            program=settings.program,
            program_timeout_s=settings.program_timeout_s,
        )

    def greet(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> dict[GpuUuid, GpuTrouble]:
        """Note a node that says Hello and return the troubles of its GPUs; other ailments follow."""
        self.forget(node_id)
        self._readings[node_id] = _troubles(samples)
        self._told_gpus[node_id] = self._gpus(node_id)
        return self._told_gpus[node_id]

    def read(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> list[Event]:
        """Take readings of all GPUs of a node."""
        self._readings[node_id] = _troubles(samples)
        return self._news(node_id)

    def checked(self, node_id: NodeId, found: tuple[Ailment, ...]) -> list[Event]:
        """Take the findings of a node's own checks."""
        self._found[node_id] = found
        return self._news(node_id)

    def beat(self, node_id: NodeId, at: float) -> list[Event]:
        """Compare a node's clock with the master's."""
        skew = at - self._wall()
        if abs(skew) <= self._settings.clock_skew_s:
            self._wrong_beats.pop(node_id, None)
            return self._news(node_id) if self._clocks.pop(node_id, None) else []
        beats = self._wrong_beats[node_id] = self._wrong_beats.get(node_id, 0) + 1
        if beats != WRONG_BEATS:
            return []
        side = "ahead of" if skew > 0 else "behind"
        self._clocks[node_id] = (
            f"Its clock is {abs(skew):.0f} s {side} the master's: set it right, best by NTP on both machines."
        )
        return self._news(node_id)

    def forget(self, node_id: NodeId) -> None:
        """Forget a node."""
        for known in (
            self._readings,
            self._found,
            self._clocks,
            self._wrong_beats,
            self._told_gpus,
            self._told,
        ):
            known.pop(node_id, None)

    def _gpus(self, node_id: NodeId) -> dict[GpuUuid, GpuTrouble]:
        found = {
            one.gpu: GpuTrouble(Trouble.HEALTH, one.text)
            for one in self._found.get(node_id, ())
            if one.gpu is not None
        }
        return {**found, **self._readings.get(node_id, {})}

    def _news(self, node_id: NodeId) -> list[Event]:
        events: list[Event] = []
        gpus = self._gpus(node_id)
        if gpus != self._told_gpus.get(node_id, {}):
            self._told_gpus[node_id] = gpus
            events.append(GpusChanged(at=self._clock(), node_id=node_id, troubles=gpus))
        texts = tuple(one.text for one in self._found.get(node_id, ()) if one.gpu is None)
        if clock := self._clocks.get(node_id):
            texts = (*texts, clock)
        if texts != self._told.get(node_id, ()):
            self._told[node_id] = texts
            events.append(NodeChecked(at=self._clock(), node_id=node_id, ailments=texts))
        return events


def _troubles(samples: tuple[GpuSample, ...]) -> dict[GpuUuid, GpuTrouble]:
    return {sample.uuid: sample.trouble for sample in samples if sample.trouble is not None}
