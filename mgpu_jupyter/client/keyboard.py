"""This process's stdin as a source of input, and its terminal in raw mode. Sends nothing."""

from __future__ import annotations

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable
from types import FrameType

DETACH_HELP = "Enter ~ . leaves it running"
_ESCAPE, _DOT = 0x7E, 0x2E  # ~ and . after a line break, as in ssh
_LINE_BREAKS = (0x0D, 0x0A)


def terminal_size(descriptor: int = 0) -> tuple[int, int] | None:
    """Return rows and columns of the terminal behind a descriptor."""
    try:
        size = os.get_terminal_size(descriptor)
    except OSError:
        return None
    return max(1, size.lines), max(1, size.columns)


class Stdin:
    """Input that is typed or piped into this process. With `on_detach` it recognises the escape of ssh."""

    def __init__(self, descriptor: int = 0, on_detach: Callable[[], None] | None = None) -> None:
        self._descriptor = descriptor
        self._on_detach = on_detach
        self._is_terminal = os.isatty(descriptor)
        self._after = (0x0A, 0)
        """The last two bytes: an escape counts at the beginning of a line."""
        try:
            os.fstat(descriptor)
        except OSError:
            self._descriptor = os.open(os.devnull, os.O_RDONLY)
        self._start = self._where()

    def fileno(self) -> int:
        """Return the descriptor; -1 while this process is in the background, where reading would stop it."""
        if self._is_terminal:
            with contextlib.suppress(OSError):
                if os.tcgetpgrp(self._descriptor) != os.getpgrp():
                    return -1
        return self._descriptor

    def read(self, size: int) -> bytes | None:
        """Return what is there; empty at the end, and None for an escape."""
        data = os.read(self._descriptor, size)
        if self._on_detach is None or not data:
            return data
        kept = bytearray()
        for byte in data:
            if byte == _ESCAPE and self._after[0] in _LINE_BREAKS:
                self._after = (_ESCAPE, 1)
                continue
            if self._after == (_ESCAPE, 1):
                if byte == _DOT:
                    self._on_detach()
                    return bytes(kept) or None
                if byte != _ESCAPE:
                    kept.append(_ESCAPE)
            self._after = (byte, 0)
            kept.append(byte)
        return bytes(kept) or None

    def rewind(self) -> bool:
        """Go back to the beginning of a file; a terminal just continues."""
        if self._is_terminal:
            return True
        if self._start is None:
            return False
        os.lseek(self._descriptor, self._start, os.SEEK_SET)
        return True

    def _where(self) -> int | None:
        try:
            return os.lseek(self._descriptor, 0, os.SEEK_CUR)
        except OSError:
            return None


class Nothing:
    """A source that never has input and never ends."""

    def fileno(self) -> int:
        """Return that there is nothing to wait for."""
        return -1

    def read(self, size: int) -> bytes | None:
        """Return nothing."""

    def rewind(self) -> bool:
        """Return that nothing needs to be sent again."""
        return True


class RawTerminal:
    """The terminal of this process, passed on byte by byte while it is raw; always restored."""

    def __init__(self, on_resize: Callable[[int, int], None], descriptor: int = 0) -> None:
        self._on_resize = on_resize
        self._descriptor = descriptor
        self._before: list[object] | None = None
        self._handlers: dict[int, object] = {}

    @property
    def is_raw(self) -> bool:
        """Tell whether it is raw now."""
        return self._before is not None

    def enter(self) -> None:
        """Make it raw; nothing happens where there is no terminal."""
        if self._before is not None or not os.isatty(self._descriptor):
            return
        before = termios.tcgetattr(self._descriptor)
        for number in (signal.SIGTERM, signal.SIGHUP):
            self._handlers[number] = signal.signal(number, self._end)
        self._handlers[signal.SIGWINCH] = signal.signal(signal.SIGWINCH, self._resized)
        self._before = list(before)
        tty.setraw(self._descriptor, termios.TCSADRAIN)
        self._resized()

    def leave(self) -> None:
        """Restore the terminal."""
        before, self._before = self._before, None
        if before is None:
            return
        with contextlib.suppress(termios.error, OSError):
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, before)  # type: ignore[arg-type]
        for number, handler in self._handlers.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._handlers.clear()

    def _resized(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        if (size := terminal_size(self._descriptor)) is not None:
            self._on_resize(*size)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        self.leave()
        raise SystemExit(128 + number)
