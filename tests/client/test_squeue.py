"""Slurm's letters: each field of a job, states, spans, widths, sorting; and sentences for what is wrong."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import models
from mgpu_jupyter.client import squeue
from mgpu_jupyter.model.job import JobState
from tests.client.test_queue_rows import NOW, a_job

RUNS = a_job(
    "RUNS0001",
    JobState.RUNNING,
    name="train",
    nodes=("n1", "n2"),
    nodes_wanted=2,
    gpus=8,
    started_at=NOW - 3_723,
    time_limit_s=90_000.0,
    partition="gpu",
    account="lab",
    qos="high",
    priority=7,
)
WAITS = a_job(
    "WAIT0001",
    reason="Waits for 2 GPUs.",
    gpus=2,
    array_id="ARRA0000",
    array_index=4,
    expected_start_at=NOW + 60,
)
ENDED = a_job("OVER0001", JobState.FAILED, gpus=0, started_at=NOW - 30, ended_at=NOW - 20, nodes=("n1",))
BARE = a_job("BARE0001", JobState.STARTING, nodes_wanted=0)


def at(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(moment))


def told(pattern: str, *jobs: models.Job, header: bool = False) -> list[str]:
    return squeue.rows_of(pattern, lambda: NOW, header=header)(jobs)


@pytest.mark.parametrize(
    ("letter", "heading", "runs", "waits", "ended"),
    [
        ("i", "JOBID", "RUNS0001", "WAIT0001", "OVER0001"),
        ("A", "JOBID", "RUNS0001", "WAIT0001", "OVER0001"),
        ("F", "ARRAY_JOB_ID", "RUNS0001", "ARRA0000", "OVER0001"),
        ("K", "ARRAY_TASK_ID", "N/A", "4", "N/A"),
        ("P", "PARTITION", "gpu", "-", "-"),
        ("j", "NAME", "train", "run WAIT0001", "run OVER0001"),
        ("u", "USER", "ann", "ann", "ann"),
        ("a", "ACCOUNT", "lab", "-", "-"),
        ("q", "QOS", "high", "-", "-"),
        ("t", "ST", "R", "PD", "F"),
        ("T", "STATE", "RUNNING", "PENDING", "FAILED"),
        ("M", "TIME", "1:02:03", "0:00", "0:10"),
        ("l", "TIME_LIMIT", "1-01:00:00", "UNLIMITED", "UNLIMITED"),
        ("L", "TIME_LEFT", "23:57:57", "UNLIMITED", "UNLIMITED"),
        ("D", "NODES", "2", "1", "1"),
        ("b", "TRES_PER_NODE", "gpu:4", "gpu:2", "N/A"),
        ("N", "NODELIST", "n1,n2", "", "n1"),
        ("R", "NODELIST(REASON)", "n1,n2", "(Waits for 2 GPUs)", "n1"),
        ("r", "REASON", "None", "Waits for 2 GPUs.", "None"),
        ("p", "PRIORITY", "7", "0", "0"),
        ("Q", "PRIORITY", "7", "0", "0"),
        ("V", "SUBMIT_TIME", at(NOW - 90), at(NOW - 90), at(NOW - 90)),
        ("S", "START_TIME", at(NOW - 3_723), at(NOW + 60), at(NOW - 30)),
        ("e", "END_TIME", "N/A", "N/A", at(NOW - 20)),
        ("o", "COMMAND", "run RUNS0001", "run WAIT0001", "run OVER0001"),
    ],
)
def test_a_letter(letter: str, heading: str, runs: str, waits: str, ended: str) -> None:
    assert told(f"%{letter}", RUNS, WAITS, ENDED, header=True) == [heading, runs, waits, ended]


def test_every_letter_is_in_the_table_above() -> None:
    (mark,) = test_a_letter.pytestmark  # type: ignore[attr-defined]
    assert {row[0] for row in mark.args[1]} == set(squeue.LETTERS)


def test_a_job_of_which_little_is_known() -> None:
    assert told("%M|%D|%R|%b|%L", BARE) == ["0:00|1|(None)|gpu:1|UNLIMITED"]


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        ("%5i|", "RUNS0|"),
        ("%10i|", "RUNS0001  |"),
        ("%.10i|", "  RUNS0001|"),
        ("%.5i|", "RUNS0|"),
        ("%8i|", "RUNS0001|"),
        ("100 %% of %i", "100 % of RUNS0001"),
        ("%i %10N   ", "RUNS0001 n1,n2"),
        ("plain", "plain"),
        ("", ""),
        (squeue.USUAL, "          RUNS0001       gpu    train      ann  R    1:02:03      2 n1,n2"),
        (
            squeue.LONG,
            "          RUNS0001       gpu    train      ann    RUNNING    1:02:03 1-01:00:00      2 n1,n2",
        ),
    ],
)
def test_a_format(pattern: str, line: str) -> None:
    assert told(pattern, RUNS) == [line]


def test_headings_have_the_same_widths_and_can_be_left_out() -> None:
    heading = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)"
    assert told(squeue.USUAL, header=True) == [heading]
    assert squeue.rows_of("%i", lambda: NOW)([]) == ["JOBID"]
    assert told(squeue.USUAL) == []


def test_wide_letters_and_escapes_keep_their_columns() -> None:
    job = a_job("WIDE0001", name="日本語\x1b[2J")
    assert told("%.5j|%4j|", job) == [" 日本|日本|"]
    assert told("%j", job) == ["日本語\ufffd[2J"]


KNOWN = ", ".join(f"%{letter}" for letter in squeue.LETTERS)


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("%.5Z", "there is no field %Z"),
        ("%i %", "a letter is missing behind %"),
        ("% %i", "a letter is missing behind %"),
    ],
)
def test_a_format_that_is_none(pattern: str, what: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        squeue.rows_of(pattern, lambda: NOW)
    assert caught.value.message == f"--format {pattern}: {what}; there are {KNOWN}."


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "0:00"),
        (7.9, "0:07"),
        (60, "1:00"),
        (727, "12:07"),
        (3599, "59:59"),
        (3600, "1:00:00"),
        (86_399, "23:59:59"),
        (86_400, "1-00:00:00"),
        (176_523, "2-01:02:03"),
    ],
)
def test_a_span(seconds: float, text: str) -> None:
    assert squeue.lasting(seconds) == text


@pytest.mark.parametrize(
    ("text", "states"),
    [
        ("PD", ("queued",)),
        ("pending, R", ("queued", "running")),
        ("queued,Running,cg", ("queued", "running", "stopping")),
        ("CF,CD,F,CA,TO", ("starting", "completed", "failed", "cancelled", "timeout")),
        ("configuring,timeout", ("starting", "timeout")),
        ("all", None),
        ("R, ALL", None),
    ],
)
def test_states(text: str, states: tuple[str, ...] | None) -> None:
    assert squeue.states(text) == states


@pytest.mark.parametrize("text", ["R,XX", "XX"])
def test_a_state_that_is_none(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        squeue.states(text)
    known = (
        "queued (PD), starting (CF), running (R), stopping (CG), completed (CD), failed (F), cancelled (CA), "
        "timeout (TO)"
    )
    assert caught.value.message == f"-t {text}: there is no state 'XX'; there are {known}."


def of(number: int, state: JobState = JobState.RUNNING, **fields: Any) -> models.Job:
    return a_job(f"JOB0000{number}", state, **fields)


@pytest.mark.parametrize(
    ("fields", "jobs", "order"),
    [
        ("i", [of(2), of(1), of(3)], "123"),
        ("-i", [of(2), of(1), of(3)], "321"),
        ("+%i", [of(2), of(1)], "12"),
        ("p", [of(1, priority=10), of(2, priority=9)], "21"),
        ("-p, i", [of(3, priority=1), of(2, priority=1), of(1, priority=0)], "231"),
        ("u,-i", [of(1, user="b"), of(2, user="a"), of(3, user="b")], "231"),
        ("K", [of(1, array_index=10), of(2, array_index=9), of(3), of(4, array_index=0)], "3421"),
        ("M", [of(1, started_at=NOW - 100), of(2, started_at=NOW - 9), of(3)], "321"),
        ("l", [of(1), of(2, time_limit_s=100.0), of(3, time_limit_s=20.0)], "321"),
        (
            "L",
            [
                of(1, time_limit_s=100.0, started_at=NOW - 90),
                of(2, time_limit_s=90.0, started_at=NOW - 85),
                of(3),
            ],
            "213",
        ),
        ("D", [of(1, nodes_wanted=10), of(2, nodes_wanted=9)], "21"),
        ("b", [of(1, gpus=20, nodes_wanted=2), of(2, gpus=9)], "21"),
        ("V", [of(1, submitted_at=10.0), of(2, submitted_at=9.0)], "21"),
        ("S", [of(1), of(2, expected_start_at=9.0), of(3, started_at=8.0, expected_start_at=20.0)], "321"),
        ("e", [of(1), of(2, ended_at=9.0), of(3, ended_at=10.0)], "231"),
    ],
)
def test_sorting(fields: str, jobs: list[models.Job], order: str) -> None:
    ordered = squeue.sorter(fields, lambda: NOW)(jobs)
    assert "".join(job.id[-1] for job in ordered) == order


def test_a_field_to_sort_by_that_is_none() -> None:
    with pytest.raises(InvalidRequest) as caught:
        squeue.sorter("i,-Z", lambda: NOW)
    known = ", ".join(squeue.LETTERS)
    assert caught.value.message == f"-S i,-Z: there is no field '-Z'; there are {known}."
