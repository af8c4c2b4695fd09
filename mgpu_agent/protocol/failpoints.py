"""Named places where a test may crash, fail or slow down a program. Does nothing unless MGPU_FAILPOINTS is
set; decides nothing.

    MGPU_FAILPOINTS="store.commit.after=kill:3,link.send.before=sleep:0.1"

`kill` ends this process with SIGKILL, `error` raises an OSError, `sleep:S` waits S seconds. `kill:N` and
`error:N` act at the N-th time only, which counts from the start of the process. `damage` changes a byte where
there is data. Every commit and every send of master, agent and keeper is named below.
"""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

from mgpu_agent.protocol.errors import InvalidRequest

VARIABLE = "MGPU_FAILPOINTS"

MASTER = {
    "store.batch": "the changes of a turn are about to be written",
    "store.commit.before": "a transaction is about to be committed",
    "store.commit.after": "a transaction is on disk, and nobody knows",
    "store.setting.before": "a value, the master's epoch for one, is about to be written",
    "store.setting.after": "that value is on disk",
    "master.committed": "the changes of a turn are on disk, and nothing of it was sent",
    "master.launch": "a launch is about to be sent",
    "master.prepare": "a node is about to be asked whether it could start",
    "master.meet": "a node is about to be told to go to the others of an attempt",
    "master.start": "a node is about to be told to start what it prepared",
    "master.stop": "a stop is about to be sent",
    "master.input": "what somebody typed, or the size of their terminal, is about to be sent",
    "master.post": "a parcel from one node of a job to another is about to be sent on",
    "master.warn": "a warning of the end of a job's time is about to be sent",
    "master.probe": "a trial is about to be asked for",
    "master.ping": "a node is about to be asked who it is",
    "master.welcome": "a node that said Hello is about to be answered",
    "master.enrolled": "a node's key is bound, and it is about to be told",
    "master.acknowledge": "output that was written is about to be acknowledged",
    "master.forget": "a node is about to be told what it may forget",
    "master.resync": "a node is about to be asked to tell all again",
    "master.refuse": "a frame is about to be refused",
    "master.bye": "nodes are about to be told that the master stops",
    "link.send.before": "a message to a node is about to be handed to ZeroMQ",
    "link.send.after": "a message to a node was handed to ZeroMQ",
    "master.sent": "all messages of a turn were handed to ZeroMQ",
    "master.reply.before": "requests are about to be answered",
    "master.reply.after": "the answers of a turn are under way",
    "server.submit": "a submit is about to be answered",
    "server.cancel": "a cancel is about to be answered",
    "server.purge": "jobs are forgotten, and their output is still there",
    "logs.write.before": "output is about to be written",
    "logs.write.after": "output is written, and its record is not",
    "master.piece": "a piece of a folder is about to be sent",
    "pieces.write": "a piece of a folder is written, and has no name yet",
    "pieces.take": "a piece that lay in the tray is on disk, and is not yet kept",
    "master.collect": "a part of a result is about to be asked for",
    "results.index": "the results of a node are on disk, and nothing says so",
    "logs.sync": "output is about to be brought to disk",
}
AGENT = {
    "agent.send.before": "a message to the master is about to be handed to ZeroMQ",
    "agent.send.after": "a message to the master was handed to ZeroMQ",
    "agent.receive": "frames of the master were received, and nothing was done about them",
    "agent.order.before": "orders to the keeper are about to be written",
    "agent.order.after": "orders to the keeper were written",
    "agent.keeper": "a keeper is about to be started",
    "agent.enrolment.before": "the master's key or epoch is about to be written",
    "agent.enrolment.after": "the master's key or epoch is on disk",
    "agent.script": "the source of a cell is about to be written",
    "agent.piece": "a piece of a folder is about to be kept",
    "agent.input": "a piece of variables was written",
    "agent.result": "a part of a result was read",
    "agent.output": "a piece of output was read from the spool",
}
KEEPER = {
    "keeper.ledger.before": "notes are about to be written to the ledger",
    "keeper.ledger.after": "notes were written to the ledger",
    "keeper.compact.before": "a shorter ledger is about to take the place of the old one",
    "keeper.compact.after": "a shorter ledger took the place of the old one",
    "keeper.spawn.before": "a process is about to be started; the ledger says so",
    "keeper.spawn.after": "a process was started, and the ledger has no pid of it",
    "keeper.hook": "a prolog or an epilog is about to be started",
    "keeper.tidied": "an epilog is over, and the ledger does not know",
    "keeper.end": "a process ended, and the ledger does not know",
    "keeper.report.before": "news are about to be written to the agent",
    "keeper.report.after": "news were written to the agent",
    "keeper.recover": "what an earlier keeper left was ended, and the ledger does not know",
}
NAMES = MASTER | AGENT | KEEPER
_ACTIONS = ("kill", "error", "sleep", "damage")


class _Armed:
    """The orders of a test, and how often each place was reached."""

    def __init__(self, text: str) -> None:
        self._actions: dict[str, tuple[str, float]] = {}
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()
        for item in filter(None, (part.strip() for part in text.split(","))):
            name, _, action = item.partition("=")
            self._actions[name] = _read(name, action)

    def reach(self, name: str) -> None:
        """Do what the test ordered for this place, if it is due."""
        if name not in self._actions:
            return
        action, number = self._actions[name]
        with self._lock:
            self._counts[name] = count = self._counts.get(name, 0) + 1
        if action == "damage":
            return
        if action == "sleep":
            time.sleep(number)
        elif number in (0, count):
            if action == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            else:
                raise OSError(errno.EIO, f"Failpoint {name}")

    def is_damaged(self, name: str) -> bool:
        """Tell whether the data at this place, which was just reached, is to be damaged."""
        action, number = self._actions.get(name, ("", 0))
        return action == "damage" and number in (0, self._counts[name])


def _read(name: str, action: str) -> tuple[str, float]:
    kind, _, number = action.partition(":")
    try:
        value = float(number or 0)
    except ValueError:
        value = -1
    if name not in NAMES or kind not in _ACTIONS or value < 0:
        raise InvalidRequest(
            "bad-failpoint",
            f"{VARIABLE} has {name}={action}, which means nothing: unset it, or see failpoints.py.",
        )
    return kind, value


def arm(text: str | None) -> None:
    """Follow `text` from now on; None or an empty text turns all off."""
    global _armed  # noqa: PLW0603 - one for each process, as its environment is
    _armed = _Armed(text) if text else None


def reach(name: str) -> None:
    """Note that the program is at this place; costs one comparison when off."""
    if _armed is not None:
        _armed.reach(name)


def damage(name: str, data: bytes) -> bytes:
    """Note that the program is at this place with this data; return it, with another first byte where a test
    ordered that.
    """
    reach(name)
    if _armed is not None and data and _armed.is_damaged(name):
        return bytes([data[0] ^ 0xFF]) + data[1:]
    return data


_armed: _Armed | None = None
arm(os.environ.get(VARIABLE))
