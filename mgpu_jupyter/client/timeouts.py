"""Every number of seconds that the client waits, by name. Values only."""

from __future__ import annotations

import msgspec


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long the client waits for what."""

    connect_s: float = 5.0
    request_s: float = 60.0
    """For one answer; a submit is answered after its commit, which takes milliseconds."""
    retry_s: float = 30.0
    """A server that restarts is back within this; until then a request is sent again, with the same key."""
    slowed_s: float = 300.0
    """How long a request waits in all because the server says that it was too much at once."""
    stream_idle_s: float = 30.0
    """The server says something every 10 s, so three silences mean that the connection is dead."""
    resume_s: float = 300.0
    """How long a stream waits for the server to come back."""
    cancel_wait_s: float = 30.0
    """Twice the kill grace: how long an interrupted job is watched to its end."""
    withdraw_s: float = 2.0
    """For taking back a submit that was interrupted before its answer came."""
    backoff_base_s: float = 0.05
    backoff_cap_s: float = 2.0
