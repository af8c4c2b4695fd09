"""What the node's own checks found, and when that is told: after each `Hello`, and when it changes. Part of the machine; pure."""

from __future__ import annotations

from mgpu_agent.core.commands import Command, Say, Send
from mgpu_agent.protocol.messages import Checked
from mgpu_agent.protocol.model import Ailment


class Ailing:
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
