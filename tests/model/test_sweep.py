"""Sweeps: which job has which values."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.sweep import array_of, combination, variables_of, words_of

SWEEP = {"lr": ("0.1", "0.01"), "seed": ("1", "2", "3")}


def test_each_job_has_one_combination() -> None:
    assert [tuple(combination(SWEEP, index).values()) for index in range(6)] == [
        *(("0.1", seed) for seed in "123"),
        *(("0.01", seed) for seed in "123"),
    ]
    assert (array_of(SWEEP, ""), array_of(SWEEP, "%2"), array_of({"lr": ("1",)}, "")) == ("0-5", "0-5%2", "0")


def test_what_a_job_is_given() -> None:
    spec = JobSpec(command=("train", "--lr={lr}", "{other}", "{seed}"), sweep=SWEEP, array="0-5")
    assert words_of(spec, 4) == ("train", "--lr=0.01", "{other}", "2")
    assert variables_of(spec, 4) == {"SWEEP_lr": "0.01", "SWEEP_seed": "2"}
    assert (words_of(spec, None), variables_of(spec, None)) == (spec.command, {})
    plain = JobSpec(command=("x", "{lr}"), array="0-5")
    assert (words_of(plain, 1), variables_of(plain, 1)) == (plain.command, {})


@pytest.mark.parametrize("array", ["", "0-6", "9"])
def test_an_array_with_jobs_that_have_no_values_is_refused(array: str) -> None:
    with pytest.raises(InvalidRequest, match="needs an array of 0-5"):
        check(JobSpec(command=("x",), sweep=SWEEP, array=array))
    assert check(JobSpec(command=("x",), sweep=SWEEP, array="3")).sweep == SWEEP


@pytest.mark.parametrize(
    ("sweep", "throttle", "text"),
    [
        (SWEEP, "1-3", "leave --array out"),
        ({name: tuple("0123456789") for name in "abcde"}, "", "100000 combinations"),
    ],
)
def test_sweeps_that_cannot_be(sweep: dict[str, tuple[str, ...]], throttle: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        array_of(sweep, throttle)
