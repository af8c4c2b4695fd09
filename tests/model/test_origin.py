"""Where a request came from: one cell or another."""

from __future__ import annotations

import msgspec
import pytest

from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec, Origin, digest

HERE = Origin(notebook=digest("host", "/a.ipynb"), cell=digest("c1"), source=digest("", "print(1)"))


def test_digests() -> None:
    assert digest("host", "/a.ipynb") == digest("host", "/a.ipynb")
    assert len({digest("ab", "c"), digest("a", "bc"), digest("abc"), digest("abc", "")}) == 4
    assert (len(HERE.notebook), digest(""), digest("host", "")) == (32, "", "")


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({}, True),
        ({"cell": ""}, True),
        ({"cell": digest("c2")}, False),
        ({"source": digest("", "print(2)")}, False),
        ({"notebook": digest("host", "/b.ipynb")}, False),
        ({"notebook": ""}, False),
    ],
)
def test_the_same_cell(other: dict[str, str], same: bool) -> None:
    changed = msgspec.structs.replace(HERE, **other)
    assert (HERE.is_same_cell(changed), changed.is_same_cell(HERE)) == (same, same)


def test_without_a_notebook_nothing_is_the_same() -> None:
    assert not Origin(source=HERE.source).is_same_cell(Origin(source=HERE.source))


def test_it_travels_with_the_request() -> None:
    spec = check(JobSpec(command=("x",), origin=HERE))
    assert spec.origin == HERE
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"command": ["x"], "origin": {"notebook": "/home/me/secret.ipynb"}}, JobSpec)
