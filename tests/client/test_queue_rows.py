"""The row model of the queue: order, and what each medium says of the same jobs."""

from __future__ import annotations

from typing import Any

import pytest

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.tables import show_queue
from mgpu_jupyter.client.listing import as_status, as_text
from mgpu_jupyter.client.queue_columns import COLUMNS, IN_LINES, IN_PANEL, IN_TABLES
from mgpu_jupyter.client.queue_rows import Listed, Row, sections_of
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.tables import Queue

NOW = 1_700_000_000.0


def a_job(job_id: str, state: JobState = JobState.QUEUED, **fields: Any) -> models.Job:
    values: dict[str, Any] = {
        "user": "ann",
        "name": "",
        "command": f"run {job_id}",
        "nodes": (),
        "gpus": 1,
        "exit_code": None,
        "attempt": 1,
        "submitted_at": NOW - 90,
        "started_at": None,
        "ended_at": None,
        "reason": "",
    }
    return models.Job(**{"id": JobId(job_id), "state": state, **values, **fields})


JOBS = (
    a_job("OVER0001", JobState.COMPLETED, started_at=NOW - 30, ended_at=NOW - 20, nodes=("n1",)),
    a_job("LATE0001", JobState.RUNNING, started_at=NOW - 5, nodes=("n2",), gpus=4),
    a_job("EARL0001", JobState.RUNNING, started_at=NOW - 50, nodes=("n1", "n3"), nodes_wanted=2, gpus=8),
    a_job("HELD0001", reason="It is held.", reason_code="held", submitted_at=NOW - 900),
    a_job("WAIT0002", place=4, name="train", priority=3),
    a_job("ARRA0003", place=3, array_id="ARRA0000", array_index=3, reason="Busy."),
    a_job("ARRA0002", place=2, array_id="ARRA0000", array_index=2, reason="Waits for 1 GPU."),
    a_job("WAIT0001", place=1, reason="Waits for 9 GPUs.", gpus=9),
)


def test_the_order_is_that_of_start_and_place_and_jobs_of_an_array_are_one_row() -> None:
    rows = sections_of(JOBS)

    assert rows == (
        [Row("EARL0001", JOBS[2]), Row("LATE0001", JOBS[1])],
        [
            Row("WAIT0001", JOBS[7], 1, 1),
            Row("ARRA0000", JOBS[6], 2, 2, (2, 3)),
            Row("WAIT0002", JOBS[4], 1, 4),
            Row("HELD0001", JOBS[3]),
        ],
        [Row("OVER0001", JOBS[0])],
    )


def test_places_that_are_newer_than_the_jobs_go_first() -> None:
    places = {JobId("WAIT0002"): 1, JobId("WAIT0001"): 2, JobId("ARRA0003"): 3}

    told = [(row.key, row.place) for row in sections_of(JOBS, places).waiting]

    assert told == [("WAIT0002", 1), ("WAIT0001", 2), ("ARRA0000", 3), ("HELD0001", None)]


def test_terminal_and_notebook_have_the_same_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("time.time", lambda: NOW)
    rows = [row for section in sections_of(JOBS) for row in section]
    cells = [[column.words(row, Listed(NOW)) for column in IN_TABLES] for row in rows]
    assert [column.label for column in IN_TABLES] == [
        *("Job", "User", "GPUs", "Name", "Nodes", "Command", "State", "")
    ]
    assert cells[:2] == [
        ["EARL0001", "ann", "8", "", "n1, n3", "run EARL0001", "running", "for 50 s"],
        ["LATE0001", "ann", "4", "", "n2", "run LATE0001", "running", "for 5.0 s"],
    ]
    reasons = [
        "1st in queue: Waits for 9 GPUs.",
        "2nd in queue: 2 jobs of the array wait; the first of them: Waits for 1 GPU.",
        "4th in queue: it is the next to be looked at",
        "waits: It is held.",
        "done in 10 s",
    ]
    assert [row[-1] for row in cells[2:]] == reasons
    assert cells[3][0] == "ARRA0000[2-3]"

    show_queue(JOBS, (), {})
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    page = Queue(JOBS, (), NOW)._repr_html_()
    for row in cells:
        assert " ".join(row).split() in shown
        assert "".join(f">{cell}</td>" for cell in row) == "".join(
            f">{cell}</td>" for cell in row if f">{cell}</td>" in page
        )


def test_a_start_that_was_asked_for_is_told_in_text_and_tables() -> None:
    starts = {"WAIT0001": "in 5 s"}

    (row, *_) = sections_of(JOBS).waiting

    assert "  Start: in 5 s" in as_text(JOBS, (), starts).splitlines()
    about = IN_TABLES[-1].words(row, Listed(NOW, starts))
    assert about == "1st in queue: Waits for 9 GPUs.; start: in 5 s"


def test_what_mgpu_client_always_said() -> None:
    assert as_status(JOBS[1:5], ()) == [
        "=== Queue Status ===",
        "Queued jobs: 2",
        "  HELD0001: run HELD0001...",
        "  WAIT0002: run WAIT0002...",
        "Running jobs: 2",
        "  LATE0001: run LATE0001... (Node: n2)",
        "  EARL0001: run EARL0001... (Node: n1, n3)",
        "Node status:",
    ]


def test_every_column_is_shown_somewhere_and_has_one_name() -> None:
    assert {column.name for column in (*IN_TABLES, *IN_PANEL, *IN_LINES)} == {one.name for one in COLUMNS}
    assert len({column.name for column in COLUMNS}) == len(COLUMNS)
