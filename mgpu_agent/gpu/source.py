"""The role of a node's GPUs, played by NVML or by simulated ones; and `NoGpus`, where none can be asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuInfo, GpuSample


class NoGpus:
    """A machine whose GPUs cannot be asked; says why."""

    gpus: tuple[GpuInfo, ...] = ()

    def __init__(self, note: str) -> None:
        self.note = note

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:  # noqa: ARG002 - there is nothing to hold
        """Return nothing."""
        return ()

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class GpuSource(Protocol):
    """The GPUs of one machine."""

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """Return the GPUs that are there; they do not change while the source is open."""
        ...

    @property
    def note(self) -> str:
        """Return why there are none, or that they are simulated; empty when there is nothing to say."""
        ...

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:
        """Read every GPU once; may take a while. `held` names those in use by jobs, each with a pid."""
        ...

    def close(self) -> None:
        """Release what the source holds."""
        ...
