"""What ails nodes and GPUs: readings, the nodes' own checks, clocks beside the master's. Tells when it changed; decides nothing."""

from __future__ import annotations

from collections.abc import Callable

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import Ailment, GpuSample, GpuTrouble, HealthChecks, Trouble
from mgpu_jupyter.model.settings import Health
from mgpu_jupyter.scheduler.events import Event, GpusChanged, NodeChecked

WRONG_BEATS = 3  # one late beat is a slow machine; three in a row are a clock
_MB = 1_000_000


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
        """What nodes are asked to look at."""
        settings = self._settings
        return HealthChecks(
            every_s=settings.every_s,
            min_free_bytes=int(settings.min_free_mb * _MB),
            program=settings.program,
            program_timeout_s=settings.program_timeout_s,
        )

    def greet(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> dict[GpuUuid, GpuTrouble]:
        """Take in a node that says Hello and return the troubles of its GPUs; what else ails it is told next."""
        self.forget(node_id)
        self._readings[node_id] = _troubles(samples)
        self._told_gpus[node_id] = self._gpus(node_id)
        return self._told_gpus[node_id]

    def read(self, node_id: NodeId, samples: tuple[GpuSample, ...]) -> list[Event]:
        """Take in readings of all GPUs of a node."""
        self._readings[node_id] = _troubles(samples)
        return self._news(node_id)

    def checked(self, node_id: NodeId, found: tuple[Ailment, ...]) -> list[Event]:
        """Take in what a node's own checks found."""
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
        self._clocks[node_id] = f"Its clock is {abs(skew):.0f} s {side} the master's: set it right, best by NTP on both machines."
        return self._news(node_id)

    def forget(self, node_id: NodeId) -> None:
        """Forget a node."""
        for known in (self._readings, self._found, self._clocks, self._wrong_beats, self._told_gpus, self._told):
            known.pop(node_id, None)

    def _gpus(self, node_id: NodeId) -> dict[GpuUuid, GpuTrouble]:
        found = {one.gpu: GpuTrouble(Trouble.HEALTH, one.text) for one in self._found.get(node_id, ()) if one.gpu is not None}
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
