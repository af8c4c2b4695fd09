"""The same line is the same request, or the same sentence, in a shell, a magic, Python, the panel, a job file
and for the sidebar, whose form `tests/browser/test_request_lines.py` fills in over the same table in
Chromium.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli import srun
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.flags import KEYWORDS
from mgpu_jupyter.client.jobfile import read_job_file
from mgpu_jupyter.client.mock import MockTransport
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import srun_parser
from mgpu_jupyter.model.display import VARIABLE as DISPLAY_KEY
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.notebook.panel import form
from mgpu_jupyter.notebook.panel.form import Form, More
from mgpu_jupyter.server.handlers.jobs import submission_of
from tests.contract.request_lines import ROWS, Row
from tests.notebook.conftest import Shell, shell  # noqa: F401 - a fixture

Outcome = JobSpec | str


def expected(row: Row) -> Outcome:
    if row.sentence:
        return row.sentence
    return JobSpec(command=row.command or tuple(shlex.split(row.typed)), **{"cwd": None, **row.asks})


def outcome(row: Row, ask: Callable[[Row], JobSpec]) -> Outcome:
    """Return what came of a row, without what is not of the request but of the place where it was made."""
    try:
        spec = ask(row)
    except InvalidRequest as error:
        return error.message
    env = {name: value for name, value in spec.env.items() if name != DISPLAY_KEY}
    here: dict[str, object] = {"home": "", "kernel_python": None, "kernel_python_version": None, "env": env}
    if spec.script is not None and "name" not in row.asks:
        here["name"] = ""  # after its text, or after notebook and number
    return replace(spec, **here, **({} if "cwd" in row.asks else {"cwd": None}))


def compare(
    front_end: str, ask: Callable[[Row], JobSpec], seen: Callable[[Outcome], Outcome] = lambda found: found
) -> None:
    rows = [row for row in ROWS if front_end not in row.without]
    found = {f"{row.flags} -- {row.typed}": seen(outcome(row, ask)) for row in rows}
    assert found == {f"{row.flags} -- {row.typed}": seen(expected(row)) for row in rows}


def without_command(found: Outcome) -> Outcome:
    """What a line asks for beside what runs: of cells and job files that is a script."""
    return found if isinstance(found, str) else replace(found, command=(), script=None, name=found.name)


def test_there_are_sixty_lines() -> None:
    assert len(ROWS) >= 60
    assert len({f"{row.flags} -- {row.typed}" for row in ROWS}) == len(ROWS)


def test_in_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    def ask(row: Row) -> JobSpec:
        mock = MockTransport()
        command = [row.typed] if row.quoted else shlex.split(row.typed)
        srun.main([*shlex.split(row.flags), "--background", "--", *command], lambda: Client(transport=mock))
        return mock.specs[0]

    compare("shell", ask)
    capsys.readouterr()


def test_in_python() -> None:
    def ask(row: Row) -> JobSpec:
        values = srun_parser("mgpu_srun").read(shlex.split(row.flags))
        assert not isinstance(values, Help)
        said = (
            {name: value for name, value in vars(values).items() if name in KEYWORDS}
            if row.keywords is None
            else row.keywords
        )
        mock = MockTransport()
        Client(transport=mock).submit(row.typed if row.quoted else shlex.split(row.typed), **said)
        return mock.specs[0]

    compare("client", ask)


def run(shell: Shell, cell: str) -> JobSpec:  # noqa: F811
    before = len(shell.mock.specs)
    result = shell.run(cell)
    if len(shell.mock.specs) == before:
        raise InvalidRequest("usage", str(result.error_in_exec))
    return shell.mock.specs[before]


def test_in_a_magic(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    compare("magic", lambda row: run(shell, f"%mgpu_srun {row.flags} --background -- {row.typed}"))
    capsys.readouterr()


def test_above_a_cell(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    compare(
        "magic", lambda row: run(shell, f"%%mgpu_srun {row.flags} --background\nprint(1)"), without_command
    )
    capsys.readouterr()


def test_in_the_panel() -> None:
    def ask(row: Row) -> JobSpec:
        filled = row.form or Form(command=row.typed, more=More(flags=row.flags))
        return form.submission_of(filled, {}, to_submit=True).spec

    compare("panel", ask)


def test_what_the_panel_shows_is_what_it_submits(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:  # noqa: F811
    compare(
        "panel",
        lambda row: run(
            shell,
            form.magic(row.form or Form(command=row.typed, more=More(flags=f"{row.flags} --background"))),
        ),
    )
    capsys.readouterr()


def test_for_the_sidebar() -> None:
    compare("sidebar", lambda row: submission_of(f"%mgpu_srun {row.flags} -- {row.typed}", None).spec)


def test_in_a_job_file(tmp_path: Path) -> None:
    def ask(row: Row) -> JobSpec:
        text = f"#!/bin/bash\n#MGPU {row.flags}\n{row.typed}\n"
        found = read_job_file(text, row.asks.get("name", ""), environ={})
        if found.submission is None:
            raise InvalidRequest("bad-file", found.findings[0].message)
        assert found.submission.spec.script == text
        return found.submission.spec

    compare("file", ask, without_command)
