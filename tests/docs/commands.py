"""The pages about the command line and the magics, made from the parsers that read them."""

from __future__ import annotations

import argparse
import re

from mgpu_agent import node_flags as agent
from mgpu_jupyter.cli import client
from mgpu_jupyter.cli.main import COMMANDS, PROGRAMS, command_of
from mgpu_jupyter.client.flags import ALL
from mgpu_jupyter.notebook.parsers import CELL_EXAMPLES, PARSERS
from tests.docs.fields import cell, table

COMMANDS_HEAD = """# Commands

Written by `make fmt` from the parsers of the command line; a test compares. What they are for, by task:
[Work in a terminal](../howto/terminal.md). Every command has `--help`, which says the same.

"""
MAGICS_HEAD = """# Magics

Written by `make fmt` from the parsers of the magics; a test compares. How to work with them:
[Notebooks](../notebook.md). `%load_ext mgpu_jupyter` loads them; `?` behind a magic shows what stands here.
"""
OF_REQUESTS = frozenset(name for flag in ALL for name in flag.names)


def commands_page() -> str:
    """Return the page about the command line."""
    parts = [
        COMMANDS_HEAD,
        table("command", "does", rows=[(f"`mgpu {name}`", cell(text)) for name, text in COMMANDS.items()]),
    ]
    for name in COMMANDS:
        others = [program for program, command in PROGRAMS.items() if command == name]
        parts.append(f"\n## mgpu {name}\n")
        if others:
            parts.append(f"\nAlso {', '.join(f'`{one}`' for one in others)}.\n")
        parts.append(_of(command_of(name).parser(f"mgpu {name}"), takes_requests=name in ("srun", "sbatch")))
        if name == "client":
            parts += [
                f"\n### mgpu client {one}\n{_of(client.parser_of_action('mgpu client', one))}"
                for one in client.ACTIONS
            ]
    parts.append("\n## mgpu_node\n\nAlso `mgpu_simple_node`.\n")
    parts.append(_of(agent.parser()))
    return "".join(parts)


def magics_page() -> str:
    """Return the page about the magics."""
    parts = [MAGICS_HEAD]
    for name, make in PARSERS.items():
        parts.append(f"\n## %{name}\n")
        parts.append(_of(make(f"%{name}"), takes_requests=name == "mgpu_srun", language="python"))
        if name == "mgpu_srun":
            rows = [
                re.split(r" {2,}", line.strip(), maxsplit=1) for line in CELL_EXAMPLES.strip().splitlines()
            ]
            parts.append(
                "\nIn a cell:\n\n"
                + table("first line", "means", rows=[(f"`{line}`", cell(text)) for line, text in rows])
            )
    return "".join(parts)


def _of(parser: argparse.ArgumentParser, *, takes_requests: bool = False, language: str = "console") -> str:
    usage = (parser.usage or "").replace("%%", "%")
    parts = [f"\n```text\n{usage}\n```\n" if usage else "", f"\n{_plain(parser.description or '')}\n"]
    if takes_requests:
        parts.append("\nIts flags are those [of a request](../flags.md).\n")
    rows = [
        _row(one)
        for one in parser._actions
        if one.dest != "help" and not (takes_requests and _is_of_requests(one))
    ]
    parts.append("\n" + table("flag", "means", rows=rows) if rows else "")
    more, *rest = re.split(r"(?m)^examples?:\n", parser.epilog or "")
    examples = "".join(rest)
    if more.strip():
        parts.append(f"\n{_plain(more)}\n")
    if lines := [line.strip() for line in examples.splitlines() if line.strip()]:
        shown = "\n".join(f"$ {line}" if language == "console" else line for line in lines)
        parts.append(f"\n```{language}\n{shown}\n```\n")
    return "".join(parts)


def _is_of_requests(action: argparse.Action) -> bool:
    return bool(OF_REQUESTS.intersection(action.option_strings))


def _row(action: argparse.Action) -> tuple[str, str]:
    named = "|".join(map(str, action.choices)) if action.choices else action.dest.upper()
    value = action.metavar if isinstance(action.metavar, str) else named
    if not action.option_strings:
        return f"`{value}`", cell(_plain(action.help or ""))
    first, *others = sorted(action.option_strings, key=lambda name: not name.startswith("--"))
    shown = f"{first} {value}" if action.nargs != 0 and value else first
    names = [f"`{shown}`", *(f"`{name}`" for name in others)]
    return cell(", ".join(names)), cell(_plain(action.help or ""))


def _plain(text: str) -> str:
    """Return text of a help message as Markdown that shows just these signs."""
    text = " ".join(text.replace("%%", "%").split())
    return "".join(
        part if part.startswith("`") else re.sub(r"([*_<\[\]{}])", r"\\\1", part)
        for part in re.split(r"(`[^`]*`)", text)
    )
