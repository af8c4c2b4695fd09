from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec

DIGEST = "0" * 64


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (JobSpec(command=("true",), outputs=("c",)), "--in and --out are for Python cells"),
        (JobSpec(command=("true",), inputs=DIGEST), "--in and --out are for Python cells"),
        (JobSpec(script="#!/bin/sh\ntrue", outputs=("c",)), "take out its first line with #!"),
        (JobSpec(script="c = 1", image="python:3", outputs=("c",)), "do not reach into a container"),
        (JobSpec(script="c = 1", mpi=True, outputs=("c",)), "do not go with --mpi"),
        (JobSpec(script="c = 1", outputs=("c", "c")), "--out c: it is a word of Python, or named twice"),
        (JobSpec(script="c = 1", outputs=("class",)), "--out class: it is a word of Python, or named twice"),
    ],
)
def test_requests_that_can_have_no_variables_are_refused(spec: JobSpec, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        check(spec)
    assert sentence in error.value.message


def test_a_cell_may_have_variables_both_ways() -> None:
    spec = JobSpec(script="c = a", inputs=DIGEST, outputs=("c",))
    assert check(spec) == spec
