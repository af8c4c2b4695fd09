"""Wrong words, through programs and magic: one sentence, the exit code, no traceback and no pattern."""

from __future__ import annotations

import re
import shlex

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport
from mgpu_jupyter.client.request import parse
from tests.cli.wrong_inputs import WRONG as EARLIER
from tests.cli.wrong_programs import PROGRAMS
from tests.cli.wrong_requests import REQUESTS

FOR_PROGRAMMERS = re.compile(r"Traceback|[Ee]xpected |regex|\\\\x|`int`|`str`|invalid choice")
WRONG = (*EARLIER, *REQUESTS, *PROGRAMS)
ELSEWHERE = ("--master-", "works only in", "--again", "--label")
"""What magics have no flag for, or have one."""
ON_LINES = [
    (line, sentence)
    for line, _, sentence in WRONG
    if line.startswith("mgpu_srun ") and not any(word in line + sentence for word in ELSEWHERE)
]


@pytest.mark.parametrize(("line", "code", "sentence"), WRONG, ids=[line for line, _, _ in WRONG])
def test_a_wrong_line_is_answered_by_one_sentence(
    line: str, code: int, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    mock = MockTransport()
    name, *words = shlex.split(line)
    found = getattr(entry, name)(words, lambda: Client(transport=mock))
    assert (found, capsys.readouterr(), mock.requests) == (code, ("", f"{sentence}\n"), [])
    assert FOR_PROGRAMMERS.search(sentence) is None


def test_each_is_there_once() -> None:
    assert len({line for line, _, _ in WRONG}) == len(WRONG) > 200


@pytest.mark.parametrize(("line", "sentence"), ON_LINES, ids=[line for line, _ in ON_LINES])
def test_a_magic_says_the_same(line: str, sentence: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse(shlex.split(line)[1:], environ={}, in_notebook=True)
    assert caught.value.message == sentence
