"""Errors by what the caller can do about them.

    MgpuError
      InvalidRequest        fix the request and send it again
      Unauthorised          log in
      Forbidden             ask someone who has the right
      NotFound              name something that exists
      Conflict              look at the present state first
      Unavailable           try again later
      ProtocolError
        LocalProtocolError  our bug
        RemoteProtocolError the other side's bug, or another program altogether
      EngineError           the machinery that runs jobs failed

Each has a stable `code` and a sentence with the next step. HTTP numbers exist only in the server.
"""

from __future__ import annotations

from collections.abc import Mapping


class MgpuError(Exception):
    """The base of all errors: `code` is for programs, `message` for people."""

    def __init__(self, code: str, message: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})


class InvalidRequest(MgpuError):
    """Fix the request and send it again."""


class Unauthorised(MgpuError):
    """Log in first."""


class Forbidden(MgpuError):
    """Ask someone who has the right."""


class NotFound(MgpuError):
    """Name something that exists."""


class Conflict(MgpuError):
    """The present state does not allow this."""


class Unavailable(MgpuError):
    """Try again later."""


class ProtocolError(MgpuError):
    """Two programs did not understand each other."""


class LocalProtocolError(ProtocolError):
    """This side broke the protocol."""


class RemoteProtocolError(ProtocolError):
    """The other side broke the protocol."""


class EngineError(MgpuError):
    """The machinery that runs jobs failed."""


def reason_of(error: Exception) -> str:
    """Return what the system says about an error, or the error's own text."""
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
