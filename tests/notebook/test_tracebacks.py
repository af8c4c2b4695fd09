"""A cell that failed on a node is shown as one that failed here: once, drawn by IPython, and as text."""

from __future__ import annotations

import json
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from IPython.core.interactiveshell import InteractiveShell
from msgspec.structs import replace

from mgpu_agent.process.cells import RUNNER
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client.displays import Display, Splitter
from mgpu_jupyter.client.mock import Play, Say
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import JobFailed
from mgpu_jupyter.notebook.rank_errors import RankErrors
from mgpu_jupyter.notebook.tracebacks import KIND, Drawing, read
from tests import hostile
from tests.notebook.conftest import Shell
from tests.notebook.test_header import a_job


@pytest.fixture(autouse=True)
def _the_shell(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython names cells of the one shell that it knows of."""
    for module in ("ultratb", "tbtools"):
        monkeypatch.setattr(f"IPython.core.{module}.get_ipython", lambda: shell.shell)


Captured = pytest.CaptureFixture[str]
KEY = "8-key"
HOME = os.path.expanduser("~")
FILE = re.compile(r"File (\S+):(\d+)")
DIVIDES = """x = 1
def half(y, *more, **named):
    return y / 0

half(x)
print("never")
"""
SOURCES = {
    "a function": DIVIDES,
    "one line": "1 / 0",
    "a method, and lines that belong together": "class A:\n    def go(self):\n        return int(\n"
    "            'x'\n        )\nA().go()",
    "a cause": "import json\ntry:\n    json.loads('{')\nexcept ValueError as error:\n"
    "    raise KeyError('k') from error",
    "a context": "try:\n    1 / 0\nfinally:\n    raise KeyError('k')",
    "no context": "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('k') from None",
    "no Python": "x = 1\nprint(x\ny = 2",
    "a recursion": "def f(n):\n    return f(n - 1) if n else 1 / 0\nf(20)",
    "notes": "error = ValueError('no')\nerror.add_note('one\\ntwo')\nraise error",
    "many lines": "raise ValueError('one\\n  two\\nthree')",
    "nothing to say": "raise ValueError",
}


def told(directory: Path, source: str, key: str = KEY) -> bytes:
    """Return what a cell that fails writes to stderr on a node."""
    path = directory / "cell.py"
    path.write_text(source)
    done = subprocess.run(
        [sys.executable, "-u", RUNNER, str(path)],
        env={**os.environ, "MGPU_DISPLAY_KEY": key},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    return done.stderr


def shown(directory: Path, source: str) -> dict[str, Any]:
    """Return the one display that a cell leaves when it fails."""
    (piece,) = Splitter().feed(told(directory, source).decode(), KEY)
    assert isinstance(piece, Display)
    assert piece.kind == "error"
    return piece.data


def plain(lines: list[str]) -> str:
    """Return lines of IPython without what differs between a frame that ran and one that did not."""
    text = "\n".join(lines)
    for code in ("\x1b[30;43m", "\x1b[39;49m"):
        text = text.replace(code, "")
    return text


def test_it_is_drawn_as_a_local_error(shell: Shell, tmp_path: Path, capsys: Captured) -> None:
    local: InteractiveShell = shell.shell
    here, there = {}, {}
    for name, source in SOURCES.items():
        local.execution_count = 8
        capsys.readouterr()
        local.run_cell(source, store_history=True)  # type: ignore[no-untyped-call]
        here[name] = FILE.sub(r"File \1, line \2", capsys.readouterr().out.rstrip().replace("~", HOME))
        there[name] = "\n".join(Drawing(local)(read(shown(tmp_path, source)))).rstrip()
    assert there == here
    assert all("Cell In[8], line" in text for text in there.values())
    lines = Drawing(local)(read(shown(tmp_path, "compile('a b', '<text>', 'exec')")))
    assert "\n".join(lines).split("\n") == [
        "Traceback (most recent call last):",
        "",
        "  Cell In[8], line 1",
        "    compile('a b', '<text>', 'exec')",
        "",
        "  File <text>, line 1",
        "    a b",
        "      ^",
        "SyntaxError: invalid syntax",
        "",
    ]


def test_colours_are_those_of_the_shell(shell: Shell, tmp_path: Path, capsys: Captured) -> None:
    shell.shell.colors = "linux"
    shell.shell.execution_count = 8
    capsys.readouterr()
    shell.shell.run_cell("x = 'a'\n1 / 0", store_history=True)  # type: ignore[no-untyped-call]
    here = plain(capsys.readouterr().out.splitlines())
    there = plain(Drawing(shell.shell)(read(shown(tmp_path, "x = 'a'\n1 / 0"))))
    assert "\x1b[" in there
    assert there.splitlines()[:4] == here.splitlines()[:4]
    shell.shell.run_line_magic("xmode", "Minimal")
    assert plain(Drawing(shell.shell)(read(shown(tmp_path, "1 / 0")))).endswith("division by zero\n")


def test_nothing_is_left_where_python_keeps_lines(shell: Shell, tmp_path: Path) -> None:
    before = dict(linecache.cache)
    Drawing(shell.shell)(read(shown(tmp_path, "import json\njson.loads('{')")))
    assert linecache.cache == before


def test_a_group_of_errors_and_an_own_hook_are_as_python_shows_them(tmp_path: Path) -> None:
    error = read(shown(tmp_path, "raise ExceptionGroup('several', [ValueError(1)])"))
    lines = Drawing(SimpleNamespace())(error)
    assert (error.told, lines[0], lines[1], error.last_line) == (
        None,
        "  + Exception Group Traceback (most recent call last):",
        "  |   Cell In[8], line 1, in <module>",
        "    +------------------------------------",
    )
    own = "import sys\nsys.excepthook = lambda *_: print('mine', file=sys.stderr)\n1 / 0"
    assert told(tmp_path, own) == b"mine\n"
    assert b"mgpu;" not in told(tmp_path, "1 / 0", key="")


def broken(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    frame = {"file": 0, "line": 1, "function": "f", "arguments": ["a", "*b"]}
    made: dict[str, Any] = {
        "cell": 8,
        "chain": [{"link": "", "name": "E", "text": "t", "notes": [], "frames": [frame]}],
        "files": [{"name": "/x.py", "is_cell": False, "lines": [[1, "def f(a, *b): 1 / 0"]]}],
    }
    change(made)
    return {"text/plain": "as text\n", KIND: made}


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told.update(chain=[]),
        lambda told: told["chain"][0]["frames"][0].update(file=7),
        lambda told: told["chain"][0]["frames"][0].update(line=10**12),
        lambda told: told["chain"][0]["frames"][0].update(arguments=["a"] * 1000),
        lambda told: told["chain"][0].update(name=3),
        lambda told: told["files"][0].update(lines=[[10**9, "x"]]),
        lambda told: told["chain"][0].update(syntax={"file": 9, "line": 1}),
    ],
)
def test_what_no_cell_tells_is_only_text(shell: Shell, change: Callable[[dict[str, Any]], None]) -> None:
    assert Drawing(shell.shell)(read(broken(change))) == ["as text"]


def test_hostile_text_stays_text(shell: Shell) -> None:
    for text in hostile.ALL:

        def everywhere(told: dict[str, Any], text: str = text) -> None:
            told["chain"][0].update(name=text, text=text, notes=[text])
            told["chain"][0]["frames"][0].update(function=text, arguments=[text, f"*{text}", f"**{text}"])
            told["files"][0].update(name=text, lines=[[1, text]])

        data = json.loads(json.dumps(broken(everywhere)))
        for error in (read(data), read({"text/plain": text})):
            drawn = "\n".join(Drawing(shell.shell)(error)) + error.last_line
            assert all(char.isprintable() or char == "\n" for char in drawn), (text, drawn)


def test_a_cell_says_it_once(shell: Shell, tmp_path: Path, capsys: Captured) -> None:
    shell.plays(
        lambda spec: Play(
            output=(Say(b"hello\n"), Say(told(tmp_path, DIVIDES, spec.env["MGPU_DISPLAY_KEY"]), "stderr")),
            exit_code=1,
        )
    )
    error = shell.run("%%mgpu_srun --gpus 1\n" + DIVIDES).error_in_exec
    assert isinstance(error, JobFailed)
    assert error.last_lines[-1] == "ZeroDivisionError: division by zero"
    captured = capsys.readouterr()
    assert captured.out.splitlines() == [
        "hello",
        "-" * 75,
        "ZeroDivisionError                         Traceback (most recent call last)",
        "Cell In[1], line 5",
        "      2 def half(y, *more, **named):",
        "      3     return y / 0",
        "----> 5 half(x)",
        '      6 print("never")',
        "",
        "Cell In[1], line 3, in half(y, *more, **named)",
        "      2 def half(y, *more, **named):",
        "----> 3     return y / 0",
        "",
        "ZeroDivisionError: division by zero",
    ]
    assert captured.err.splitlines() == [
        "mgpu MOCK0000 running on node-1 ×1",
        "Failed after 1.0 s: on node-1, exit code 1 · MOCK0000",
    ]


def failed(*codes: int) -> models.Job:
    """A job whose ranks ended with these codes, one second after the other; -15 stands for a signal."""
    base = a_job(JobState.FAILED)
    one = base.placements[0]
    ranks = tuple(
        replace(
            one,
            rank=rank,
            node=NodeId(f"gpu-0{rank}"),
            exit_code=code if code >= 0 else None,
            signal=-code if code < 0 else None,
            ended_at=1_000.0 + rank,
        )
        for rank, code in enumerate(codes)
    )
    return replace(base, placements=ranks)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def data(text: str) -> dict[str, Any]:
    return {"text/plain": f"Traceback\nValueError: {text}\n"}


def test_ranks_that_failed_alike_are_said_once() -> None:
    errors = RankErrors(lambda error: error.text.splitlines())
    for rank, text in enumerate(("a", "a", "b", "a")):
        errors.add(rank, data(text))
    job = failed(1, 1, 1, 1, -15, -15)
    assert errors.lines(job) == [
        "Traceback",
        "ValueError: a",
        "",
        "Ranks 0–1, 3 failed alike.",
        "Rank 2: ValueError: b",
    ]
    assert errors.quiet(job) == "Ranks 4–5: stopped because rank 0 failed."


def test_a_rank_that_died_silently_is_named_above_what_another_said() -> None:
    errors = RankErrors(lambda error: error.text.splitlines())
    errors.add(1, data("lost the other"))
    assert errors.lines(failed(-9, 1)) == [
        "Traceback",
        "ValueError: lost the other",
        "",
        "This is rank 1; rank 0 on gpu-00 ended first, killed by signal 9.",
    ]
    assert RankErrors(lambda error: []).lines(failed(3)) == []


def test_an_error_of_a_job_that_goes_on_is_seen_at_once_and_then_named_only() -> None:
    clock = Clock()
    errors = RankErrors(lambda error: error.text.splitlines(), clock)
    errors.add(0, data("a"))
    errors.add(1, data("a"))
    assert errors.due() == ""
    clock.now = 10.0
    assert errors.due() == "Traceback\nValueError: a\n"
    assert errors.due() == ""
    assert errors.lines(failed(1, 1)) == ["ValueError: a", "", "Ranks 0–1 failed alike."]
    errors.add(1, data("b"))
    assert errors.rest() == "Traceback\nValueError: b\n"
    assert (errors.rest(), errors.lines(failed(1, 1))) == ("", [])


@pytest.mark.parametrize("state", [JobState.COMPLETED, JobState.TIMEOUT])
def test_an_error_of_a_job_that_did_not_fail_is_part_of_its_output(
    shell: Shell, tmp_path: Path, capsys: Captured, state: JobState
) -> None:
    shell.plays(
        lambda spec: Play(
            output=(Say(told(tmp_path, "1 / 0", spec.env["MGPU_DISPLAY_KEY"]), "stderr"),), final=state
        )
    )
    shell.run("%%mgpu_srun --gpus 1\n1 / 0")
    captured = capsys.readouterr()
    assert "Cell In[1], line 1\n----> 1 1 / 0\n" in captured.err
    assert "ZeroDivisionError" not in captured.out


def test_a_terminal_has_the_text_of_a_display(shell: Shell, capsys: Captured) -> None:
    def play(spec: Any) -> Play:
        key = spec.env["MGPU_DISPLAY_KEY"]
        body = json.dumps({"kind": "display", "data": {"text/html": "<b>", "text/plain": "A"}})
        return Play(output=(Say(f"\x1b_mgpu;{key};{body}\x1b\\A\n\x1b_mgpu;{key};\x1b\\after\n".encode()),))

    shell.plays(play)
    assert shell.run("%%mgpu_srun --gpus 1\nA()").success
    assert capsys.readouterr().out == "A\nafter\n"
