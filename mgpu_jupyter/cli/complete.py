"""What may stand next on a command line, as the shells' completion asks for it: programs and subcommands here, the rest in `client`."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from mgpu_jupyter.cli.main import COMMANDS, PROGRAMS, command_module, parser_of
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.completion import OF_ENDED, Asked, Place, complete

NODE_PROGRAMS = ("mgpu_node", "mgpu_simple_node")
HELP_S = 5.0
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_BREAKS = "=:"


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
    place = Place(
        before=words[:-1],
        current=words[-1],
        asked=Asked(make_client),
        actions=tuple(getattr(module, "ACTIONS", ())),
        ended=command in OF_ENDED,
    )
    return [one.text for one in complete(parser, place)]


def _fitting(words: Sequence[str], current: str) -> list[str]:
    return [word for word in words if word.startswith(current)]


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
