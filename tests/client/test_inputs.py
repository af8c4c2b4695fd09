"""Which names are taken, and what is said of nodes with another Python before anything is sent."""

from __future__ import annotations

from typing import Any, cast

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.files import NodePython, PythonAnswers
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.flags import BY_DEST
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.inputs import limit_bytes, looked_up, packed, with_inputs, with_same_python
from mgpu_jupyter.model.job import JobSpec

SPEC = JobSpec(script="c = a", outputs=("c",), kernel_python_version="3.11")


class Told:
    """A server that answers one question, about the Pythons of its nodes."""

    def __init__(self, **versions: str) -> None:
        self._answer = PythonAnswers(
            nodes=tuple(NodePython(node=NodeId(n), path="/py", version=v) for n, v in versions.items())
        )

    def call(self, *_: Any) -> PythonAnswers:
        return self._answer


def asked(spec: JobSpec = SPEC, **versions: str) -> tuple[JobSpec, str]:
    return with_same_python(cast("Caller", Told(**versions)), spec)


def test_nodes_with_another_minor_version_are_left_out_and_named() -> None:
    assert asked(n1="3.11", n2="3.11") == (SPEC, "")
    assert asked() == (SPEC, "")
    spec, note = asked(n1="3.11", n2="3.12")
    assert spec.exclude == ("n2",)
    assert note.endswith("the job keeps off n2 (Python 3.12, /py).")


def test_a_request_that_no_node_could_read_is_refused() -> None:
    named = JobSpec(script="c = a", outputs=("c",), kernel_python_version="3.11", nodelist=("n1", "n2"))
    for spec, versions in ((SPEC, {"n1": "3.9"}), (named, {"n1": "3.11", "n2": "3.9", "n3": "3.11"})):
        with pytest.raises(
            InvalidRequest, match=r"This notebook has Python 3\.11.*do not reach n\d \(Python 3\.9, /py\)"
        ) as error:
            asked(spec, **versions)
        assert error.value.code == "other-python"


def test_without_variables_nobody_is_asked() -> None:
    spec = JobSpec(script="pass")
    assert with_inputs(cast("Caller", None), spec, {}) == (spec, None, "")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,a", "--in names a twice"),
        ("class", "it is a word of Python"),
        ("1a", "it is no name of a variable"),
        ("", "it is no name of a variable"),
        ("größe", "plain letters"),
    ],
)
def test_names_that_are_none(text: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        BY_DEST["inputs"].read(text, Here.real())
    assert sentence in error.value.message


def test_names_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    assert BY_DEST["inputs"].read("a, b", Here.real()) == ("a", "b")
    assert looked_up(["a"], {"a": 1, "b": 2}) == {"a": 1}
    with pytest.raises(InvalidRequest, match="there is no variable c in this notebook"):
        looked_up(["c"], {})
    assert limit_bytes() == 2 * 1024**3
    monkeypatch.setenv("MGPU_VALUES_LIMIT", "1")
    with pytest.raises(InvalidRequest, match=r"`a` has 2 MiB, and 1 MiB may travel in all"):
        packed({"a": bytes(2 << 20)})
    monkeypatch.setenv("MGPU_VALUES_LIMIT", "much")
    with pytest.raises(InvalidRequest, match="is no number of MiB"):
        limit_bytes()
