"""Which requests of a notebook may display, and by which key."""

from __future__ import annotations

import pytest

from mgpu_jupyter.model.display import display_key, with_display
from mgpu_jupyter.model.job import JobSpec


def test_a_python_cell_displays_by_its_key() -> None:
    spec = with_display(JobSpec(script="print(1)", env={"A": "b"}), "k1")
    assert spec == JobSpec(script="print(1)", env={"A": "b", "MGPU_DISPLAY_KEY": "k1"})
    assert (display_key(spec), with_display(spec, "k2")) == ("k1", spec)


@pytest.mark.parametrize(
    "spec",
    [JobSpec(command=("true",)), JobSpec(script="#!/bin/sh\ntrue"), JobSpec(script="print(1)", pty=True)],
)
def test_other_requests_have_nothing_to_display_by(spec: JobSpec) -> None:
    assert (with_display(spec, "k1"), display_key(spec)) == (spec, "")
