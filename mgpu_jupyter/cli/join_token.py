"""`mgpu join-token`: prints the one line that lets another machine join; all else that it says goes to stderr."""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.words import duration

_UNITS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_TTL = re.compile(r"(\d{1,7})([smhd]?)")


def parser(prog: str) -> Parser:
    """Return the flags."""
    usage = f"{prog} [--node-id ID] [--ttl 1h] [--listen ADDR] [--json]"
    examples = [f"{prog} --ttl 30m", f"{prog} --node-id gpu-07 --listen 10.0.0.1"]
    result = Parser(prog, usage, "Print one line that lets another machine join, once. For administrators.", examples=examples)
    result.add_argument("--node-id", metavar="ID", help="the name that the machine joins under; default: its host name")
    result.add_argument("--ttl", default="1h", metavar="T", help="how long the line works, like 30m, 1h or 2d (default 1h)")
    result.add_argument(
        "--listen", action="append", default=[], metavar="ADDR", help="an address that the machine reaches; may be repeated"
    )
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Print the line to paste on the new machine."""
    ttl_s = seconds(values.ttl)
    with make_client() as client:
        token = client.join_token(node_id=values.node_id, ttl_s=ttl_s, listen=values.listen)
    if values.json:
        document(token)
        return 0
    tell(token.command)
    where = ", ".join(token.addresses)
    notes = [token.message] if token.message else []
    notes.append(f"Run this line on the new machine within {duration(token.expires_at - time.time())}; it works once and reaches {where}.")
    tell(*notes, file=sys.stderr)
    return 0


def seconds(text: str, flag: str = "--ttl") -> int:
    """Return a time span in seconds."""
    match = _TTL.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise InvalidRequest("bad-ttl", f"{flag} {text}: write a time like 30m, 1h or 2d.")
    return int(match[1]) * _UNITS[match[2]]
