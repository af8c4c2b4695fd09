"""What comes up between a Hello and its Welcome, kept until then. Pure.

The Hello does not tell it, and the master may have sent what it answers after it heard that Hello: nobody would ask again.
"""

from __future__ import annotations

from mgpu_agent.core.commands import Command, Send


class Later:
    """Messages for the master that wait for its Welcome."""

    def __init__(self) -> None:
        self._kept: list[Command] | None = None

    @property
    def is_open(self) -> bool:
        """Tell whether a Hello was said and not answered yet."""
        return self._kept is not None

    def open(self) -> None:
        """Begin with a Hello; what was kept before is in it, or is asked for again because of it."""
        self._kept = []

    def keep(self, commands: list[Command]) -> list[Command]:
        """Keep what is to be sent if it has to wait; return what can be done now."""
        if self._kept is None:
            return commands
        self._kept += [command for command in commands if isinstance(command, Send)]
        return [command for command in commands if not isinstance(command, Send)]

    def close(self) -> list[Command]:
        """Return what was kept, now that it can be sent, or that nobody will ever hear it."""
        kept, self._kept = self._kept or [], None
        return kept
