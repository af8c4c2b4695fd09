"""500 files with mistakes of all kinds: each loads, or gives one sentence with its line and a hint."""

from __future__ import annotations

import random
import re

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.server.cluster_file import (
    parse_cluster_file,
)
from tests.server.test_cluster_file import FULL


def mutated(rng: random.Random) -> str:
    """Return the full file with a few mistakes as people and editors make them."""
    lines = FULL.splitlines()
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(lines))
        line = lines[place]
        kind = rng.randrange(10)
        if kind == 0 and line:
            spot = rng.randrange(len(line))
            line = line[:spot] + line[spot + 1 :]
        elif kind == 1:
            spot = rng.randrange(len(line) + 1)
            line = line[:spot] + rng.choice("abz:{}[],\"'#&*!|>%@`\t-?\\\x07é ") + line[spot:]
        elif kind == 2:
            line = " " * rng.randint(1, 3) + line
        elif kind == 3:
            line = line.lstrip()
        elif kind == 4:
            lines.insert(place, line)
        elif kind == 5:
            line = re.sub(
                r"(:\s*).*",
                lambda found: (
                    found[1]
                    + rng.choice(["", "-1", "yes", "[]", "{}", "1e400", "null", "'x", "0x1g", "99999999999"])
                ),
                line,
            )
        elif kind == 6 and line:
            spot = rng.randrange(len(line))
            line = line[:spot] + line[spot : spot + 2][::-1] + line[spot + 2 :]
        elif kind == 7:
            other = rng.randrange(len(lines))
            line, lines[other] = lines[other], line
        elif kind == 8:
            line = line[: rng.randrange(len(line) + 1)]
        else:
            line = line.upper()
        lines[place] = line
    return "\n".join(lines) + "\n"


def outcome(text: str) -> str:
    """Return the sentence that a text is refused with; nothing when it loads."""
    try:
        parse_cluster_file(text, "f.yaml")
    except InvalidRequest as error:
        return error.message
    return ""


@pytest.mark.slow
def test_500_mutated_files_each_load_or_give_one_sentence_with_line_and_hint():
    rng = random.Random(20_261_117)
    loaded, sentences = 0, set()
    for number in range(500):
        text = mutated(rng)
        sentence = outcome(text)
        if sentence:
            told = re.fullmatch(r"f\.yaml line (\d+): ([^\n]+); ([^\n]+)\.", sentence)
            assert told is not None, (number, sentence)
            assert 1 <= int(told[1]) <= text.count("\n") + 1, (number, sentence)
            sentences.add(sentence)
        else:
            loaded += 1
    assert (loaded > 50, len(sentences) > 100) == (True, True), (loaded, len(sentences))
