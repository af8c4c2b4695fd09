"""What a command is, and what several commands share: which master, one JSON document, spans of time.

Sends nothing and prints nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser

MakeClient = Callable[[], Client]
EXAMPLE_JOB = "R4T8W2ZB"
_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SPAN = re.compile(r"(\d{1,7})([smhd]?)")
_ARG_START, _ARG_END = 48, 49  # fields of /proc/self/stat, counted from 1


class Command(NamedTuple):
    """One command. It has `run`, or `main` where its words are not read in the usual way."""

    parser: Callable[[str], Parser]
    """Makes the parser, which help and completion read, too, from the name of the program."""
    run: Callable[[argparse.Namespace, MakeClient], int] | None = None
    main: Callable[[Sequence[str], MakeClient], int] | None = None
    actions: tuple[str, ...] = ()
    """Its subcommands."""
    parser_of_action: Callable[[str, str], Parser] | None = None
    """Makes the parser of a subcommand that has flags of its own."""


def add_json(parser: Parser) -> None:
    """Add the flag of commands that can print one JSON document."""
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def seconds(text: str, flag: str = "--ttl") -> int:
    """Return a span of time in seconds."""
    match = _SPAN.fullmatch(text)
    if match is None or int(match[1]) == 0:
        above = "above nothing, " if text.startswith(("-", "0")) else ""
        raise InvalidRequest("bad-ttl", f"{flag} {text}: write a time {above}like 30m, 1h or 2d.")
    return int(match[1]) * _UNITS[match[2]]


# --- which master: the earlier tools' `--host` and `--port` -----------------------------------------


def add_place(parser: Parser) -> None:
    """Add the flags that name the master."""
    parser.add_argument(
        "--host", metavar="H", help="host of the master; default: $MGPU_MASTER_HOST, else as found"
    )
    parser.add_argument(
        "--port", metavar="P", help="HTTP port of the master; default: $MGPU_MASTER_PORT, else 8080"
    )


def point_at(host: str | None, port: str | None, *, prefix: str = "--") -> None:
    """Make every client of this process use that master: a flag overrides the environment.

    `prefix` is what the names of these flags begin with.
    """
    if host is None and port is None:
        return
    if host is not None and not host.strip():
        raise InvalidRequest("bad-host", f"{prefix}host is empty: write the name of the master's machine.")
    if port is not None and (not port.isascii() or not port.isdecimal() or not 0 < int(port) < 65536):
        raise InvalidRequest(
            "bad-port", f"{prefix}port {port} is not a port: write a number from 1 to 65535, like 8080."
        )
    os.environ.pop("MGPU_URL", None)
    if host is not None:
        os.environ["MGPU_MASTER_HOST"] = host
    if port is not None:
        os.environ["MGPU_MASTER_PORT"] = port


# --- secrets ----------------------------------------------------------------------------------------


def wipe_from_ps(secrets: Iterable[str]) -> None:
    """Overwrite secrets in the command line that `ps` shows of this process, as far as possible."""
    try:
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
        if not 0 < start < end:
            return
        area = ctypes.string_at(start, end - start)
    except (OSError, ValueError, IndexError):
        return
    for secret in filter(None, secrets):
        word = secret.encode(errors="surrogateescape")
        at = area.find(word)
        while at >= 0:
            ctypes.memset(start + at, ord("*"), len(word))
            at = area.find(word, at + len(word))
