"""The warning before a time limit, from text to a value. Pure."""

from __future__ import annotations

import re
import signal

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest

DEFAULT_BEFORE_S = 60.0
MAX_BEFORE_S = 10 * 365 * 86_400
_WARNING = re.compile(r"(?P<signal>[A-Za-z0-9+-]+)(?:@(?P<seconds>[0-9]{1,9}))?")
_DEAF = (signal.SIGKILL, signal.SIGSTOP)


class Warning_(msgspec.Struct, frozen=True):  # noqa: N801 - a name that Python has taken
    """Which signal comes, and how long before the end."""

    signal: int
    before_s: float


def parse_signal(text: str) -> Warning_ | None:
    """Read `USR1@60`; None for no text."""
    if not text:
        return None
    if text.upper().startswith("B:"):
        raise InvalidRequest("bad-signal", f"--signal {text}: a job here has no batch shell of its own; leave out B:.")
    found = _WARNING.fullmatch(text)
    number = None if found is None else _number(found["signal"])
    if found is None or number is None:
        raise InvalidRequest("bad-signal", f"--signal {text}: write a signal and seconds before the limit, like --signal USR1@60.")
    if number in _DEAF:
        raise InvalidRequest("bad-signal", f"--signal {text}: no program can hear {number.name}; use USR1 or TERM.")
    return Warning_(int(number), float(found["seconds"] or DEFAULT_BEFORE_S))


def _number(name: str) -> signal.Signals | None:
    try:
        return signal.Signals(int(name)) if name.isdigit() else signal.Signals["SIG" + name.upper().removeprefix("SIG")]
    except (KeyError, ValueError):
        return None
