"""What each cell of a row of the queue says, and the queue as plain text."""

from __future__ import annotations

from typing import Any

import pytest

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.client import words
from mgpu_jupyter.client.listing import as_status, as_text
from mgpu_jupyter.client.mock import a_node
from mgpu_jupyter.client.queue_columns import COLUMNS, FORMAT_FIELDS, JSON_FIELDS, ON_OWN_LINE
from mgpu_jupyter.client.queue_rows import Listed, Row, sections_of
from mgpu_jupyter.model.job import JobState
from tests.client.test_queue_rows import JOBS, NOW, a_job
from tests.client.test_words import a_gpu


class Around(Listed):
    """Knows more than a list."""

    def is_mine(self, job: models.Job) -> bool:
        return job.user == "ann"

    def busy(self, job: models.Job) -> float | None:
        return 49.6 if job.started_at else None


def cells(row: Row, around: Listed | None = None) -> dict[str, str]:
    """Return what a row says, as far as it says anything."""
    told = {column.name: column.words(row, around or Listed(NOW)) for column in COLUMNS}
    return {name: text for name, text in told.items() if text}


ROWS = {row.key: row for section in sections_of(JOBS) for row in section}


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (
            ROWS["EARL0001"],
            {
                "place": "–",
                "id": "EARL0001",
                "title": "run EARL0001",
                "user": "ann",
                "size": "2×4",
                "gpus": "8",
                "type": "multinode",
                "nodes": "n1, n3",
                "command": "run EARL0001",
                "state": "running",
                "when": "50 s",
                "why": "n1, n3",
                "about": "for 50 s",
            },
        ),
        (
            ROWS["ARRA0000"],
            {
                "place": "2",
                "id": "ARRA0000[2-3]",
                "title": "run ARRA0002",
                "user": "ann",
                "size": "2×1",
                "gpus": "1",
                "type": "single",
                "priority": "0",
                "command": "run ARRA0002",
                "state": "queued",
                "when": "–",
                "why": "waits for 1 GPU",
                "about": "2nd in queue: 2 jobs of the array wait; the first of them: Waits for 1 GPU.",
                "reason": "2 jobs of the array wait; the first of them: Waits for 1 GPU.",
            },
        ),
        (
            ROWS["HELD0001"],
            {
                "place": "–",
                "id": "HELD0001",
                "title": "run HELD0001",
                "user": "ann",
                "size": "1×1",
                "gpus": "1",
                "type": "single",
                "priority": "0",
                "command": "run HELD0001",
                "state": "queued",
                "when": "held",
                "why": "held; starts only when released",
                "about": "waits: It is held.",
                "reason": "It is held.",
            },
        ),
        (
            ROWS["WAIT0002"],
            {
                "place": "4",
                "id": "WAIT0002",
                "title": "train",
                "user": "ann",
                "size": "1×1",
                "gpus": "1",
                "type": "single",
                "priority": "3",
                "name": "train",
                "command": "run WAIT0002",
                "state": "queued",
                "when": "–",
                "why": "it is the next to be looked at",
                "about": "4th in queue: it is the next to be looked at",
                "reason": "it is the next to be looked at",
            },
        ),
        (
            ROWS["OVER0001"],
            {
                "place": "–",
                "id": "OVER0001",
                "title": "run OVER0001",
                "user": "ann",
                "size": "1×1",
                "gpus": "1",
                "type": "single",
                "nodes": "n1",
                "command": "run OVER0001",
                "state": "completed",
                "when": "10 s",
                "why": "it is the next to be looked at",
                "about": "done in 10 s",
                "end": "Done in 10 s on n1, 1 GPU, exit 0",
            },
        ),
    ],
)
def test_what_a_row_says(row: Row, told: dict[str, str]) -> None:
    assert cells(row) == told


def one(state: JobState = JobState.QUEUED, **fields: Any) -> Row:
    job = a_job("JOB00001", state, **fields)
    return Row(job.id, job)


@pytest.mark.parametrize(
    ("row", "name", "text"),
    [
        (one(JobState.STARTING), "when", "starting"),
        (one(JobState.STARTING, reason="Fetches."), "why", "Fetches."),
        (one(JobState.STARTING, reason="Fetches."), "about", "Fetches."),
        (one(JobState.STARTING, reason="Fetches."), "reason", "Fetches."),
        (one(JobState.STARTING), "reason", ""),
        (one(JobState.STOPPING, nodes=("b", "a", "a")), "why", "stopping; a, b"),
        (one(JobState.RUNNING, nodes=("b", "a"), started_at=NOW), "why", "a, b; 50 % busy"),
        (one(JobState.CANCELLED), "when", "–"),
        (one(JobState.CANCELLED), "about", "Cancelled before it started"),
        (one(expected_start_at=NOW + 60), "when", f"≈ {words.moment(NOW + 60, NOW)}"),
        (one(user="bob"), "user", "bob"),
        (one(), "user", "me"),
        (one(array_id="ARRA0000", array_index=0), "array", "ARRA0000[0]"),
        (one(gpus=6, nodes_wanted=0), "size", "1×6"),
        (one(gpus=6, nodes_wanted=1, nodes=("a", "b", "c")), "size", "3×2"),
        (one(nodes_wanted=2), "type", "multinode"),
        (one(nodes_wanted=0), "type", "single"),
        (one(JobState.RUNNING, priority=3), "priority", ""),
        (
            Row("ARRA0000", JOBS[4], 3, None, (1, 2, 3)),
            "reason",
            "3 jobs of the array wait; the first of them",
        ),
    ],
)
def test_a_cell(row: Row, name: str, text: str) -> None:
    assert cells(row, Around(NOW)).get(name, "") == text


@pytest.mark.parametrize(
    ("row", "text"),
    [
        (one(JobState.RUNNING, nodes=("a", "b"), reason="Slow."), "on a, b; Slow."),
        (one(JobState.STARTING, reason="Fetches."), "Fetches."),
        (one(JobState.RUNNING, nodes=("a",)), "on a"),
        (one(place=1), "waits: it is the next to be looked at"),
    ],
)
def test_what_stands_below_a_narrow_row(row: Row, text: str) -> None:
    assert ON_OWN_LINE(row, Listed(NOW)) == text


def test_fields_for_programs() -> None:
    names = set(models.Job.__struct_fields__)
    assert set(JSON_FIELDS) < set(FORMAT_FIELDS) <= names
    assert len(set(FORMAT_FIELDS)) == len(FORMAT_FIELDS)


def test_the_tips_of_the_panel() -> None:
    tips = {column.name: column.tip(ROWS["WAIT0002"], Listed(NOW)) for column in COLUMNS if column.tip}
    assert tips == {"title": "train, WAIT0002", "user": "ann", "why": "it is the next to be looked at"}


def test_the_queue_as_text() -> None:
    node = a_node("n1", 2)
    assert as_text(JOBS[:2] + JOBS[4:5], (node, a_node("n2"))).splitlines() == [
        "--- Running Jobs ---",
        "ID: LATE0001 | User: ann | GPUs: 4 | Type: single",
        "  Nodes: n2",
        "  CMD: run LATE0001",
        "  Status: running",
        "",
        "--- Queue ---",
        "ID: WAIT0002 | User: ann | GPUs: 1 | Type: single | Priority: 3",
        "  Name: train",
        "  Nodes: none yet",
        "  CMD: run WAIT0002",
        "  Status: queued",
        "  Reason: it is the next to be looked at",
        "",
        "--- Finished Jobs ---",
        "ID: OVER0001 | User: ann | GPUs: 1 | Type: single",
        "  Nodes: n1",
        "  CMD: run OVER0001",
        "  Status: completed",
        "  End: Done in 10 s on n1, 1 GPU, exit 0",
        "",
        "--- Cluster Status ---",
        "Node n1: online",
        "Node n2: online",
    ]
    assert as_text((), ()).splitlines() == [
        "--- Running Jobs ---",
        "No running jobs",
        "--- Queue ---",
        "No queued jobs",
        "--- Cluster Status ---",
        "No node information available",
    ]


def test_the_old_status_names_free_gpus() -> None:
    gpus = (
        a_gpu(),
        a_gpu(index=1, job_id=JobId("ABCD1234")),
        a_gpu(index=2, state="unhealthy"),
        a_gpu(index=3),
    )
    node = models.Node(
        **({name: getattr(a_node("n1"), name) for name in models.Node.__struct_fields__} | {"gpus": gpus})
    )
    assert as_status((), (node,)) == [
        "=== Queue Status ===",
        "Queued jobs: 0",
        "Running jobs: 0",
        "Node status:",
        "  n1: GPUs [0, 3] available",
    ]
