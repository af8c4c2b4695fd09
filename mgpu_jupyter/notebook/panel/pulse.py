"""Whether somebody watches: the front end is asked now and then, and a panel without an answer stops drawing.

Without this, a server keeps every message for a browser that was closed over night. The question is a hidden
`Play` widget: when started, a page that shows it counts one step and reports that. While a cell runs, answers
may have to wait for it, so that silence counts later.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ipywidgets as widgets

ASK_S = 30.0
SILENT_S = 95.0
SILENT_BUSY_S = 600.0
NEVER_MS = 24 * 3600 * 1000


class Pulse:
    """`widget` goes into the panel; `ask` is called every `ASK_S` seconds."""

    def __init__(
        self,
        is_busy: Callable[[], bool],
        on_return: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.widget: Any = widgets.Play(min=0, max=10**9, interval=NEVER_MS, show_repeat=False)
        self.widget.add_class("mgpu-beat")
        self.widget.observe(lambda _: self.heard(), "value")
        self._is_busy = is_busy
        self._on_return = on_return
        self._clock = clock
        self._heard_at = clock()

    def ask(self) -> None:
        """Ask the front end for a sign of life."""
        self.widget.playing = False
        self.widget.playing = True

    def heard(self) -> None:
        """Note a sign of life: an answer, or an action of the user."""
        was_silent = self.is_silent
        self._heard_at = self._clock()
        if was_silent:
            self._on_return()

    @property
    def is_silent(self) -> bool:
        """Whether nobody answered for too long."""
        return self._clock() - self._heard_at > (SILENT_BUSY_S if self._is_busy() else SILENT_S)
