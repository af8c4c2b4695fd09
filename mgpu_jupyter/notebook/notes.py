"""mgpu's own lines in a cell, apart from the output of jobs: HTML in a kernel, plain lines in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Protocol

from mgpu_agent.protocol.text import as_html, printable
from mgpu_jupyter.notebook.screen import EMPTY, display

QUIET = (
    "color: var(--jp-ui-font-color2, #616161); font-family: var(--jp-ui-font-family, sans-serif); "
    "font-size: 12px"
)


class Notes(Protocol):
    """mgpu's own lines in a front end."""

    def say(self, text: str) -> None:
        """Show a line that stays."""

    def show_waiting(self, text: str) -> None:
        """Show or replace the line about waiting."""

    def clear_waiting(self) -> None:
        """Remove the line about waiting."""

    def fold(self, summary: str, lines: Sequence[str]) -> None:
        """Show a line that can be opened for more, where that is possible."""


class _Handle(Protocol):
    def update(self, obj: object, *, raw: bool) -> None:
        """Replace what is shown."""


class RichNotes:
    """Lines as HTML with a plain text beside it; the line about waiting is updated in place."""

    def __init__(self) -> None:
        self._handle: _Handle | None = None

    def say(self, text: str) -> None:
        """Show a line that stays."""
        display(bundle(text), raw=True)

    def show_waiting(self, text: str) -> None:
        """Show or replace the line about waiting."""
        if self._handle is None:
            self._handle = display(bundle(text), raw=True, display_id=True)
        else:
            self._handle.update(bundle(text), raw=True)

    def clear_waiting(self) -> None:
        """Remove the line about waiting."""
        if self._handle is not None:
            self._handle.update(EMPTY, raw=True)
            self._handle = None

    def fold(self, summary: str, lines: Sequence[str]) -> None:
        """Show a line that can be opened for more."""
        body = as_html("\n".join(lines), lines=True)
        link = "color: var(--jp-content-link-color, #1976d2); cursor: pointer"
        text = (
            f'<details style="{QUIET}">'
            f'<summary style="{link}">{as_html(summary)}</summary><pre>{body}</pre></details>'
        )
        display({"text/plain": printable(summary), "text/html": text}, raw=True)


class PlainNotes:
    """Lines on stderr for terminals, where nothing can be removed: a new one when the text changes."""

    def __init__(self) -> None:
        self._last = ""

    def say(self, text: str) -> None:
        """Show a line that stays."""
        sys.stderr.write(printable(text) + "\n")
        sys.stderr.flush()

    def show_waiting(self, text: str) -> None:
        """Show the line about waiting if it has changed."""
        if text != self._last:
            self._last = text
            self.say(text)

    def clear_waiting(self) -> None:
        """Do nothing: a terminal keeps its lines."""

    def fold(self, summary: str, lines: Sequence[str]) -> None:  # noqa: ARG002 - nothing opens in a terminal
        """Show the line."""
        self.say(summary)


def bundle(text: str) -> Mapping[str, str]:
    """Return a quiet line for any front end."""
    return {"text/plain": printable(text), "text/html": f'<div style="{QUIET}">{as_html(text)}</div>'}
