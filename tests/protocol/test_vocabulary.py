from __future__ import annotations

import re

import pytest

from mgpu_agent.protocol import errors
from mgpu_agent.protocol.ids import (
    JOB_ID_ALPHABET,
    JOB_ID_LENGTH,
    JOB_ID_PATTERN,
    NODE_ID_PATTERN,
    AttemptKey,
    JobId,
)


def test_attempt_key_reads_as_its_three_parts() -> None:
    assert str(AttemptKey(JobId("AB12CD34"), 2, 99)) == "AB12CD34.2.99"


def test_attempt_keys_of_a_job_sort_by_attempt_then_epoch() -> None:
    job = JobId("AB12CD34")
    keys = [AttemptKey(job, 2, 1), AttemptKey(job, 1, 9), AttemptKey(job, 1, 3)]
    assert sorted(keys) == [AttemptKey(job, 1, 3), AttemptKey(job, 1, 9), AttemptKey(job, 2, 1)]


def test_every_job_id_matches_the_pattern() -> None:
    assert all(re.match(JOB_ID_PATTERN, character * JOB_ID_LENGTH) for character in JOB_ID_ALPHABET)


@pytest.mark.parametrize(
    ("name", "good"),
    [
        ("n1", True),
        ("gpu-01.lab_2", True),
        ("A" * 63, True),
        ("A" * 64, False),
        ("", False),
        (".n", False),
        ("a b", False),
        ("a/b", False),
    ],
)
def test_node_names(name: str, good: bool) -> None:
    assert bool(re.match(NODE_ID_PATTERN, name)) is good


def test_error_tree_is_the_one_that_is_drawn() -> None:
    """The docstring of the module is the map; it must not lie."""
    drawn: list[tuple[int, str]] = []
    for line in (errors.__doc__ or "").splitlines():
        word = line.split()[0] if line.startswith("    ") else ""
        if word:
            drawn.append(((len(line) - len(line.lstrip()) - 4) // 2, word))

    def tree(kind: type[Exception], depth: int) -> list[tuple[int, str]]:
        own = [child for child in kind.__subclasses__() if child.__module__ == errors.__name__]
        return [(depth, kind.__name__), *(entry for child in own for entry in tree(child, depth + 1))]

    assert drawn == tree(errors.MgpuError, 0)


def test_error_carries_code_sentence_and_details() -> None:
    error = errors.Conflict("job-over", "The job is over already.", {"job_id": "AB12CD34"})
    assert (str(error), error.code, error.message, error.details) == (
        "The job is over already.",
        "job-over",
        "The job is over already.",
        {"job_id": "AB12CD34"},
    )
