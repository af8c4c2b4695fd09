"""Work on files for users, outside the agent's loop: one thread for each user and, where jobs run as their
users, one helper process.

So nobody waits for another's files. A helper that is silent for a while is ended: a user can stop it, or make
it hang in a directory of the user's own, and only its pending request fails then. Knows no job; decides
nothing.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pwd
import queue
import select
import signal
import threading
import time
from collections.abc import Callable

import msgspec

from mgpu_agent.channel import Channel
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.file_work import carry_out
from mgpu_agent.run_as.programs import start_helper
from mgpu_agent.run_as.requests import Become, Failed, FileAnswer, FileTask, FileWork, HelperReady, Working

SILENT_S = 20.0  # enough for a home on a slow network file system
IDLE_S = 60.0
MAX_WAITING = 10_000
"""How many pieces of work of one user may wait."""
_GLANCE_S = 0.5
_decoder: msgspec.msgpack.Decoder[FileAnswer | Working | HelperReady] = msgspec.msgpack.Decoder(
    FileAnswer | Working | HelperReady
)

log = logging.getLogger("mgpu.files")


class FileTrouble(OSError):
    """A task failed; `fault` says whose fault it is: the user's `job`, or the `node`."""

    def __init__(self, why: str, fault: str) -> None:
        super().__init__(why)
        self.fault = fault


Ask = Callable[[Account | None, FileTask], FileAnswer]
"""Has a task carried out as an account, or as the agent itself; raises `FileTrouble` when it fails."""
Work = Callable[[Ask], None]


def account_of(uid: int) -> Account:
    """Return the account of a uid; without an entry for it, an account with this uid and no groups."""
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return Account(f"uid {uid}", uid, uid if uid else 0)
    return Account(
        entry.pw_name,
        uid,
        entry.pw_gid,
        tuple(os.getgrouplist(entry.pw_name, entry.pw_gid)),
        entry.pw_dir,
        entry.pw_shell,
    )


class UserFiles:
    """The threads and helpers of an agent."""

    def __init__(
        self, confinement: Confinement | None = None, *, silent_s: float = SILENT_S, idle_s: float = IDLE_S
    ) -> None:
        self.confinement = confinement or Confinement()
        self.silent_s = silent_s
        self.idle_s = idle_s
        self._lanes: dict[str, _Lane] = {}
        self._lock = threading.Lock()
        self.is_closed = False

    def submit(self, user: str, work: Work) -> bool:
        """Queue this on the thread of a user, after earlier requests; False when too many wait."""
        with self._lock:
            lane = self._lanes.get(user)
            if lane is None:
                lane = self._lanes[user] = _Lane(user, self)
            if self.is_closed or lane.waiting.qsize() >= MAX_WAITING:
                return False
            lane.waiting.put(work)
            return lane.start()

    def ask(
        self, user: str, find: Callable[[], Account | None], task: FileTask, limit_s: float
    ) -> FileAnswer | None:
        """Carry out one task and wait; None when it failed or took too long. Never for the agent's loop."""
        answers: queue.SimpleQueue[FileAnswer] = queue.SimpleQueue()

        def work(ask: Ask) -> None:
            with contextlib.suppress(OSError):
                answers.put(ask(find(), task))

        if self.submit(user, work):
            with contextlib.suppress(queue.Empty):
                return answers.get(timeout=limit_s)
        return None

    def is_idle(self, lane: _Lane) -> bool:
        """Forget a lane with nothing to do; False if something came meanwhile."""
        with self._lock:
            if not lane.waiting.empty() and not self.is_closed:
                return False
            if self._lanes.get(lane.user) is lane:
                del self._lanes[lane.user]
            return True

    def close(self) -> None:
        """End all helpers and threads; pending work is dropped."""
        with self._lock:
            self.is_closed = True
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.end()
        for lane in lanes:
            lane.join(5.0)


class _Lane:
    """One user: a thread, its queue, and the helper of the account that was asked for last."""

    def __init__(self, user: str, owner: UserFiles) -> None:
        self.user = user
        self.waiting: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._owner = owner
        self._helper: _Helper | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> bool:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="mgpu-files", daemon=True)
            self._thread.start()
        return True

    def end(self) -> None:
        """Make the thread end as soon as it can."""
        self.waiting.put(None)

    def join(self, limit_s: float) -> None:
        """Wait for the thread."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _run(self) -> None:
        idle_at = time.monotonic() + self._owner.idle_s
        while True:
            work = self._next(idle_at)
            if self._owner.is_closed:
                break
            if work is not None:
                try:
                    work(self._ask)
                except Exception:
                    log.exception("work with files of %s failed", self.user)
                idle_at = time.monotonic() + self._owner.idle_s
            elif self._owner.is_idle(self):
                break
            else:  # something came just now
                idle_at = time.monotonic() + self._owner.idle_s
        if self._helper is not None:
            self._helper.end()

    def _next(self, idle_at: float) -> Work | None:
        """Wait for work; None when none came. Drops a helper that its user ended."""
        while (left_s := idle_at - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):
                return self.waiting.get(
                    timeout=min(left_s, _GLANCE_S if self._helper is not None else left_s)
                )
            if self._helper is not None and self._helper.is_over():
                self._helper = None
        return None

    def _tell(self) -> None:
        if self._owner.is_closed:
            raise FileTrouble("the agent ends", "node")

    def _ask(self, account: Account | None, task: FileTask) -> FileAnswer:
        self._tell()
        if account is None:
            answer, fault = carry_out(task, self._tell), "node"
        else:
            answer, fault = self._helper_of(account).ask(task), "job"
        if isinstance(answer, Failed):
            raise FileTrouble(answer.why, fault)
        return answer

    def _helper_of(self, account: Account) -> _Helper:
        helper = self._helper
        if helper is not None and helper.account == account and not helper.is_ended:
            return helper
        if helper is not None and not helper.end():
            raise FileTrouble(
                f"an earlier helper of {helper.account.name} hangs: end what blocks it on this node", "job"
            )
        try:
            self._helper = _Helper(account, self._owner)
        except OSError as error:
            raise FileTrouble(
                f"no helper of {account.name} could be started: {error.strerror or error}", "node"
            ) from error
        return self._helper


class _Helper:
    """One helper, asked by one thread."""

    def __init__(self, account: Account, owner: UserFiles) -> None:
        self.account = account
        self.is_ended = False
        self._is_gone = False
        self._owner = owner
        self._pid, connection = start_helper(account.name)
        self._channel: Channel[FileAnswer | Working | HelperReady] = Channel(connection, _decoder)
        self._channel.put(Become(account=account, confinement=owner.confinement))

    def ask(self, task: FileTask) -> FileAnswer:
        """Return the answer; a helper that does not answer is ended."""
        self._channel.put(FileWork(task=task))
        heard_at = time.monotonic()
        while True:
            if not self._channel.flush():
                return self._give_up("was ended")
            events = select.POLLIN | (select.POLLOUT if self._channel.has_outgoing else 0)
            poll = select.poll()
            poll.register(self._channel, events)
            if not poll.poll(_GLANCE_S * 1000):
                if self._owner.is_closed or time.monotonic() - heard_at >= self._owner.silent_s:
                    return self._give_up(f"did not answer within {self._owner.silent_s:g} s")
                continue
            heard = self._channel.receive()
            if heard is None:
                return self._give_up("was ended")
            if heard:
                heard_at = time.monotonic()
            elif time.monotonic() - heard_at >= self._owner.silent_s:
                return self._give_up(f"did not answer within {self._owner.silent_s:g} s")
            for answer in heard:
                if not isinstance(answer, Working | HelperReady):
                    return answer

    def is_over(self) -> bool:
        """Tell whether it has ended, by itself or by its user."""
        if not self._is_gone:
            with contextlib.suppress(ChildProcessError):
                self._is_gone = os.waitpid(self._pid, os.WNOHANG)[0] == self._pid
        if self._is_gone and not self.is_ended:
            self.is_ended = True
            self._channel.close()
        return self._is_gone

    def end(self) -> bool:
        """End it; tell whether it is gone. A process that hangs in the kernel ends only when that lets it."""
        if not self.is_ended:
            self.is_ended = True
            self._channel.close()
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        give_up_at = time.monotonic() + _GLANCE_S
        while not self.is_over() and time.monotonic() < give_up_at:
            time.sleep(0.001)
        return self._is_gone

    def _give_up(self, why: str) -> Failed:
        self.end()
        return Failed(
            why=f"the helper of {self.account.name} on this node {why}: end what stops or blocks processes "
            f"of this user there"
        )
