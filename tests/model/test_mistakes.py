"""Sentences of msgspec as people read them."""

from __future__ import annotations

import msgspec
import pytest

from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.mistakes import Mistake, about_body, mistake_of


@pytest.mark.parametrize(
    ("fields", "mistake"),
    [
        ({"nodes": 0}, Mistake("it must be at least 1", ".nodes")),
        ({"nodes": 99_999}, Mistake("it must be at most 10000", ".nodes")),
        ({"nodes": "a"}, Mistake("it must be a whole number, and it is text", ".nodes")),
        ({"time_limit_s": -1}, Mistake("it must be above 0", ".time_limit_s")),
        ({"gpu_mem_bytes": 2**60}, Mistake("it is too large", ".gpu_mem_bytes")),
        ({"name": "x" * 201}, Mistake("it may have at most 200 characters", ".name")),
        ({"name": "a\nb"}, Mistake("line breaks and control characters are not allowed", ".name")),
        (
            {"nodelist": ["?"]},
            Mistake("use letters, digits, dot, dash and underscore, at most 63", ".nodelist[0]"),
        ),
        ({"env": {"1": "a"}}, Mistake("use letters, digits and underscore", ".env")),
        ({"inputs": "?"}, Mistake("it must be a SHA-256, 64 digits 0-9 and a-f", ".inputs")),
        (
            {"kernel_python_version": "?"},
            Mistake("some characters are not allowed here", ".kernel_python_version"),
        ),
        ({"node_gpu_ids": {"a": []}}, Mistake("it is empty", ".node_gpu_ids[...]")),
        ({"terminal": [1]}, Mistake("it may have exactly 2 entries", ".terminal")),
        ({"zebra": 1}, Mistake("there is no field zebra")),
        ({"on_disconnect": "q"}, Mistake("'q' is none of the values that it can have", ".on_disconnect")),
    ],
)
def test_what_is_wrong_is_said_in_words(fields: dict[str, object], mistake: Mistake) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(fields, JobSpec)
    assert mistake_of(caught.value) == mistake


class _Body(msgspec.Struct):
    name: str


def test_a_body() -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert({}, _Body)
    assert about_body(caught.value) == (
        "The request is not valid: the field name is missing; change that and send it again (see "
        "openapi.json)."
    )
    assert mistake_of(msgspec.ValidationError("Number out of range")) == Mistake("it is too large")
    assert mistake_of(msgspec.ValidationError("Something `else`")) == Mistake("something else")
