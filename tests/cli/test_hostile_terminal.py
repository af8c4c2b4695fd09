"""Whatever a server, its nodes and its users say does nothing in a real terminal but be read, by any command;
nor in a pipe.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest

from mgpu_agent.protocol.text import MARKS
from tests.cli.hostile_program import COMMANDS
from tests.e2e.screen import Screen

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
OWN_COLOURS = re.compile(r"\x1b\[(?:0|1|2|3[0-7])(?:;(?:0|1|2|3[0-7]))*m")
PROGRAM = [sys.executable, "-m", "tests.cli.hostile_program"]


def environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    return {
        **kept,
        "TERM": "xterm-256color",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def wrong(text: str) -> list[str]:
    """Return what a terminal would do something with, each with what is around it."""
    found, marks = [], 0
    for at, char in enumerate(text):
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if marks > MARKS or not (char.isprintable() or char in "\n\t"):
            found.append(repr(text[max(0, at - 30) : at + 30]))
    return found


def done(text: str) -> list[str]:
    return [
        line.rpartition(" ")[0].removeprefix("=== ")
        for line in text.split("\n")
        if line.startswith(("=== mgpu", "=== errors"))
    ]


@pytest.mark.timeout(120)
def test_every_command_in_a_terminal(tmp_path: Path) -> None:
    screen = Screen([*PROGRAM, str(tmp_path)], environment(), ROOT, rows=50, columns=160)
    try:
        assert screen.wait(100) == 0
    finally:
        screen.close()
    shown = re.sub(r"\r+\n", "\n", screen.rest())
    assert done(shown) == [*COMMANDS, "errors"]
    assert OWN_COLOURS.search(shown) is not None
    assert wrong(OWN_COLOURS.sub("", shown)) == []


@pytest.mark.timeout(120)
def test_every_command_in_a_pipe(tmp_path: Path) -> None:
    words = [*PROGRAM, str(tmp_path)]
    ran = subprocess.run(words, env=environment(), cwd=ROOT, capture_output=True, timeout=100, check=True)
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert done(out) == [*COMMANDS, "errors"]
    assert (wrong(out), wrong(err)) == ([], [])
    assert out.split("\n").count("--- Queue ---") == 3  # one for each listing, none that a name made
    assert "could not be read" not in out + err
