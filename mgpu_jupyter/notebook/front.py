"""The client's front end in a kernel: bars that are updated in place, jobs in the cell's own view."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mgpu_agent.protocol.text import as_html, printable
from mgpu_jupyter.client.front import Bar, TextBar
from mgpu_jupyter.client.gather import Tally
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.notebook.remember import mark

BAR_WIDTH = 240
FONT = (
    "font-family: var(--jp-ui-font-family, sans-serif); font-size: 12px; color: var(--jp-ui-font-color1, "
    "#212121)"
)
TRACK = "background: var(--jp-layout-color2, #e2e2e2)"
DONE = "background: var(--jp-brand-color1, #1976d2)"
BAD = "background: var(--jp-error-color1, #d32f2f)"


class RichBar:
    """One display that is updated: a bar, the count, and a line for each job that did not complete. The
    notebook saves its last state.
    """

    def __init__(self, metadata: Mapping[str, object] | None = None) -> None:
        self._metadata = metadata or {}
        self._handle: Any = None
        self._tally: Tally | None = None
        self._said: list[str] = []

    def update(self, tally: Tally) -> None:
        """Show their progress."""
        self._tally = tally
        self._show()

    def say(self, text: str) -> None:
        """Show a line below the bar."""
        self._said.append(text)
        if self._tally is not None:
            self._show()

    def close(self) -> None:
        """Leave the last state visible."""

    def _show(self) -> None:
        assert self._tally is not None
        bundle = {
            "text/plain": bar_text(self._tally, self._said),
            "text/html": bar_html(self._tally, self._said),
        }
        if self._handle is None:
            self._handle = show_bundle(bundle, display_id=True, metadata=self._metadata)
        else:
            self._handle.update(bundle, raw=True, metadata=self._metadata)


def bar_text(tally: Tally, said: list[str]) -> str:
    """Return the bar for front ends that show text."""
    return "\n".join([tally.text(), *(printable(line) for line in said)])


def bar_html(tally: Tally, said: list[str]) -> str:
    """Return the bar as HTML: blue for what completed, red for what did not, the track for the rest."""
    label = as_html(tally.text())
    parts = "".join(
        f'<span style="display: inline-block; height: 8px; width: {BAR_WIDTH * count / tally.total:.1f}px; '
        f'{colour}"></span>'
        for count, colour in ((tally.completed, DONE), (tally.failed, BAD))
        if count
    )
    track = f"display: inline-flex; width: {BAR_WIDTH}px; height: 8px; margin-right: 8px; {TRACK}"
    now = f'role="progressbar" aria-valuemin="0" aria-valuemax="{tally.total}" aria-valuenow="{tally.over}"'
    bar = f'<span {now} style="{track}">{parts}</span>'
    lines = "".join(f"<div>{as_html(line)}</div>" for line in said)
    return f'<div style="{FONT}"><div>{bar}{label}</div>{lines}</div>'


class NotebookFront:
    """Shows things in the running cell; a terminal gets text."""

    def __init__(self, attach: Callable[[Job, int | None], None], *, is_rich: bool) -> None:
        self._attach = attach
        self._is_rich = is_rich

    def bar(self, array: Job | None = None) -> Bar:
        """Return a progress bar, by which the notebook remembers the array that it is about."""
        return RichBar({} if array is None else mark(array)) if self._is_rich else TextBar()

    def attach(self, job: Job, rank: int | None) -> None:
        """Show a job until it ends."""
        self._attach(job, rank)


def show_bundle(data: object, **options: Any) -> Any:
    """Display a bundle of formats; return its handle if it has an id."""
    from IPython import display as ipython

    show: Callable[..., Any] = ipython.display
    return show(data, **{"raw": True, **options})
