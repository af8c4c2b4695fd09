"""The keeper's parent, which does nothing until the keeper is gone: then it ends all that the keeper left, and itself.

Keepers are killed too (by an operator, by the kernel for want of memory), perhaps together with the agent, and the machine goes on.
Every process of every job descends from the keeper, which adopts orphans; when it dies, they all fall to the next such ancestor,
which is the reaper. So none can hide by its session, its environment or a parent that is gone, and a start costs nothing.

The lock of the node's directory is held by both: no other keeper begins before all that this one left has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from pathlib import Path

from mgpu_agent.keeper.trees import ProcessTable, send_signals

TERM_S = 1.0  # between TERM and KILL for what lost its keeper
GIVE_UP_S = 30.0  # what the kernel does not end until then hangs in a driver
RESCAN_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_KEEPER, _REAPER = b"mgpu_agent.keeper", b"mgpu_agent.reaper"  # of one length, so that one fits in the other's place
_ARG_START, _ARG_END = 48, 49  # fields of /proc/self/stat, counted from 1


def adopt_orphans() -> bool:
    """Make this process the parent of every descendant whose own parent dies; tell whether the kernel can."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def be_guarded() -> None:
    """Fork: the child returns from here and keeps, in a session of its own; its parent guards it and never returns."""
    can_adopt = adopt_orphans()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    keeper = os.fork()
    if keeper == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()
        if not (can_adopt and adopt_orphans()):
            print("This kernel has no subreapers: orphans are found by their marker alone.", file=sys.stderr)  # noqa: T201 - its log
        return
    code = 1
    try:
        code = _guard(keeper)
    finally:
        os._exit(code)  # what the child would do at its end is not this one's to do


def _guard(keeper: int) -> int:
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # Who asks this process to end means the keeper, which knows how.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(keeper, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.chdir("/")
    _rename()
    os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from now on its number may be another's
    _, status = os.waitpid(keeper, 0)
    end_descendants()
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def end_descendants() -> None:
    """End every process that descends from this one: TERM, a moment, KILL, until none is left."""
    began = time.monotonic()
    warned: set[tuple[int, int]] = set()
    while True:
        _reap()
        found = ProcessTable.read().descendants(os.getpid())
        elapsed = time.monotonic() - began
        if not found or elapsed > GIVE_UP_S:
            return
        if elapsed >= TERM_S:
            if len(send_signals(found, signal.SIGKILL)) == len(found):
                return  # another user's: waiting would hold the node's lock for ever
        else:
            fresh = [process for process in found if (process.pid, process.start_ticks) not in warned]
            warned.update((process.pid, process.start_ticks) for process in fresh)
            send_signals(fresh, signal.SIGTERM, signal.SIGCONT)
        time.sleep(RESCAN_S)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _rename() -> None:
    """Show another name in `ps`, so that who ends a keeper by name does not end its reaper with it."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
        at = ctypes.string_at(start, end - start).find(_KEEPER) if 0 < start < end else -1
        if at >= 0:
            ctypes.memmove(start + at, _REAPER, len(_REAPER))
