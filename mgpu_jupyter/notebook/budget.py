"""How much of a job's output is put into a cell before it would choke a browser; counts what is left out,
keeps the end. Prints nothing.
"""

from __future__ import annotations

from collections import deque

from mgpu_agent.protocol.wording import size

MAX_LINES = 5_000
MAX_CHARS = 2_000_000
TAIL_LINES = 50
TAIL_CHARS = 20_000
MAX_DISPLAYS = 500


class Budget:
    """What one cell may still show."""

    def __init__(self, *, limited: bool = True, lines: int = MAX_LINES, chars: int = MAX_CHARS) -> None:
        self._limited = limited
        self._most = (lines, chars)
        self._displays = MAX_DISPLAYS
        self.renew()

    def renew(self) -> None:
        """Start over, because all that was shown is gone."""
        self._lines, self._chars = self._most
        self.left_out_lines = 0
        self.left_out_chars = 0
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def take(self, text: str) -> str:
        """Return the part of `text` that may be shown."""
        if not self._limited or not text:
            return text
        if self._lines <= 0:
            self._drop(text)
            return ""
        lines = text.count("\n")
        if lines < self._lines and len(text) < self._chars:
            self._lines -= lines
            self._chars -= len(text)
            return text
        cut = self._cut(text)
        self._lines = 0
        self._drop(text[cut:])
        return (
            text[:cut]
            + ("\x1b[0m" if "\x1b[" in text[:cut] else "")
            + ("" if text[:cut].endswith("\n") else "\n")
        )

    def take_display(self) -> bool:
        """Tell whether one more display may be shown."""
        if self._limited:
            self._displays -= 1
        return self._displays >= 0

    def note(self, job_id: str) -> str:
        """Return the line that says what is left out and how to get it; empty when all was shown."""
        parts = []
        if self.left_out_chars:
            lines = max(self.left_out_lines, 1)
            verb = "is" if lines == 1 else "are"
            parts.append(
                f"{lines:,} more line{'' if lines == 1 else 's'} ({size(self.left_out_chars)}) {verb} "
                f"left out here"
            )
        if self._displays < 0:
            parts.append(f"{-self._displays:,} more displays are left out")
        return f"{' and '.join(parts)}: %mgpu_logs {job_id} shows the whole output." if parts else ""

    def tail(self) -> str:
        """Return the last part of what was left out."""
        return "".join(self._tail)

    def _cut(self, text: str) -> int:
        position = 0
        for _ in range(self._lines):
            found = text.find("\n", position)
            if found < 0 or found >= self._chars:
                break
            position = found + 1
        return position if position else min(len(text), max(self._chars, 0))

    def _drop(self, text: str) -> None:
        self.left_out_lines += text.count("\n")
        self.left_out_chars += len(text)
        for line in text[-TAIL_CHARS:].splitlines(keepends=True):
            begun = self._tail.pop() if self._tail and not self._tail[-1].endswith("\n") else ""
            self._tail.append((begun + line)[-TAIL_CHARS // 10 :])
