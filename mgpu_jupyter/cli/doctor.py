"""`mgpu doctor`: examines the set-up and prints what to mend."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.command import Command, MakeClient, add_json
from mgpu_jupyter.cli.show import document, on_terminal
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.doctor import QUICK, Level, SetupFinding, examine
from mgpu_jupyter.client.parser import Parser

_MARKS: dict[Level, str] = {"ok": "ok  ", "warning": "note", "error": "BAD "}
_COLOURS: dict[Level, str] = {"ok": "green", "warning": "yellow", "error": "red"}


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(
        prog,
        f"{prog} [--json]",
        "Look at this machine, the server and its nodes, and say what to mend. Exit code 1 when something "
        "is wrong.",
    )
    add_json(result)
    return result


def run(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Print one line for each finding."""
    quick: Callable[[], Client] = (lambda: Client(timeouts=QUICK)) if make_client is Client else make_client
    found: list[SetupFinding] = []
    for finding in examine(os.environ, quick):
        found.append(finding)
        if not values.json:
            _show(finding)
    bad = sum(finding.level == "error" for finding in found)
    if values.json:
        document({"findings": found, "errors": bad})
    else:
        tell("All is well." if not bad else f"{bad} {'thing is' if bad == 1 else 'things are'} wrong.")
    return 1 if bad else 0


def _show(finding: SetupFinding) -> None:
    fix = [f"      -> {finding.fix}"] if finding.fix else []
    if not on_terminal():
        tell(f"{_MARKS[finding.level]}  {finding.text}", *fix)
        return
    from rich.console import Console
    from rich.text import Text

    line = Text(_MARKS[finding.level], style=_COLOURS[finding.level])
    Console(highlight=False).print(
        line.append("\n".join([f"  {finding.text}", *fix]), style=""), soft_wrap=True
    )


COMMANDS = {"doctor": Command(parser, run)}
