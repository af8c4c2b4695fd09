"""Notes which lines of the product run, test by test, in whatever process imports it. Imports nothing of it.

`Copy.map` has the product of its copy execute this file and call `install`. The process of pytest keeps its
notes in memory (`tests.mutate.selection` fetches them); every other process appends each line at once, since
it may be killed. Each line is noted once for a test.
"""

from __future__ import annotations

import os
import sys
import threading
from types import CodeType, FrameType
from typing import Any

NOTHING: set[int] = set()


class Tracer:
    """What was seen, and for which test."""

    def __init__(self, root: str, place: str) -> None:
        self._products = (f"{root}/mgpu_agent/", f"{root}/mgpu_jupyter/")
        self._cut = len(root) + 1
        self._notes = f"{place}/notes"
        self._test = _current(place)
        self._owner = 0
        self._seen: set[tuple[str, int]] = set()
        # By identity: to compare code objects costs more than to call them. Each is kept, so that none is
        # another's successor at the same address.
        self._left: dict[int, tuple[CodeType, set[int]]] = {}

    def begin(self, test: str) -> None:
        """From now on this process runs this test; what is seen is kept for `end`."""
        self._test, self._owner = test, os.getpid()
        self._seen = set()
        self._left = {}

    def end(self) -> set[tuple[str, int]]:
        """Return file and line of all that ran since the beginning."""
        return self._seen

    def call(self, frame: FrameType, event: str, arg: object) -> Any:
        """Follow a function of the product that has lines nobody has seen in this test."""
        code = frame.f_code
        known = self._left.get(id(code))
        if known is None:
            is_product = code.co_filename.startswith(self._products)
            lines = {line for _, _, line in code.co_lines() if line} if is_product else NOTHING
            known = self._left[id(code)] = (code, lines)
        return self._line if known[1] else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            code = frame.f_code
            known = self._left.get(id(code))
            if known is None:
                return self.call(frame, event, arg)
            if frame.f_lineno in known[1]:
                known[1].discard(frame.f_lineno)
                self._note(code.co_filename[self._cut :], frame.f_lineno)
        return self._line

    def _note(self, path: str, line: int) -> None:
        if self._owner == os.getpid():
            self._seen.add((path, line))
            return
        try:
            number = os.open(self._notes, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.write(number, f"{self._test}\t{path}\t{line}\n".encode())
        except OSError:
            pass
        finally:
            os.close(number)


def _current(place: str) -> str:
    try:
        with open(f"{place}/current") as file:
            return file.read()
    except OSError:
        return ""


def install(root: str, place: str) -> None:
    """Follow this process, if nobody does yet."""
    if "mgpu_mutate_tracer" not in sys.modules:
        tracer = Tracer(root, place)
        sys.modules["mgpu_mutate_tracer"] = tracer  # type: ignore[assignment]
        threading.settrace(tracer.call)
        sys.settrace(tracer.call)
