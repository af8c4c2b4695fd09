"""What a person reads of HTML: its pieces of text in order, with what is said of drawings."""

from __future__ import annotations

from html.parser import HTMLParser


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._hidden = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "style":
            self._hidden += 1
        if tag == "svg" and (label := dict(attrs).get("aria-label")):
            self.found.append(f"({label})")

    def handle_endtag(self, tag: str) -> None:
        if tag == "style":
            self._hidden -= 1

    def handle_data(self, data: str) -> None:
        if not self._hidden and (text := data.strip()):
            self.found.append(text)


def visible(page: str) -> list[str]:
    """Return the pieces of text of a page; a drawing is its label in brackets."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    return reader.found
