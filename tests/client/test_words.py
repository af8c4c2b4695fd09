"""What people read about jobs and GPUs, and the cells of a row of the queue: whole texts."""

from __future__ import annotations

import time
from typing import Any

import pytest

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client import words
from mgpu_jupyter.client.queue_rows import is_held, title
from mgpu_jupyter.model.job import JobState
from tests.client.test_http import a_view
from tests.client.test_queue_rows import JOBS, a_job

NOON = time.mktime((2026, 5, 17, 12, 0, 0, 0, 0, -1))
HOUR = 3600.0


@pytest.mark.parametrize(
    ("hours", "text"),
    [
        (0, "12:00"),
        (1.5, "13:30"),
        (11.9, "23:54"),
        (12.5, "18 May 00:30"),
        (-12, "00:00"),
        (-13, "16 May 23:00"),
    ],
)
def test_a_time_of_day_has_its_day_when_it_is_another(hours: float, text: str) -> None:
    assert words.moment(NOON + hours * HOUR, NOON) == text


def test_a_night_is_not_another_day() -> None:
    evening = NOON + 10 * HOUR
    assert words.moment(evening + 4 * HOUR, evening) == "02:00"
    assert words.moment(evening + 12 * HOUR, evening) == "18 May 10:00"


@pytest.mark.parametrize(
    ("sentence", "part"),
    [
        ("Waits for 4 GPUs.", "waits for 4 GPUs"),
        ("GPU 0 is lost.", "GPU 0 is lost"),
        ("A", "A"),
        ("Ab...", "ab"),
        ("", ""),
    ],
)
def test_a_sentence_in_another(sentence: str, part: str) -> None:
    assert words.lowered(sentence) == part


def a_gpu(**changes: Any) -> models.Gpu:
    values: dict[str, Any] = {
        "index": 0,
        "uuid": GpuUuid("GPU-1"),
        "name": "A100",
        "memory_bytes": 80_000_000_000,
        "simulated": False,
    }
    return models.Gpu(**(values | changes))


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({}, "free"),
        ({"reason": "Somebody else computes."}, "free: Somebody else computes."),
        ({"state": "unhealthy", "reason": "It is hot."}, "unhealthy: It is hot."),
        ({"job_id": JobId("ABCD1234")}, "ABCD1234"),
        ({"job_id": JobId("ABCD1234"), "user": "ann"}, "ABCD1234 of ann"),
        (
            {"job_id": JobId("ABCD1234"), "user": "ann", "state": "unhealthy", "reason": "hot"},
            "ABCD1234 of ann, unhealthy: hot",
        ),
    ],
)
def test_who_has_a_gpu(changes: dict[str, Any], text: str) -> None:
    assert words.holder(a_gpu(**changes)) == text


def test_names_of_gpus() -> None:
    assert words.gpu_name(a_gpu()) == "A100"
    assert words.gpu_name(a_gpu(simulated=True)) == "A100 (simulated)"
    assert words.gpu_count(1, simulated=True) == "1 simulated GPU"
    assert words.gpu_count(4, simulated=True) == "4 simulated GPUs"


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("abcdefgh", 8, "abcdefgh"),
        ("abcdefgh", 7, "abc…fgh"),
        ("abcdefgh", 6, "abc…gh"),
        ("abcdefgh", 3, "a…h"),
        ("abcdefgh", 2, "a…"),
        ("abcdefgh", 1, "…"),
        ("日本語文字", 6, "日…字"),
        ("日本語文字", 7, "日本…字"),
    ],
)
def test_the_middle_is_left_out(text: str, room: int, shown: str) -> None:
    assert words.middle(text, room) == shown


def test_names_of_nodes() -> None:
    assert words.names([]) == ""
    assert words.names(["a", "b", "c", "d"]) == "a, b, c, d"


def a_placement(rank: int, **changes: Any) -> models.Placement:
    return models.Placement(node=NodeId(f"n{rank}"), rank=rank, gpus=(), gpu_indices=(), **changes)


BAD = (
    a_placement(0, exit_code=0, ended_at=3.0),
    a_placement(1, exit_code=3, ended_at=9.0),
    a_placement(2, signal=9, ended_at=8.0),
    a_placement(3, exit_code=4, ended_at=8.0),
    a_placement(4, exit_code=5),
)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"state": JobState.RUNNING, "nodes": ("n1",)}, "Running on n1"),
        ({"state": JobState.QUEUED}, "Queued"),
        ({"state": JobState.TIMEOUT, "nodes": ("n1",)}, "Time limit reached on n1"),
        (
            {"state": JobState.COMPLETED, "gpus": 0, "ended_at": 3.0, "exit_code": 0},
            "Done in 1.0 s, no GPU, exit 0",
        ),
        ({"state": JobState.COMPLETED, "ended_at": 3.0, "exit_code": 2}, "Done in 1.0 s, 1 GPU, exit 2"),
        (
            {"state": JobState.FAILED, "ended_at": 5.2, "placements": BAD},
            "Failed after 3.2 s: rank 2 on n2 ended first, killed by signal 9",
        ),
        (
            {"state": JobState.FAILED, "ended_at": 5.2, "placements": BAD[1:2]},
            "Failed after 3.2 s: on n1, exit code 3",
        ),
        ({"state": JobState.FAILED, "placements": BAD[:1], "exit_code": 1}, "Failed, exit code 1"),
        ({"state": JobState.FAILED}, "Failed"),
    ],
)
def test_how_jobs_end(changes: dict[str, Any], text: str) -> None:
    assert words.ending(a_view(**changes)) == text


def test_whose_order_a_cancel_was() -> None:
    job = a_view(JobState.CANCELLED, ended_at=42.0, nodes=("n1",))
    assert words.ending(job, by_you=True) == "Cancelled by you after 40 s on n1"


def test_the_first_to_fail_is_the_one_that_ended_first() -> None:
    assert words.first_to_fail(a_view(placements=BAD)) == BAD[2]
    assert words.first_to_fail(a_view(placements=(BAD[4], BAD[1]))) == BAD[1]
    assert words.first_to_fail(a_view(placements=BAD[:1])) is None


def test_a_signal_is_the_exit_status_of_a_shell() -> None:
    job = a_view(JobState.FAILED, placements=(BAD[0], BAD[2]))
    assert words.exit_status(job) == 137
    assert words.exit_status(a_view(JobState.RUNNING)) == 0


def test_how_long_a_job_ran() -> None:
    assert words.ran_for(a_view(ended_at=5.0)) == 3.0
    assert words.ran_for(a_view()) == 0.0
    assert words.ran_for(a_view(started_at=None, ended_at=5.0)) == 0.0


def test_waiting_without_place_or_reason() -> None:
    assert words.waiting(a_view(JobState.QUEUED)) == "mgpu AAAA1111 waiting"


def test_titles_and_holds() -> None:
    assert title(a_job("JOB00001", name="train")) == "train"
    assert title(a_job("JOB00001")) == "run JOB00001"
    assert title(a_job("JOB00001", command="")) == "JOB00001"
    assert is_held(JOBS[3])
    assert not is_held(JOBS[4])
    assert not is_held(a_job("JOB00001", JobState.RUNNING, reason_code="held"))
