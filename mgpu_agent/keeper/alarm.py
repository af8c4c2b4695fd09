"""A timer that a poll can wait for, on the boot clock, which, unlike that of poll, goes on while the
machine sleeps.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time

_TFD_CLOEXEC_NONBLOCK = os.O_CLOEXEC | os.O_NONBLOCK
_TFD_TIMER_ABSTIME = 1


class _Moment(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Moment), ("value", _Moment))


def boot_clock() -> float:
    """Return the seconds since the machine booted, including those that it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Alarm:
    """One moment to wake at. Owns the descriptor."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = int(self._libc.timerfd_create(time.CLOCK_BOOTTIME, _TFD_CLOEXEC_NONBLOCK))
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._at: float | None = None

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._descriptor

    def set(self, at: float | None) -> None:
        """Wake at this moment; None for never."""
        if at == self._at:
            return
        self._at = at
        # Zero disarms the timer, so a time that is due already must not be zero.
        seconds, rest = divmod(0.0 if at is None else max(at, 1e-9), 1)
        setting = _Setting(_Moment(0, 0), _Moment(int(seconds), int(rest * 1e9) or (0 if at is None else 1)))
        if self._libc.timerfd_settime(self._descriptor, _TFD_TIMER_ABSTIME, ctypes.byref(setting), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def clear(self) -> None:
        """Reset the descriptor after the alarm went off."""
        self._at = None
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 8)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)
