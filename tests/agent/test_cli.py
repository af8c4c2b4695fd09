"""`mgpu_node` as a command: what a wrong flag gets."""

from __future__ import annotations

import argparse
from resource import RLIM_INFINITY

import pytest

from mgpu_agent.cli import main
from mgpu_agent.node_flags import _limit


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ["--fake-gpus", "x"],
            (
                "mgpu_node: argument --fake-gpus: 'x' is not a number of GPUs, write one like 2: see "
                "mgpu_node --help.\n"
            ),
        ),
        *(
            (
                ["--fake-gpus", many],
                (
                    "mgpu_node: argument --fake-gpus: one node offers at most 1024 GPUs, so start several "
                    "nodes: see mgpu_node --help.\n"
                ),
            )
            for many in ("1025", "100000", "9" * 5_000)
        ),
        (["--frobnicate"], "mgpu_node: unrecognized arguments: --frobnicate: see mgpu_node --help.\n"),
    ],
)
def test_a_wrong_word_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)

    assert (caught.value.code, capsys.readouterr().err) == (2, sentence)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nofile=10", ("nofile", 10, 10)),
        ("nofile=10:20", ("nofile", 10, 20)),
        ("nproc=10:unlimited", ("nproc", 10, RLIM_INFINITY)),
        ("nofile=20:10", None),
        ("nofile=unlimited:10", None),
        ("nofile=-1", None),
        ("nofile", None),
        ("files=10", None),
    ],
)
def test_limits_that_could_not_be_set_are_refused_where_they_are_written(
    text: str, value: tuple[str, int, int] | None
) -> None:
    """A helper that cannot set them would start nothing at all."""
    if value is not None:
        assert _limit(text) == value
        return
    with pytest.raises(argparse.ArgumentTypeError, match="SOFT:HARD"):
        _limit(text)
