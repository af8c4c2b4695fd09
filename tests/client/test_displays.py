"""What ranks displayed, in the midst of what they printed: found whole, in any pieces, and only with the
right key.
"""

from __future__ import annotations

import json

import pytest

from mgpu_jupyter.client import displays
from mgpu_jupyter.client.displays import Display, Splitter, Stripper, without_displays
from mgpu_jupyter.client.lines import Tail

KEY = "k3y"


def shown(text: str, key: str = KEY, **data: str) -> str:
    body = json.dumps({"kind": "display", "data": {"text/plain": text, **data}, "metadata": {}, "id": ""})
    return f"\x1b_mgpu;{key};{body}\x1b\\{text}\n\x1b_mgpu;{key};\x1b\\"


TEXT = f"before{shown('<Figure>', **{'text/html': '<b>é</b>'})}between\n{shown('two')}after\x1b[31mred\x1b[0m"
WHOLE = [
    "before",
    Display("display", {"text/plain": "<Figure>", "text/html": "<b>é</b>"}),
    "between\n",
    Display("display", {"text/plain": "two"}),
    "after\x1b[31mred\x1b[0m",
]


def joined(pieces: list[str | Display]) -> list[str | Display]:
    """Text that came in pieces, in one."""
    result: list[str | Display] = []
    for piece in pieces:
        if isinstance(piece, str) and result and isinstance(result[-1], str):
            result[-1] += piece
        else:
            result.append(piece)
    return result


@pytest.mark.parametrize("size", [1, 2, 3, 7, 50, 10_000])
def test_displays_are_found_in_any_pieces(size: int) -> None:
    splitter = Splitter()
    pieces = [
        one for start in range(0, len(TEXT), size) for one in splitter.feed(TEXT[start : start + size], KEY)
    ]
    assert joined([*pieces, *splitter.flush(KEY)]) == WHOLE


@pytest.mark.parametrize("key", ["", "other"])
def test_without_the_key_there_is_only_text(key: str) -> None:
    splitter = Splitter()
    assert (
        "".join(map(str, splitter.feed(TEXT, key))) == "before<Figure>\nbetween\ntwo\nafter\x1b[31mred\x1b[0m"
    )


def test_what_another_key_shows_within_is_text() -> None:
    """A job that prints what another job displayed does not display it."""
    splitter = Splitter()
    assert joined(splitter.feed(f"a{shown('theirs', 'stolen')}b{shown('mine')}c", KEY)) == [
        "atheirs\nb",
        Display("display", {"text/plain": "mine"}),
        "c",
    ]


@pytest.mark.parametrize("body", ["{", '{"kind": "dance"}', "[]", '{"kind": "display", "data": 1}'])
def test_what_cannot_be_read_is_text(body: str) -> None:
    assert "".join(map(str, Splitter().feed(f"a\x1b_mgpu;{KEY};{body}\x1b\\b", KEY))) == "ab"


def test_a_sequence_that_never_ends_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(displays, "MAX_HELD", 100)
    splitter = Splitter()
    pieces = [one for _ in range(30) for one in splitter.feed(f"\x1b_mgpu;{KEY};" + "x" * 20, KEY)]
    assert "".join(map(str, pieces)).count("x") >= 400
    assert Splitter().flush(KEY) == []
    begun = Splitter()
    assert (begun.feed("a\x1b_mgpu;k;half", KEY), begun.flush(KEY)) == (["a"], [])
    begun = Splitter()
    assert (begun.feed("a\x1b_m", KEY), begun.flush(KEY)) == (["a"], ["\x1b_m"])


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_bytes_are_stripped_in_any_pieces(size: int) -> None:
    data, stripper = TEXT.encode(), Stripper()
    out = (
        b"".join(stripper.feed(data[start : start + size]) for start in range(0, len(data), size))
        + stripper.flush()
    )
    assert out.decode() == "before<Figure>\nbetween\ntwo\nafter\x1b[31mred\x1b[0m" == without_displays(TEXT)


def test_last_lines_show_no_half_of_a_display() -> None:
    tail = Tail()
    tail.feed(0, "start\n" + shown("<Figure>", **{"image/png": "A" * 40_000}) + "Traceback\nValueError: no\n")
    assert tail.last_lines(0, 9) == ("<Figure>", "Traceback", "ValueError: no")
