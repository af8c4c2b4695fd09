"""Label expressions: what they parse to, and that they mean what the same words mean in Python."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.constraint import AllOf, AnyOf, Expression, Has, Not, holds, parse_constraint

A, B, C = Has("a"), Has("b"), Has("c")


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("", None),
        ("  ", None),
        ("a", A),
        (" a ", A),
        ("rack=r1", Has("rack", "r1")),
        ("rack = r1", Has("rack", "r1")),
        ("net/speed=10.5:x-y", Has("net/speed", "10.5:x-y")),
        ("a&b&c", AllOf((A, B, C))),
        ("a|b|c", AnyOf((A, B, C))),
        ("a|b&c", AnyOf((A, AllOf((B, C))))),
        ("(a|b)&c", AllOf((AnyOf((A, B)), C))),
        ("!a&b", AllOf((Not(A), B))),
        ("!(a&b)", Not(AllOf((A, B)))),
        ("!!a", Not(Not(A))),
        ("((a))", A),
        ("a100&(rack=r1|!old)", AllOf((Has("a100"), AnyOf((Has("rack", "r1"), Not(Has("old"))))))),
    ],
)
def test_expressions(text: str, expression: Expression | None) -> None:
    assert parse_constraint(text) == expression


@pytest.mark.parametrize(
    "text",
    ["&", "a&", "a b", "a|", "!", "(a", "a)", "()", "a=", "=a", "a==b", "a&&b", "a,b", "ä", "a&(b|)", "-a"],
)
def test_what_is_no_expression(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_constraint(text)
    sentence = f"--constraint {text}: write labels with & | ! and brackets, as in a100&(rack=r1|!old)."
    assert (caught.value.code, caught.value.message) == ("bad-constraint", sentence)


@pytest.mark.parametrize("text", ["(" * 500 + "a" + ")" * 500, "!" * 900 + "a"])
def test_a_deep_one_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_constraint(text)
    sentence = "--constraint goes more than 50 brackets or ! deep: write it flatter."
    assert (caught.value.code, caught.value.message) == ("bad-constraint", sentence)


def test_a_long_one_is_not_deep() -> None:
    assert parse_constraint("&".join(["a"] * 400)) == AllOf((A,) * 400)


LEAVES = st.builds(Has, st.sampled_from("abc"), st.none() | st.sampled_from(["1", "2"]))
TREES: st.SearchStrategy[Expression] = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Not, inner)
        | st.builds(AllOf, st.lists(inner, min_size=2, max_size=3).map(tuple))
        | st.builds(AnyOf, st.lists(inner, min_size=2, max_size=3).map(tuple))
    ),
    max_leaves=12,
)
LABELS = st.dictionaries(st.sampled_from("abc"), st.sampled_from(["", "1", "2"]))


def written(expression: Expression) -> str:
    """Write an expression with brackets around everything within it."""
    match expression:
        case Has(name, value):
            return name if value is None else f"{name}={value}"
        case Not(one):
            return f"!({written(one)})"
        case AllOf(several):
            return "&".join(f"({written(one)})" for one in several)
        case AnyOf(several):
            return "|".join(f"({written(one)})" for one in several)


@given(TREES)
def test_what_is_written_is_read_again(expression: Expression) -> None:
    assert parse_constraint(written(expression)) == expression


TEXTS = st.recursive(
    st.sampled_from(["a", "b", "c", "a=1", "b=2"]),
    lambda inner: (
        st.builds("!{}".format, inner)
        | st.builds("({})".format, inner)
        | st.builds("{}{}{}".format, inner, st.sampled_from("&|"), inner)
    ),
    max_leaves=12,
)


@given(TEXTS, LABELS)
def test_it_means_what_python_means(text: str, labels: dict[str, str]) -> None:
    """Python's `not`, `and`, `or` bind in the same order."""
    python = re.sub(r"(\w)(?:=(\w))?", lambda leaf: f"({_in_python(leaf[1], leaf[2])})", text)
    python = python.replace("!", " not ").replace("&", " and ").replace("|", " or ")
    expression = parse_constraint(text)
    assert expression is not None
    assert holds(expression, labels) == eval(python.strip(), {"labels": labels})


def _in_python(name: str, value: str | None) -> str:
    return f"{name!r} in labels" if value is None else f"labels.get({name!r}) == {value!r}"
