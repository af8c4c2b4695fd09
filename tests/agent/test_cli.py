"""`mgpu_node` as a command: what a wrong flag gets."""

from __future__ import annotations

import pytest

from mgpu_agent.cli import main


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--fake-gpus", "x"], "mgpu_node: argument --fake-gpus: 'x' is not a number of GPUs: see mgpu_node --help.\n"),
        (["--frobnicate"], "mgpu_node: unrecognized arguments: --frobnicate: see mgpu_node --help.\n"),
    ],
)
def test_a_wrong_word_is_one_sentence(words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(words)

    assert (caught.value.code, capsys.readouterr().err) == (2, sentence)
