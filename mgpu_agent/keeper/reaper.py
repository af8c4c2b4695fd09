"""The keeper's parent: when the keeper is gone it ends all that the keeper left, and itself. Until then it
only restarts an agent that was killed.

Keepers are killed too (by an operator, or by the kernel when memory is short), perhaps together with the
agent, and the machine goes on. Every process of every job descends from the keeper, which adopts orphans;
when it dies, the next such ancestor adopts them, which is the reaper. So none can hide by its session, its
environment or a parent that is gone, and a start costs nothing extra.

Both hold the lock of the node's directory: no other keeper begins before all that this one left has
ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import sys
import time
from collections.abc import Collection
from pathlib import Path

from mgpu_agent.keeper.agent_starter import AgentStarter
from mgpu_agent.keeper.trees import ProcessTable, send_signals

TERM_S = 1.0  # between TERM and KILL for processes that lost their keeper
GIVE_UP_S = 30.0  # what the kernel has not ended by then hangs in a driver
RESCAN_S = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_KEEPER, _REAPER = (
    b"mgpu_agent.keeper",
    b"mgpu_agent.reaper",
)  # of the same length, so that one can replace the other in memory
_ARG_START, _ARG_END = 48, 49  # fields of /proc/self/stat, counted from 1


def adopt_orphans() -> bool:
    """Make this process the parent of every descendant whose own parent dies; tell whether the kernel can."""
    return bool(ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)


def be_guarded(log: Path) -> int:
    """Fork: the child returns from here and becomes the keeper, in a session of its own; its parent guards it
    and never returns. Returns the pipe for `order_agent`; restarted agents log to `log`.
    """
    can_adopt = adopt_orphans()
    reader, writer = os.pipe()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    keeper = os.fork()
    if keeper == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        os.setsid()
        os.close(reader)
        os.set_blocking(writer, False)
        if not (can_adopt and adopt_orphans()):
            print("This kernel has no subreapers: orphans are found by their marker alone.", file=sys.stderr)  # noqa: T201 - its log
        return writer
    os.close(writer)
    code = 1
    try:
        code = _guard(keeper, AgentStarter(reader, log))
    finally:
        os._exit(code)  # the child's exit handlers must not run here


def _guard(keeper: int, starter: AgentStarter) -> int:
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    # A request to end this process is meant for the keeper, which knows how.
    signal.signal(signal.SIGTERM, lambda *_: os.kill(keeper, signal.SIGTERM))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    os.chdir("/")
    _rename()
    with contextlib.suppress(OSError):  # a kernel without pidfds: agents are not restarted
        _start_agents(keeper, starter)
    os.waitid(os.P_PID, keeper, os.WEXITED | os.WNOWAIT)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # from now on its pid may be another's
    _, status = os.waitpid(keeper, 0)
    end_descendants(() if starter.pid is None else (starter.pid,))
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _start_agents(keeper: int, starter: AgentStarter) -> None:
    """Start agents as ordered, until the keeper is gone."""
    descriptor = os.pidfd_open(keeper)
    takes_orders = True
    while True:
        poll = select.poll()
        for one in (descriptor, starter.pipe if takes_orders else None, starter.child):
            if one is not None:
                poll.register(one, select.POLLIN)
        wait_s = starter.wait_s()
        ready = dict(poll.poll(None if wait_s is None else wait_s * 1000 + 0.5))
        if descriptor in ready:
            return
        if starter.pipe in ready:
            takes_orders = starter.take_order()
        _reap_others(keeper, starter)
        starter.start_if_due()


def _reap_others(keeper: int, starter: AgentStarter) -> None:
    """Collect children that ended, but not the keeper."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid == keeper:
                return
            os.waitpid(ended.si_pid, 0)
            if ended.si_pid == starter.pid:
                by_signal = ended.si_code in (os.CLD_KILLED, os.CLD_DUMPED)
                starter.note_end(is_killed=by_signal and ended.si_status != signal.SIGTERM)


def end_descendants(spare: Collection[int] = ()) -> None:
    """End every process that descends from this one, except those in `spare` and their descendants: TERM, a
    moment, KILL, until none is left.
    """
    began = time.monotonic()
    warned: set[tuple[int, int]] = set()
    while True:
        _reap()
        table = ProcessTable.read()
        spared = {one.pid for pid in spare for one in table.descendants(pid)} | set(spare)
        found = [process for process in table.descendants(os.getpid()) if process.pid not in spared]
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
    """Show another name in `ps`, so that ending keepers by name does not end the reaper, too."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
        start, end = (int(fields[number - 3]) for number in (_ARG_START, _ARG_END))
        at = ctypes.string_at(start, end - start).find(_KEEPER) if 0 < start < end else -1
        if at >= 0:
            ctypes.memmove(start + at, _REAPER, len(_REAPER))
