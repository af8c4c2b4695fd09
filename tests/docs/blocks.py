"""Code blocks of the documents, and whether what they show is what the programs take. Runs nothing.

A command of a console block is read by the parser that would read it; a cell is turned into Python as IPython
does and compiled; settings are settings that there are. A language without a check here is refused.
"""

from __future__ import annotations

import ast
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement
from traitlets.config import Config

from mgpu_agent import node_flags as agent
from mgpu_jupyter.cli import client, job_files
from mgpu_jupyter.cli.main import COMMANDS, PROGRAMS, command_of
from mgpu_jupyter.client.jobfile import read_job_file
from mgpu_jupyter.client.line import read_line
from mgpu_jupyter.client.request import parse
from mgpu_jupyter.notebook.parsers import PARSERS
from mgpu_jupyter.server.app import MgpuApp
from mgpu_jupyter.server.cluster_file import parse_cluster_file

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
_FENCE = re.compile(r"^```(?P<language>[^\n`]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^(?:\w+)?[$#] +(?P<command>.+)$")
_ELLIPSIS = "…"


@dataclass(frozen=True)
class Block:
    """One code block and where it is."""

    place: str
    language: str
    text: str


def documents() -> list[Path]:
    """Return all documents whose blocks are checked."""
    own = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
    return own + sorted((ROOT / "mgpu_jupyter/docs").rglob("*.md"))


def blocks(path: Path) -> Iterator[Block]:
    """Yield the blocks of a document."""
    text = path.read_text()
    for found in _FENCE.finditer(text):
        line = text.count("\n", 0, found.start()) + 1
        yield Block(f"{path.relative_to(ROOT)}:{line}", found["language"].strip(), found["text"])


def commands(block: Block) -> list[str]:
    """Return what is typed in a console block; the rest is what is answered."""
    return [found["command"] for line in block.text.splitlines() if (found := _PROMPT.match(line))]


def check(block: Block) -> None:
    """Raise when a block shows what is not so."""
    if block.language.startswith("{toctree}"):
        return  # Sphinx reads it
    CHECKS[block.language](block.text) if block.language != "console" else _check_console(block)


def _check_console(block: Block) -> None:
    typed = commands(block)
    assert typed, "a console block in which nothing is typed"
    for line in typed:
        words = shlex.split(line, comments=True)
        check_command(words[: next((at for at, word in enumerate(words) if word in ("<", ">", "|")), None)])


def check_command(words: Sequence[str]) -> None:
    """Read the words of a command as its program does."""
    program, *rest = words
    if "=" in program:  # a variable before it
        return check_command(rest)
    if program == "mgpu" and rest[0] in ("--version", "--help"):
        return None
    if program == "mgpu":
        assert rest[0] in COMMANDS, f"there is no mgpu {rest[0]}"
        return _read(rest[0], f"mgpu {rest[0]}", rest[1:])
    if program in PROGRAMS:
        return _read(PROGRAMS[program], program, rest)
    return OTHERS[program](rest)


def _read(command: str, prog: str, words: Sequence[str]) -> None:
    if command == "srun":
        parse(words, environ={}, prog=prog)
    elif command == "sbatch":
        job_files.read_line(words)
    elif command == "client":
        client.read(prog, words)
    else:
        own, _, behind = _cut(words)
        command_of(command).parser(prog).read(own)
        _check_settings(behind)


def _cut(words: Sequence[str]) -> tuple[list[str], bool, list[str]]:
    at = list(words).index("--") if "--" in words else len(words)
    return list(words[:at]), at < len(words), list(words[at + 1 :])


def _check_settings(words: Sequence[str]) -> None:
    """Every `--MgpuApp.name=…` names a setting."""
    named = re.findall(r"--MgpuApp\.(\w+)", " ".join(words))
    assert not set(named) - set(MgpuApp.class_traits(config=True)), words


def _check_make(words: Sequence[str]) -> None:
    targets = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert [word for word in words if "=" not in word and word not in targets] == []


def _check_pip(words: Sequence[str]) -> None:
    action, *rest = words
    assert action == "install"
    for text in (word for word in rest if not word.startswith("-")):
        wanted = Requirement(text)
        assert wanted.name == PROJECT["name"]
        assert not wanted.extras - set(PROJECT["optional-dependencies"])


def _check_node(words: Sequence[str]) -> None:
    agent.parser().parse_args([word.replace(_ELLIPSIS, "x") for word in words])


def _check_jupyter(words: Sequence[str]) -> None:
    assert words[0] in ("lab", "server", "notebook")
    _check_settings(words[1:])


def _check_source(words: Sequence[str]) -> None:
    """`source <(COMMAND)`."""
    inner = re.fullmatch(r"<\((.+)\)", " ".join(words))
    assert inner
    check_command(inner[1].split())


OTHERS: dict[str, Callable[[Sequence[str]], None]] = {
    "make": _check_make,
    "pip": _check_pip,
    "jupyter": _check_jupyter,
    "source": _check_source,
    "mgpu_node": _check_node,
    "mgpu_simple_node": _check_node,
}
"""Programs that may be typed in a document, beside those of the command line."""


def _check_python(text: str) -> None:
    magic, _, body = text.partition("\n")
    if magic.startswith("%%mgpu_srun"):
        parse(read_line(magic.removeprefix("%%mgpu_srun")), cell=body, environ={}, in_notebook=True)
        return _check_python(body)
    for line in text.splitlines():
        name, _, rest = line.partition("%")[2].partition(" ")
        if line.startswith("%mgpu_srun"):
            parse(read_line(rest), environ={}, in_notebook=True)
        elif line.startswith("%") and name in PARSERS:
            PARSERS[name](f"%{name}").read(shlex.split(rest))
        else:
            assert not line.startswith("%") or name == "load_ext", line
    made = TransformerManager().transform_cell(text)
    compiled = compile(made, "cell", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    if text.startswith("c.MgpuApp."):
        config = Config()
        exec(compiled, {"c": config})
        assert not set(config.MgpuApp) - set(MgpuApp.class_traits(config=True))
    return None


def _check_bash(text: str) -> None:
    """A job file: the shell can read it, and so can `mgpu_sbatch`."""
    subprocess.run(["bash", "-n"], input=text, text=True, check=True)
    if "#MGPU" in text or "#SBATCH" in text:
        environ = dict.fromkeys(re.findall(r"--export[ =](\w+)", text), "set")
        assert read_job_file(text, "job.sh", environ=environ).findings == ()


def _check_yaml(text: str) -> None:
    assert yaml.safe_load(text)
    parse_cluster_file(text, "the document")


CHECKS: dict[str, Callable[[str], object]] = {
    "python": _check_python,
    "bash": _check_bash,
    "yaml": _check_yaml,
    "json": json.loads,
    "text": str,
}
