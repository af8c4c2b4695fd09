"""What may stand next on a command line: flags, subcommands, and names that only the master knows. Asked by the shells' completion.

Never says what went wrong: no master simply means no names.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.cli.main import COMMANDS, PROGRAMS, command_module, parser_of
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.timeouts import Timeouts
from mgpu_jupyter.model.policies import MEANINGS
from mgpu_jupyter.model.waits import After

QUICK = Timeouts(connect_s=1.0, request_s=2.0, retry_s=0.0)
NODE_PROGRAMS = ("mgpu_node", "mgpu_simple_node")
RECENT = 50
OF_ENDED = frozenset(("logs", "attach", "rerun", "explain", "trace", "client"))
"""Commands that take jobs which are over as well."""
HELP_S = 5.0
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_BREAKS = "=:"


class Asked:
    """The names that the master knows, fetched when they are wanted."""

    def __init__(self, make_client: Callable[[], Client], command: str) -> None:
        self._make = make_client
        self._command = command

    def nodes(self) -> list[str]:
        """Return the names of nodes."""
        return self._ask(lambda client: [node.id for node in client.nodes()])

    def jobs(self) -> list[str]:
        """Return ids of jobs that the command could mean."""
        state = None if self._command in OF_ENDED else "active"
        return self._ask(lambda client: [str(job.id) for job in client.jobs(state=state, limit=RECENT)])

    def users(self) -> list[str]:
        """Return users who have jobs."""
        return self._ask(lambda client: sorted({job.snapshot.user for job in client.jobs(limit=RECENT) if job.snapshot}))

    def site(self, what: str) -> list[str]:
        """Return the names of partitions, accounts, classes of service or strategies."""
        return self._ask(lambda client: list(getattr(client.cluster(), what)))

    def _ask(self, question: Callable[[Client], list[str]]) -> list[str]:
        try:
            with self._make() as client:
                client.use(QUICK)
                return question(client)
        except MgpuError:
            return []


def candidates(words: Sequence[str], make_client: Callable[[], Client]) -> list[str]:
    """Return what the last of `words`, which may be empty, could become; the first is the program."""
    prog, rest = Path(words[0]).name, list(words[1:])
    current = rest[-1] if rest else ""
    if prog in NODE_PROGRAMS:
        return _fitting(_flags_of_help(words[0]), current)
    if prog != "mgpu":
        return _of_command(PROGRAMS[prog], prog, rest, make_client) if prog in PROGRAMS else []
    if len(rest) <= 1:
        return _fitting([*COMMANDS, "--help", "--version"], current)
    return _of_command(rest[0], f"mgpu {rest[0]}", rest[1:], make_client) if rest[0] in COMMANDS else []


def _of_command(command: str, prog: str, words: list[str], make_client: Callable[[], Client]) -> list[str]:
    module = command_module(command)
    parser = parser_of(command, prog)
    if hasattr(module, "parser_of_action"):
        action = next((word for word in words[:-1] if word in module.ACTIONS), None)
        if action is not None:
            parser, words = module.parser_of_action(prog, action), words[words.index(action) + 1 :]
    current, before = words[-1], words[:-1]
    if "--" in before:
        return []
    asked = Asked(make_client, command)
    flag, equals, value = current.partition("=")
    if equals and flag.startswith("--"):
        return [f"{flag}={one}" for one in _values(_action(parser, flag), value, asked)]
    if before and parser.takes_value(before[-1]):
        return _values(_action(parser, before[-1]), current, asked)
    if current.startswith("-"):
        return _fitting(parser.flag_names(), current)
    return _positional(parser, before, current, asked, tuple(getattr(module, "ACTIONS", ())))


def _positional(parser: Parser, before: Sequence[str], current: str, asked: Asked, actions: tuple[str, ...]) -> list[str]:
    """Return what may stand in the place of a word that is no flag."""
    places = [action for action in parser.actions if not action.option_strings]
    if not places:
        return []
    taken = sum(not word.startswith("-") and not (at and parser.takes_value(before[at - 1])) for at, word in enumerate(before))
    action = places[min(taken, len(places) - 1)]
    if taken >= len(places) and action.nargs not in ("*", "+"):
        return []
    if action.dest == "action":
        return _fitting([str(one) for one in action.choices or actions], current)
    return _values(action, current, asked)


def _values(action: argparse.Action | None, current: str, asked: Asked) -> list[str]:  # noqa: PLR0911 - one branch per kind of name
    """Return values that a flag or word could have."""
    if action is None:
        return []
    if action.choices:
        return _fitting([str(one) for one in action.choices], current)
    match action.dest:
        case "nodelist" | "exclude" | "prefer":
            begun, comma, last = current.rpartition(",")
            return [f"{begun}{comma}{one}" for one in _fitting(asked.nodes(), last) if one not in begun.split(",")]
        case "node_gpu_ids":
            begun, semicolon, last = current.rpartition(";")
            return [f"{begun}{semicolon}{one}:" for one in _fitting(asked.nodes(), last)]
        case "node_id":
            return _fitting(asked.nodes(), current)
        case "dependency":
            begun, colon, last = current.rpartition(":")
            return [f"{begun}:{one}" for one in _fitting(asked.jobs(), last)] if colon else [f"{one}:" for one in _fitting(After, current)]
        case "partition" | "account":
            return _fitting(asked.site(f"{action.dest}s"), current)
        case "qos":
            return _fitting(asked.site("qos"), current)
        case "policy":
            return _fitting(
                [*MEANINGS] if action.metavar == "NAME" and "queue" in (action.help or "") else asked.site("strategies"), current
            )
        case "user":
            return _fitting(asked.users(), current)
        case "job" | "jobs":
            return _fitting(asked.jobs(), current.upper())
    return []


def _fitting(words: Sequence[str] | type[After], current: str) -> list[str]:
    return [str(word) for word in words if str(word).startswith(current)]


def _action(parser: Parser, flag: str) -> argparse.Action | None:
    return next((action for action in parser.actions if flag in action.option_strings), None)


def _flags_of_help(program: str) -> list[str]:
    """Return the flags of a program that is not ours to import, as its help names them."""
    found = shutil.which(program)
    if found is None:
        return []
    try:
        text = subprocess.run([found, "--help"], capture_output=True, text=True, timeout=HELP_S, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted(set(_FLAG.findall(text)))


# --- bash ----------------------------------------------------------------------------------------


def words_of_line(line: str) -> list[str]:
    """Return the words of a line as typed so far; the last may be empty, and a quotation mark may still be open."""
    words: list[str] = []
    word: str | None = None
    quote = ""
    escaped = False
    for char in line:
        if escaped:
            word, escaped = (word or "") + char, False
        elif char == "\\" and quote != "'":
            escaped = True
        elif quote:
            word, quote = ((word or ""), "") if char == quote else ((word or "") + char, quote)
        elif char in "'\"":
            word, quote = word or "", char
        elif char.isspace():
            words += [] if word is None else [word]
            word = None
        else:
            word = (word or "") + char
    return [*words, word or ""]


def for_bash(line: str, current: str, make_client: Callable[[], Client]) -> list[str]:
    """Return the candidates as bash wants them: it breaks words at = and :, and replaces only what stands behind the last break."""
    words = words_of_line(line)
    kept = 0 if current and current[-1] in _BREAKS else len(current)
    cut = max(0, len(words[-1]) - kept)
    return [one[cut:] for one in candidates(words, make_client)]
