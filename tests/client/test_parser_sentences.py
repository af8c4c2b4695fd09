"""What the parser of all commands says of a mistake, and what its help shows below the flags."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.parser import Help, Parser


def a_parser(**options: object) -> Parser:
    parser = Parser("mgpu x", "mgpu x 100%", "Does it.", **options)  # type: ignore[arg-type]
    parser.add_argument("--gpus", "-G", metavar="N")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--kind", choices=("a", "b"))
    parser.add_argument("jobs", nargs="+", metavar="JOB")
    return parser


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("A --gpus", "--gpus/-G needs a value (see mgpu x --help)."),
        ("A --kind c", "--kind c: write one of a, b (see mgpu x --help)."),
        ("", "JOB is missing: name it (see mgpu x --help)."),
        ("A --gpsu 1", "There is no flag --gpsu: use --gpus, or see mgpu x --help."),
        ("A --all=1", "--all: ignored explicit argument '1' (see mgpu x --help)."),
        ("A --zzzzzz", "There is no flag --zzzzzz here: see mgpu x --help."),
    ],
)
def test_a_mistake(line: str, told: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        a_parser().read(line.split())
    assert caught.value.message == told


def test_words_of_argparse_begin_with_a_capital_and_flags_do_not() -> None:
    for message, told in (("something odd", "Something odd"), ("argument --gpus: odd", "--gpus: odd")):
        with pytest.raises(InvalidRequest) as caught:
            a_parser().error(message)
        assert caught.value.message == f"{told} (see mgpu x --help)."


def test_values_that_look_like_flags() -> None:
    values = a_parser().read(["A", "--gpus", "-5m", "-G", "-3"])
    assert not isinstance(values, Help)
    assert (values.gpus, values.jobs) == ("-3", ["A"])


@pytest.mark.parametrize(
    ("examples", "more", "end"),
    [
        ((), "", []),
        (("mgpu x A",), "", ["example:", "  mgpu x A"]),
        (("mgpu x A", "mgpu x B"), "More.", ["More.", "examples:", "  mgpu x A", "  mgpu x B"]),
    ],
)
def test_help(examples: tuple[str, ...], more: str, end: list[str]) -> None:
    told = a_parser(examples=examples, more=more).read(["--help"])
    assert isinstance(told, Help)
    lines = told.text.rstrip().splitlines()
    assert lines[0] == "usage: mgpu x 100%"
    assert lines[len(lines) - len(end) :] == end
