"""What is logged about GPUs that must not be handed out: once when one goes out, once when it is back. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from mgpu_agent.core.commands import Command, Say
from mgpu_agent.protocol.ids import GpuUuid
from mgpu_agent.protocol.model import GpuSample, Trouble


class TroubleLog:
    """Remembers what was said of each GPU."""

    def __init__(self) -> None:
        self._said: dict[GpuUuid, str] = {}

    def say(self, samples: Iterable[GpuSample]) -> list[Command]:
        """Return a line for each GPU that got lost or silent, or is well again."""
        commands: list[Command] = []
        for sample in samples:
            trouble = sample.trouble
            text = trouble.text if trouble is not None and trouble.kind in (Trouble.LOST, Trouble.SILENT) else ""
            if text != self._said.get(sample.uuid, ""):
                self._said[sample.uuid] = text
                fields: dict[str, str | int | float] = {"gpu": sample.uuid, "reason": text} if text else {"gpu": sample.uuid}
                commands.append(Say(event="gpu_out" if text else "gpu_back", fields=fields, is_warning=bool(text)))
        return commands
