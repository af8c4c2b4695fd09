"""Frames between the master's machine and nodes, as a role: what an engine needs of a transport, so that neither knows the other."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Incoming(NamedTuple):
    """A message from a connection whose key is bound to `user_id`."""

    user_id: str
    route: bytes
    frames: list[memoryview]
    refusal: str = ""
    """Why the key is bound to `user_id` no more; empty while it is."""


class FrameCarrier(Protocol):
    """Carries frames to and from nodes; knows keys and connections, not messages."""

    def wait(self, timeout_s: float) -> None:
        """Return when something came, when woken, or after the time."""

    def wake(self) -> None:
        """End a `wait`; may be called from any thread."""

    def receive(self, limit: int) -> list[Incoming]:
        """Return what came, at most `limit` messages, without waiting."""

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        """Send to a connection; False when it is gone."""

    def bind(self, host: str, port: int) -> int:
        """Listen on this address too and return the port."""

    def allow(self, public_key: str, user_id: str) -> None:
        """Let this key in under this name, in place of the key that had the name before."""

    def forbid(self, user_id: str, why: str) -> None:
        """Take the key of this name off the list; its connections are refused from their next frame on."""

    def remember(self, public_key: str, user_id: str, why: str) -> None:
        """Note why a key that is not on the list is refused."""

    def holder(self, public_key: str) -> str | None:
        """Return the name that this key is bound to; a ValueError says that it is no key."""

    def knows(self, user_id: str) -> bool:
        """Tell whether a key is bound to this name."""

    def close(self) -> None:
        """Send what is left, then close."""
