"""What a node's GPUs can be asked, whoever answers: NVML or simulated ones."""

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
        """Do nothing: there is nothing to give back."""


class GpuSource(Protocol):
    """The GPUs of one machine."""

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """Return the GPUs that are there; they do not change while the source is open."""
        ...

    @property
    def note(self) -> str:
        """Say why there are none, or that they are simulated; empty when all is plain."""
        ...

    def sample(self, held: Mapping[GpuUuid, int]) -> tuple[GpuSample, ...]:
        """Read every GPU once; may take a while. `held` names those in use by jobs, each with a pid."""
        ...

    def close(self) -> None:
        """Give back what the source holds."""
        ...
