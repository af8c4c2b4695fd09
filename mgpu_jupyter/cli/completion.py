"""`mgpu completion bash|zsh|fish`: prints what teaches a shell to complete mgpu's commands. The shells ask `mgpu __complete`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.main import PROGRAMS
from mgpu_jupyter.client.client import Client
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


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:  # noqa: ARG001 - a command like the others
    """Print the script."""
    if values.action not in SHELLS:
        raise InvalidRequest("usage", f"Name your shell, as in `mgpu completion bash`: {', '.join(SHELLS)}.")
    tell(*SCRIPTS[values.action].replace("NAMES", " ".join(NAMES)).split("\n"), end="")
    return 0


def answer(words: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Print the candidates for a shell: `bash LINE CURRENT`, or `words WORD…`."""
    from mgpu_jupyter.cli.complete import candidates, for_bash

    if words[:1] == ["bash"] and len(words) == 3:
        found = for_bash(words[1], words[2], make_client)
    else:
        found = candidates(words[1:], make_client) if len(words) > 1 else []
    tell(*found, end="\n" if found else "")
    return 0
