"""Jobs in a notebook: attached to, read, offered, remembered, completed by the Tab key, helped with."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from IPython.core.completer import provisionalcompleter
from IPython.core.error import UsageError

from mgpu_jupyter.client import Job, front
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.gather import gather
from mgpu_jupyter.client.mock import STARTED_AT, Play, Say, lost
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.notebook import JobFailed, completing
from mgpu_jupyter.notebook.front import NotebookFront, RichBar
from mgpu_jupyter.notebook.live_job import LiveJobs, bundle_of, line_of
from mgpu_jupyter.notebook.offer import StillRuns, sentence
from mgpu_jupyter.notebook.parsers import PARSERS
from mgpu_jupyter.notebook.remember import mark
from tests.notebook.conftest import Shell

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def in_notebook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "a.ipynb"))


def test_attach_replays_from_the_start(shell: Shell, capsys: Captured) -> None:
    shell.plays(lambda spec: Play(output=(Say(b"one\n"), Say(b"two\n", rank=1)), lasts_s=2.0))
    assert shell.run("%mgpu_srun --background --nodes 2 -- x").success
    capsys.readouterr()
    assert shell.run("%mgpu_attach mock0000").success
    assert capsys.readouterr().out == "  0 │ one\n  1 │ two\n"
    assert shell.run("%mgpu_attach MOCK0000 --rank 1").success
    out, err = capsys.readouterr()
    assert (out, err) == (
        "two\n",
        (
            "mgpu MOCK0000 running on node-1 ×1, node-2 ×1\nDone in 2.0 s on node-1, node-2, 2 simulated "
            "GPUs, "
            "exit 0 · MOCK0000\n"
        ),
    )


def test_a_job_that_failed_fails_the_cell_that_attaches(shell: Shell) -> None:
    shell.plays(lambda spec: Play(exit_code=3))
    shell.run("%mgpu_srun --background -- x")
    assert isinstance(shell.run("%mgpu_attach MOCK0000").error_in_exec, JobFailed)
    assert "There is no job NOSUCH00" in str(shell.run("%mgpu_attach NOSUCH00").error_in_exec)


def test_an_interrupt_of_attach_leaves_the_job(shell: Shell, capsys: Captured) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    shell.plays(lambda spec: Play(hold=True, output=(Say(b"up\n"),)), on_hold=interrupt)
    shell.run("%mgpu_srun --background -- x")
    error = shell.run("%mgpu_attach MOCK0000").error_in_exec
    assert (type(error), str(error)) == (
        KeyboardInterrupt,
        "Left MOCK0000; it goes on. `%mgpu_attach MOCK0000` shows it again, `%mgpu_cancel MOCK0000` ends it.",
    )
    assert not shell.mock.jobs["MOCK0000"].cancelled.is_set()


def test_logs(shell: Shell, capsys: Captured) -> None:
    shell.plays(
        lambda spec: Play(
            output=tuple(Say(f"line {number}\n".encode(), rank=number % 2) for number in range(6))
        )
    )
    shell.run("%mgpu_srun --background --nodes 2 -- x")
    capsys.readouterr()
    for line, expected in (
        ("%mgpu_logs MOCK0000 --rank 1", "line 1\nline 3\nline 5\n"),
        ("%mgpu_logs MOCK0000 --tail 1", "0: line 4\n1: line 5\n"),
        ("%mgpu_logs MOCK0000 --rank 0 --tail 2", "line 2\nline 4\n"),
        ("%mgpu_logs MOCK0000", "0: line 0\n0: line 2\n0: line 4\n1: line 1\n1: line 3\n1: line 5\n"),
    ):
        assert shell.run(line).success
        assert capsys.readouterr().out == expected
    error = shell.run("%mgpu_logs").error_in_exec
    assert (type(error), str(error)) == (UsageError, "Name the job, as in `%mgpu_logs R4T8W2ZB`.")


@pytest.mark.usefixtures("in_notebook")
def test_the_same_cell_again_is_asked_about(shell: Shell, capsys: Captured) -> None:
    shell.plays(lambda spec: Play(hold=True))
    cell = "%%mgpu_srun --background --name train --as job\nprint(1)"
    assert shell.run(cell).success
    error = shell.run(cell).error_in_exec
    assert isinstance(error, StillRuns)
    assert "This cell’s job train still runs (" in error.message
    assert "Attach to it: %mgpu_attach MOCK0000 · Run a second one: add --again to the line." in error.message
    assert len(shell.mock.specs) == 1
    assert shell.run(cell.replace("%%mgpu_srun", "%%mgpu_srun --again")).success
    assert shell.run(cell.replace("print(1)", "print(2)")).success
    assert len(shell.mock.specs) == 3
    for entry in shell.mock.jobs.values():
        entry.cancelled.set()
    assert shell.run(cell).success
    assert "This cell’s" not in capsys.readouterr().out.splitlines()[-1]


@pytest.mark.usefixtures("in_notebook")
def test_the_master_is_asked_once_and_then_only_about_a_cell_that_ran_before(shell: Shell) -> None:
    def asked(cell: str) -> list[tuple[str, str]]:
        before = len(shell.mock.requests)
        assert shell.run(cell).success
        return [
            (request.method, request.path)
            for request in shell.mock.requests[before:]
            if request.path == "jobs"
        ]

    look, submit = ("GET", "jobs"), ("POST", "jobs")
    assert asked("%mgpu_srun --background -- first") == [
        look,
        submit,
    ]  # a kernel before this one may have run it
    assert asked("%mgpu_srun --background -- second") == [submit]
    assert asked("for _ in range(3):\n    %mgpu_srun --background -- third") == [submit, *[look, submit] * 2]
    assert asked("%mgpu_srun --background -- first") == [submit]  # the last look told that it is over
    assert asked("%mgpu_srun --background -- fourth") == [submit]


@pytest.mark.usefixtures("in_notebook")
def test_what_a_notebook_has(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shell.plays(lambda spec: Play(hold="held" in spec.name))
    assert shell.run("%mgpu_srun --name first -- x").success
    assert shell.run("%mgpu_srun --background --name held -- x").success
    table = shell.run("%mgpu_attach").result
    assert isinstance(table, Table)
    assert [(row[0], row[1], row[2]) for row in table.rows] == [
        ("MOCK0001", "held", "running"),
        ("MOCK0000", "first", "completed"),
    ]
    monkeypatch.setenv("JPY_SESSION_NAME", "/elsewhere.ipynb")
    assert "No job came from this notebook." in repr(shell.run("%mgpu_attach").result)
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert "does not say which notebook" in repr(shell.run("%mgpu_attach").result)


def test_sentences_about_what_still_runs(shell: Shell) -> None:
    shell.plays(lambda spec: Play(hold=True))
    job = shell.run("%mgpu_srun --background --name train-7b -- x").result
    assert sentence(job, STARTED_AT + 42 * 60 + 7) == "This cell’s job train-7b still runs (42 m so far)."
    assert sentence(job, STARTED_AT + 40) == "This cell’s job train-7b still runs (40 s so far)."
    sweep = shell.run("%mgpu_srun --background --sweep a=1,2 -- x").result
    assert isinstance(sweep, JobArray)
    assert sentence(sweep, STARTED_AT + 3720) == f"This cell’s sweep {sweep.id} still runs (1 h 02 m so far)."
    assert (mark(job), mark(sweep)) == (
        {"mgpu": {"job_id": "MOCK0000"}},
        {"mgpu": {"job_id": str(sweep.id), "array": True}},
    )


def test_a_sweep_in_a_cell_is_a_table(shell: Shell, capsys: Captured) -> None:
    def play(spec: JobSpec) -> Play:
        return Play(output=(Say(b"loss 0.5\n"),), exit_code=0)

    shell.plays(play)
    table = shell.run("%%mgpu_srun --sweep lr=0.1,0.01 --sweep seed=1,2%2 --as sweep\nprint(lr)").result
    assert isinstance(table, SweepTable)
    assert [(row["lr"], row["seed"], row["state"], row["last line"]) for row in table] == [
        (lr, seed, "completed", "loss 0.5") for lr in (0.1, 0.01) for seed in (1, 2)
    ]
    assert [spec.array for spec in shell.mock.specs] == ["0-3%2"]
    assert isinstance(shell.shell.user_ns["sweep"], JobArray)
    assert "4 of 4 over" in capsys.readouterr().err
    assert isinstance(shell.run(f"%mgpu_attach {shell.shell.user_ns['sweep'].id}").result, SweepTable)


def test_an_interrupted_sweep_is_cancelled(shell: Shell) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    shell.plays(lambda spec: Play(hold=True), on_hold=interrupt)
    error = shell.run("%mgpu_srun --sweep lr=0.1,0.01 -- x").error_in_exec
    assert (type(error), str(error)) == (
        KeyboardInterrupt,
        "Cancelled 2 jobs that had not ended: MOCK0000 MOCK0001.",
    )
    assert all(entry.cancelled.is_set() for entry in shell.mock.jobs.values())


def completions(shell: Shell, code: str) -> list[str]:
    """Return whole lines that the Tab key leads to, as a front end puts them together."""
    with provisionalcompleter():
        found = list(shell.shell.Completer.completions(code, len(code)))
    return [code[: one.start] + one.text for one in found]


@pytest.mark.parametrize("use_jedi", [True, False])
def test_the_tab_key(shell: Shell, use_jedi: bool) -> None:
    shell.shell.Completer.use_jedi = use_jedi
    shell.plays(lambda spec: Play(hold=True))
    shell.run("%mgpu_srun --background --name train -- x")
    shell.shell.user_ns.update({"alpha": 1, "alps": [1]})
    for code, expected in (
        ("%mgpu_srun --gpus-p", ["%mgpu_srun --gpus-per-node"]),
        (
            "%%mgpu_srun --on-disconnect ",
            ["%%mgpu_srun --on-disconnect keep", "%%mgpu_srun --on-disconnect fence"],
        ),
        ("%%mgpu_srun --on-disconnect=f", ["%%mgpu_srun --on-disconnect=fence"]),
        ("%mgpu_srun --nodelist no", ["%mgpu_srun --nodelist node-1"]),
        ("%mgpu_srun -w no", ["%mgpu_srun -w node-1"]),
        ("%mgpu_attach ", ["%mgpu_attach MOCK0000"]),
        ("%mgpu_cancel mo", ["%mgpu_cancel MOCK0000"]),
        ("%mgpu_srun --dependency afterok:M", ["%mgpu_srun --dependency afterok:MOCK0000"]),
        ("x = %mgpu_queue --a", ["x = %mgpu_queue --all"]),
        ("%mgpu_srun --as al", ["%mgpu_srun --as alpha", "%mgpu_srun --as alps"]),
        ("y = 1\n%mgpu_srun --again --bac", ["y = 1\n%mgpu_srun --again --background"]),
    ):
        assert completions(shell, code) == expected
    assert "alpha" in "".join(completions(shell, "%%mgpu_srun --gpus 2\nalph"))
    assert "--gpus" not in "".join(completions(shell, "%mgpu_srun --gpus 2 -- --gp"))


def test_what_the_tab_key_says_about_jobs(shell: Shell) -> None:
    shell.plays(lambda spec: Play(hold=True))
    shell.run("%mgpu_srun --background --name train -- x")
    with provisionalcompleter():
        found = list(shell.shell.Completer.completions("%mgpu_cancel ", 13))
    assert [(one.text, one.type) for one in found] == [("MOCK0000", "running train")]


@pytest.fixture
def fresh_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a second passes between two keys."""
    monkeypatch.setattr(completing, "FRESH_S", 3600.0)


@pytest.mark.usefixtures("fresh_for_long")
def test_the_tab_key_without_a_server(shell: Shell) -> None:
    shell.mock.failures = [lost("Nobody answers.")]
    assert completions(shell, "%mgpu_cancel MO") == []
    asked = len(shell.mock.requests)
    assert completions(shell, "%mgpu_cancel MO") == []
    assert len(shell.mock.requests) == asked


@pytest.mark.parametrize("name", list(PARSERS))
def test_a_question_mark_shows_examples(shell: Shell, name: str) -> None:
    magic = shell.shell.find_line_magic(name)
    assert f"  %{name}" in magic.__doc__
    assert "--help" in magic.__doc__
    info = shell.shell.object_inspect(f"%{name}")
    assert info["found"]
    assert f"%{name}" in info["docstring"]


def test_a_job_as_a_value_of_a_cell(shell: Shell, capsys: Captured) -> None:
    shell.plays(lambda spec: Play(hold="held" in spec.name, lasts_s=2.0))
    assert shell.run("%mgpu_srun --background --name done -- x").success
    assert capsys.readouterr().out == "Out[0]: Done in 2.0 s on node-1, 1 simulated GPU, exit 0 · MOCK0000\n"
    job = shell.run("%mgpu_srun --background --name held -- x").result
    assert capsys.readouterr().out == "Out[0]: mgpu MOCK0001 running on node-1 ×1\n"
    job.snapshot = None
    assert line_of(job) == "mgpu MOCK0001"
    sweep = shell.run("%mgpu_srun --background --sweep a=1,2 -- x").result
    assert line_of(sweep) == f"mgpu {sweep.id}: 2 of 2 over"
    assert "progressbar" in bundle_of(sweep)["text/html"]


def test_a_live_value_ends_with_its_job(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], **_options: object) -> None:
            shown.append(data["text/plain"])

    shell.plays(lambda spec: Play(hold=True, lasts_s=2.0))
    job = shell.run("%mgpu_srun --background -- x").result
    assert isinstance(job, Job)
    monkeypatch.setattr("mgpu_jupyter.notebook.screen.display", lambda *_args, **_options: Handle())
    LiveJobs(is_rich=True).show(job)
    shell.mock.jobs["MOCK0000"].cancelled.set()
    deadline = time.monotonic() + 60
    while not (shown and shown[-1].startswith("Cancelled")) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert shown[-1].startswith("Cancelled")


def test_a_job_that_failed_shows_its_last_lines_where_it_is_a_value(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(
        "mgpu_jupyter.notebook.screen.display",
        lambda data, **_options: shown.append(data.get("text/html", "")),
    )
    shell.plays(lambda spec: Play(output=(Say(b"early\nValueError: no <loss>\n"),), exit_code=3))
    job = shell.run("%mgpu_srun --background -- x").result
    LiveJobs(is_rich=True).show(job)
    assert "ValueError: no &lt;loss&gt;" in shown[-1]


def test_the_notebook_remembers_the_array_of_a_bar(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[object] = []
    monkeypatch.setattr(
        "mgpu_jupyter.notebook.front.show_bundle", lambda _, **options: kept.append(options["metadata"])
    )
    front.use(NotebookFront(lambda *_: None, is_rich=True))
    array = shell.run("%mgpu_srun --array 1-2 -- x").result
    gather(array)
    gather(list(array.jobs))
    assert kept == [{"mgpu": {"job_id": array.id, "array": True}}, {}]


def test_a_bar_in_a_notebook(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from mgpu_jupyter.client.gather import Tally

    shown: list[dict[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], **_options: object) -> None:
            shown.append(data)

    monkeypatch.setattr(
        "mgpu_jupyter.notebook.front.show_bundle", lambda data, **_options: shown.append(data) or Handle()
    )
    bar = RichBar()
    bar.say("<b>bad</b> (X): Failed")
    bar.update(Tally(total=4, running=1, completed=2, failed=1))
    bar.say("more")
    bar.close()
    assert (
        shown[-1]["text/plain"]
        == "3 of 4 over · 1 running · 1 did not complete\n<b>bad</b> (X): Failed\nmore"
    )
    page = shown[-1]["text/html"]
    assert (
        'aria-valuenow="3"' in page,
        "<b>" in page,
        "width: 120.0px" in page,
        "width: 60.0px" in page,
    ) == (True, False, True, True)
