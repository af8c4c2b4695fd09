"""`mgpu completion SHELL` prints a script for a shell's completion; the shells then call `mgpu __complete`.

Programs and subcommands are known here, flags and values in `client/completion.py`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.command import Command, MakeClient
from mgpu_jupyter.cli.main import COMMANDS as NAMED
from mgpu_jupyter.cli.main import PROGRAMS, command_of
from mgpu_jupyter.client.completion import OF_ENDED, Asked, Place, complete
from mgpu_jupyter.client.parser import Parser

SHELLS = ("bash", "zsh", "fish")
ACTIONS = SHELLS
NAMES = ("mgpu", *PROGRAMS, "mgpu_node", "mgpu_simple_node")

BASH = """\
# bash completion of mgpu:  source <(mgpu completion bash)
_mgpu_complete() {
    local mgpu=mgpu IFS=$'\\n'
    [[ $1 == */* ]] && mgpu=${1%/*}/mgpu
    COMPREPLY=($(command "$mgpu" __complete bash "${COMP_LINE:0:COMP_POINT}" "$2" 2>/dev/null))
    [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[:=] ]] && compopt -o nospace
    return 0
}
complete -o bashdefault -o default -F _mgpu_complete NAMES
"""
ZSH = """\
#compdef NAMES
# zsh completion of mgpu:  source <(mgpu completion zsh)
_mgpu_complete() {
    local -a found
    found=("${(@f)$(command mgpu __complete words "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    if [[ -n "$found" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _mgpu_complete NAMES
"""
FISH = """\
# fish completion of mgpu:  mgpu completion fish | source
function __mgpu_complete
    command mgpu __complete words (commandline -opc) (commandline -ct) 2>/dev/null
end
for name in NAMES
    complete -c $name -a '(__mgpu_complete)'
end
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}
HIDDEN = "__complete"

NODE_PROGRAMS = ("mgpu_node", "mgpu_simple_node")
HELP_S = 5.0
_FLAG = re.compile(r"(?<![\w-])--[a-z][\w-]*")
_BREAKS = "=:"


def parser(prog: str) -> Parser:
    """Return the flags."""
    examples = [
        f"source <({prog} bash)      # now; in ~/.bashrc for ever",
        f"source <({prog} zsh)       # the same for ~/.zshrc, below compinit",
        f"{prog} fish > ~/.config/fish/completions/mgpu.fish",
    ]
    about = "Print what teaches your shell to complete flags, subcommands, nodes and jobs of mgpu's commands."
    result = Parser(prog, f"{prog} {'|'.join(SHELLS)}", about, examples=examples)
    result.add_argument("action", nargs="?", metavar="SHELL", help=", ".join(SHELLS))
    return result


def run(values: argparse.Namespace, make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    """Print the script."""
    if values.action not in SHELLS:
        raise InvalidRequest("usage", f"Name your shell, as in `mgpu completion bash`: {', '.join(SHELLS)}.")
    tell(*SCRIPTS[values.action].replace("NAMES", " ".join(NAMES)).split("\n"), end="")
    return 0


def answer(words: Sequence[str], make_client: MakeClient) -> int:
    """Print the candidates for a shell: `bash LINE CURRENT`, or `words WORD…`."""
    if words[:1] == ["bash"] and len(words) == 3:
        found = for_bash(words[1], words[2], make_client)
    else:
        found = candidates(words[1:], make_client) if len(words) > 1 else []
    tell(*found, end="\n" if found else "")
    return 0


def candidates(words: Sequence[str], make_client: MakeClient) -> list[str]:
    """Return the completions of the last of `words`, which may be empty; the first is the program."""
    prog, rest = Path(words[0]).name, list(words[1:])
    current = rest[-1] if rest else ""
    if prog in NODE_PROGRAMS:
        return _fitting(_flags_of_help(words[0]), current)
    if prog != "mgpu":
        return _of_command(PROGRAMS[prog], prog, rest, make_client) if prog in PROGRAMS else []
    if len(rest) <= 1:
        return _fitting([*NAMED, "--help", "--version"], current)
    return _of_command(rest[0], f"mgpu {rest[0]}", rest[1:], make_client) if rest[0] in NAMED else []


def _of_command(command: str, prog: str, words: list[str], make_client: MakeClient) -> list[str]:
    found = command_of(command)
    parser = found.parser(prog)
    if found.parser_of_action is not None:
        action = next((word for word in words[:-1] if word in found.actions), None)
        if action is not None:
            parser, words = found.parser_of_action(prog, action), words[words.index(action) + 1 :]
    place = Place(
        before=words[:-1],
        current=words[-1],
        asked=Asked(make_client),
        actions=found.actions,
        ended=command in OF_ENDED,
    )
    return [one.text for one in complete(parser, place)]


def _fitting(words: Sequence[str], current: str) -> list[str]:
    return [word for word in words if word.startswith(current)]


def _flags_of_help(program: str) -> list[str]:
    """Return the flags of a program that must not be imported here, from its help text."""
    found = shutil.which(program)
    if found is None:
        return []
    try:
        text = subprocess.run(
            [found, "--help"], capture_output=True, text=True, timeout=HELP_S, check=False
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return []
    return sorted(set(_FLAG.findall(text)))


def words_of_line(line: str) -> list[str]:
    """Return the words of a line as typed so far; the last may be empty, and a quotation may be open."""
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


def for_bash(line: str, current: str, make_client: MakeClient) -> list[str]:
    """Return the completions in bash's form: it replaces only what follows the last = or :."""
    words = words_of_line(line)
    kept = 0 if current and current[-1] in _BREAKS else len(current)
    cut = max(0, len(words[-1]) - kept)
    return [one[cut:] for one in candidates(words, make_client)]


COMMANDS = {"completion": Command(parser, run, actions=SHELLS)}
