"""How many processes a request means on each node, and whether its command starts the ranks of its node by
itself (torchrun, accelerate, deepspeed), so that one on each node is enough. Pure.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.units import groups_of_request

_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_SHELLS = frozenset(("sh", "bash", "dash", "zsh"))
_OPERATORS = frozenset((";", "&&", "||", "|", "&", "(", ")", "\n"))
_BEFORE = frozenset(("exec", "time", "nohup", "env", "command"))
_IN_TEXT = re.compile(
    r"(?<![\w-])(accelerate\s+launch|accelerate-launch|-m\s+accelerate\.commands\.launch)(?![\w.-])"
)
_MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate",
    "deepspeed.launcher.runner": "deepspeed",
}


class Launcher(StrEnum):
    """Programs that start several processes of a training on one node."""

    TORCHRUN = "torchrun"
    ACCELERATE = "accelerate"
    DEEPSPEED = "deepspeed"


def launcher_of(spec: JobSpec) -> Launcher | None:
    """Return the launcher that a request runs, or None for a program that is one rank itself."""
    if spec.script is not None:
        first, _, _ = spec.script.partition("\n")
        return _of_words(first[2:].split()) if first.startswith("#!") else None
    return _of_words(spec.command)


def with_flags(command: tuple[str, ...], flags: Sequence[str]) -> tuple[str, ...]:
    """Return a command that runs `accelerate launch` with these flags before its own, so that its own take
    precedence.
    """
    for position, word in enumerate(command):
        if is_launch(command[: position + 1]):
            return (*command[: position + 1], *flags, *command[position + 1 :])
        found = _IN_TEXT.search(word) if " " in word else None
        if found is not None:
            return (
                *command[:position],
                f"{word[: found.end()]} {shlex.join(flags)}{word[found.end() :]}",
                *command[position + 1 :],
            )
    return command


def is_launch(words: Sequence[str]) -> bool:
    """Tell whether the flags of `accelerate launch` follow these words."""
    before, last = words[-2] if len(words) > 1 else "", words[-1]
    if posixpath.basename(last) == "accelerate-launch":
        return True
    return (last == "launch" and posixpath.basename(before) == "accelerate") or (
        last == "accelerate.commands.launch" and before == "-m"
    )


def _of_words(words: Sequence[str]) -> Launcher | None:
    rest = list(words)
    while rest and (_ASSIGNMENT.match(rest[0]) or posixpath.basename(rest[0]) in _BEFORE or rest[0] == "-S"):
        del rest[0]
    if not rest:
        return None
    name = posixpath.basename(rest[0])
    if name in _SHELLS:
        return _of_shell(rest[1:])
    if _PYTHON.fullmatch(name):
        return _of_python(rest[1:])
    if name == "accelerate":
        return Launcher.ACCELERATE if rest[1:2] == ["launch"] else None
    if name in ("accelerate-launch", "torchrun", "deepspeed"):
        return Launcher(name.removesuffix("-launch"))
    return None


def _of_python(words: Sequence[str]) -> Launcher | None:
    """Look for `-m MODULE` before the first word that is not an option."""
    for position, word in enumerate(words):
        if word == "-m":
            module = words[position + 1] if position + 1 < len(words) else ""
            return Launcher(_MODULES[module]) if module in _MODULES else None
        if not word.startswith("-"):
            return None
    return None


def _of_shell(words: Sequence[str]) -> Launcher | None:
    """Look at each command of the text after `-c`."""
    text = next((after for option, after in pairwise(words) if re.fullmatch("-[a-z]*c", option)), None)
    if text is None:
        return None
    lexer = shlex.shlex(text.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    command: list[str] = []
    try:
        for token in (*lexer, ";"):
            if token not in _OPERATORS:
                command.append(token)
                continue
            if (found := _of_words(command)) is not None:
                return found
            command = []
    except ValueError:  # an unclosed quote: the shell will say so
        return None
    return None


def tasks_on(spec: JobSpec, gpus: int) -> int:
    """Return how many processes mgpu starts on a node that gives this many GPUs."""
    if spec.mpi or (spec.distributed and launcher_of(spec) is not None):
        return 1
    return workers_on(spec, gpus)


def workers_on(spec: JobSpec, gpus: int) -> int:
    """Return how many ranks work on a node that gives this many GPUs, whoever starts them."""
    if spec.ntasks_per_node is not None:
        return spec.ntasks_per_node
    return max(gpus, 1) if spec.distributed or spec.mpi else 1


def meets(spec: JobSpec) -> bool:
    """Tell whether the processes of a request must find each other, so that its nodes meet before anything
    starts.
    """
    return spec.distributed or spec.mpi


def tasks_of(spec: JobSpec) -> int:
    """Return how many processes mgpu starts for a request on all its nodes."""
    return sum(tasks_on(spec, group.need.gpus) * group.count for group in groups_of_request(spec))
