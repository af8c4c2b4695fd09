"""`mgpu_queue` in terminals of 80 and 120 columns: nothing of id, state and reason is lost."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pexpect
import pytest

from mgpu_agent.protocol.text import width
from mgpu_jupyter.client.words import middle
from tests.cli.narrow_program import LONG_USER, REASON

ROOT = Path(__file__).parents[2]
COLOURS = re.compile(r"\x1b\[[\d;]*m")
LIMIT_S = 60


def shown(columns: int, *words: str) -> list[str]:
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LD_LIBRARY_PATH") if name in os.environ}
    env = {**kept, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "PYTHONPATH": str(ROOT)}
    child = pexpect.spawn(
        sys.executable,
        ["-m", "tests.cli.narrow_program", *words],
        env=env,
        cwd=str(ROOT),
        dimensions=(60, columns),
        encoding="utf-8",
        timeout=LIMIT_S,
    )
    text = child.read()
    child.close()
    assert child.exitstatus == 0, text
    return [line.rstrip("\r") for line in COLOURS.sub("", text).split("\n")]


@pytest.mark.parametrize("columns", [80, 120])
def test_what_matters_fits(columns: int) -> None:
    lines = shown(columns)

    assert max(map(width, lines)) <= columns
    waiting = lines.index("--- Queue ---")
    heads, running = lines[1].split(), lines[2]
    assert heads == ["Job", "State", "User", "Size", "Time", "Name", "Command"]
    assert re.match(
        r"RUNN0001  running  some\S*…\S*\.org +6×8 +\d+ d \d+ h  a-n\S+…\S+90  pyth.*….*last$", running
    )
    below = " ".join(line.strip() for line in lines[3:waiting])
    assert below == "on " + ", ".join(f"gpu-node-{number:03}" for number in range(6))
    first, second = (at for at, line in enumerate(lines) if line.startswith(("WAIT0001", "ARRA0000")))
    assert re.match(r"WAIT0001 +queued +some\S*…\S*\.org +1×2 +– +名\S*…\S*前 +pyt.*…", lines[first])
    assert " ".join(line.strip() for line in lines[first + 1 : second]) == f"1st in queue: {REASON}"
    end = lines.index("--- Cluster Status ---")
    ids = [lines[second].split()[0], lines[second + 1]]
    assert "".join(ids) == "ARRA0000[100000,100002,100004,…,100012]"
    assert lines[second].split()[1:4] == ["queued", "me", "7×2"]
    told = " ".join(line.strip() for line in lines[second + 2 : end])
    assert told == f"2nd in queue: 7 jobs of the array wait; the first of them: {REASON}"


def test_the_same_with_more_where_there_is_more_room() -> None:
    (narrow,), (wide,) = (
        [line for line in shown(columns) if line.startswith("RUNN0001")] for columns in (80, 120)
    )
    assert width(narrow) <= 80 < width(wide) <= 120


@pytest.mark.parametrize(
    ("text", "room", "cut"),
    [
        ("abc", 3, "abc"),
        ("abcdef", 5, "ab…ef"),
        ("abcdef", 4, "ab…f"),
        ("名前名前", 6, "名…前"),
        (LONG_USER, 9, "some….org"),
        ("abc", 1, "…"),
    ],
)
def test_what_is_too_long_is_cut_in_its_middle(text: str, room: int, cut: str) -> None:
    assert middle(text, room) == cut
