"""`mgpu_node` as a command: what a wrong flag gets."""

from __future__ import annotations

import pytest

from mgpu_agent.cli import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--fake-gpus", "x"], "mgpu_node: argument --fake-gpus: 'x' is not a number of GPUs: see mgpu_node --help.\n"),
        *(
            (
                ["--fake-gpus", many],
                "mgpu_node: argument --fake-gpus: one node offers at most 1024 GPUs, so start several nodes: see mgpu_node --help.\n",
            )
            for many in ("1025", "100000", "9" * 5_000)
        ),
        (["--frobnicate"], "mgpu_node: unrecognized arguments: --frobnicate: see mgpu_node --help.\n"),
    ],
)
def test_a_wrong_word_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)

    assert (caught.value.code, capsys.readouterr().err) == (2, sentence)
