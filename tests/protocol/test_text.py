"""Foreign text is made harmless for each place by one function, whatever is in it."""

from __future__ import annotations

import html.parser
import io
import json
import logging
import sys
import time
import unicodedata

import pytest

from mgpu_agent.protocol.log_lines import LogFormatter
from mgpu_agent.protocol.text import (
    MARKS,
    VALUE_CHARS,
    as_html,
    json_text,
    pad,
    printable,
    tell,
    width,
)
from tests import hostile


def is_harmless(text: str, also: str = "") -> bool:
    """Tell whether a terminal does nothing with a text but show it; `also` may stand in it."""
    marks = 0
    for char in text:
        marks = marks + 1 if unicodedata.category(char) in ("Mn", "Me") else 0
        if marks > MARKS or (not char.isprintable() and char not in also):
            return False
    return True


def test_any_text_becomes_part_of_one_line() -> None:
    for text in hostile.ALL:
        shown = printable(text)
        assert is_harmless(shown)
        assert len(shown) <= VALUE_CHARS
        assert printable(shown) == shown
        shown.encode()


def test_what_is_left_of_a_text() -> None:
    assert printable("Zoë's job – 東京 №1, नमस्ते") == "Zoë's job – 東京 №1, नमस्ते"
    assert (
        printable("a\tb\nc\x1b[2Jd\u202ee\u00a0f\ud800g\u3164h") == "a b c\ufffd[2Jd\ufffde f\ufffdg\ufffdh"
    )
    assert printable("e" + "\u0301" * 9 + "f") == "e" + "\u0301" * 4 + "f"
    assert printable("abcdef", 4) == "abc…"


def test_a_long_text_costs_no_more_than_what_is_shown_of_it() -> None:
    began = time.process_time()
    printable("\u0301" * 20_000_000)
    assert time.process_time() - began < 0.5


def test_a_line_that_is_told_is_one_line() -> None:
    for text in hostile.ALL:
        target = io.StringIO()
        tell(f"Node {text}: online", "next", file=target)
        first, second, rest = target.getvalue().split("\n")
        assert is_harmless(first, "\t")
        assert (second, rest) == ("next", "")


def test_telling_a_terminal_that_knows_few_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="ascii"))
    tell("Zoë \x1b[2J", end="!", flush=True)
    assert raw.getvalue() == b"Zo? ?[2J!"


class _Tags(html.parser.HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []
        self.text = ""
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_html_shows_any_text() -> None:
    for text in hostile.ALL:
        shown = printable(text)
        read = _Tags(f"<p title=\"{as_html(text)}\" id='{as_html(text)}'>{as_html(text)}</p>")
        assert (read.tags, read.text) == ([("p", [("title", shown), ("id", shown)])], shown)
        assert is_harmless(as_html(text, lines=True), "\n\t")


def test_html_of_several_lines() -> None:
    assert as_html("a\n\tb\x1b<i>", lines=True) == "a\n\tb\ufffd&lt;i&gt;"
    assert as_html(7) == "7"


def test_a_json_document_can_be_shown_and_read() -> None:
    for text in hostile.ALL:
        shown = json_text({text: [text]})
        assert is_harmless(shown)
        assert json.loads(shown) == {text: [text]}
        target = io.StringIO()
        tell(shown, file=target)
        assert target.getvalue() == f"{shown}\n"


def test_a_record_of_the_log_is_one_line() -> None:
    for text in hostile.ALL:
        formatter = LogFormatter()
        line = formatter.format(logging.LogRecord("mgpu.x", logging.WARNING, "", 0, "said %s", (text,), None))
        assert is_harmless(line)
        try:
            raise ValueError(text)
        except ValueError:
            record = logging.LogRecord("mgpu.x", logging.WARNING, "", 0, "failed", (), sys.exc_info())
        first, *rest = formatter.format(record).split("\n")
        assert first.endswith(" WARNING mgpu.x failed")
        assert rest
        assert all(line.startswith("    ") and is_harmless(line) for line in rest)


def test_columns_of_a_terminal() -> None:
    assert [width(text) for text in ("abc", "東京", "e\u0301", "")] == [3, 4, 1, 0]
    assert [pad(text, 5) for text in ("abc", "東京", "abcdef")] == ["abc  ", "東京 ", "abcdef"]
