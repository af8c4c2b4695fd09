"""What waits to be told to the master: messages until its Welcome, and what the node's own checks found. Pure.

Between a Hello and its Welcome things come up that the Hello does not tell, and the master may have sent what they answer after it
heard that Hello: nobody would ask again. Findings are told after each Hello, and when they change.
"""

from __future__ import annotations

from mgpu_agent.core.commands import Command, Say, Send
from mgpu_agent.protocol.messages import Checked
from mgpu_agent.protocol.model import Ailment


class UntilWelcome:
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


class CheckFindings:
    """The newest findings of one node."""

    def __init__(self) -> None:
        self._found: tuple[Ailment, ...] = ()

    def greet(self) -> list[Command]:
        """Return what follows a `Hello`: the master takes a node that says nothing more for well."""
        return [self._tell()] if self._found else []

    def take(self, ailments: tuple[Ailment, ...] | None, *, may_tell: bool) -> list[Command]:
        """Take in a round of checks, if there was one."""
        if ailments is None or ailments == self._found:
            return []
        gone = [one for one in self._found if one not in ailments]
        come = [one for one in ailments if one not in self._found]
        self._found = ailments
        said: list[Command] = [Say(event="check_failed", fields={"check": one.check, "text": one.text}, is_warning=True) for one in come]
        said += [Say(event="check_passed", fields={"check": one.check}) for one in gone]
        return [*said, self._tell()] if may_tell else said

    def _tell(self) -> Send:
        return Send(message=Checked(ailments=self._found))
