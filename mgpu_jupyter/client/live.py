"""One live mirror of the cluster for each process: one WebSocket in one thread. Shows nothing itself.

Theory of operation. The thread begins with the first reader and ends with the last. It asks for cluster,
nodes and active jobs once, then follows the events; after a break it reconnects with the number of the last
change and the version of the queue that it has, and only when the server says that this is not enough it asks
for everything again. Readers get an immutable view; a callback gets all changes since its last call, at most
a given number of times a second. Nothing of Jupyter or tornado is needed.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import frames, models
from mgpu_jupyter.api.frames import EventFrame, ResetFrame
from mgpu_jupyter.client.call import Caller, error_of
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.live_view import Changes, LiveState, Model, View, WaitingNow
from mgpu_jupyter.client.transport import HttpTransport, Request
from mgpu_jupyter.client.websocket import ConnectionLost, WebSocket

__all__ = ["Changes", "LiveState", "Mirror", "Reader", "View", "WaitingNow", "mirror_of"]

log = logging.getLogger("mgpu.client")

FIRST_RETRY_S = 0.5
LAST_RETRY_S = 10.0
STOP_S = 5.0
_frames: msgspec.json.Decoder[EventFrame] = msgspec.json.Decoder(EventFrame)

OnChange = Callable[[View, Changes], None]


class _Anew(Exception):
    """The server no longer knows what happened meanwhile."""


class Reader:
    """A watcher: gets the newest view, and is told of changes at most a given number of times a second."""

    def __init__(self, mirror: Mirror, on_change: OnChange | None, per_second: float) -> None:
        self._mirror = mirror
        self._on_change = on_change
        self._pause_s = 1.0 / per_second
        self._due_at = 0.0
        self._pending = Changes()
        self._ready = Changes()
        self._arrived = threading.Condition()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def view(self) -> View:
        """Return the newest view."""
        return self._mirror.view

    def wait(self, timeout: float | None = None) -> Changes | None:
        """Return what changed since the last call, waiting for it; None after the timeout or when closed."""
        with self._arrived:
            self._arrived.wait_for(lambda: bool(self._ready) or self._is_closed, timeout)
            ready, self._ready = self._ready, Changes()
        return ready or None

    def close(self) -> None:
        """Stop watching; the last reader stops the mirror. A second time is no error."""
        with self._arrived:
            self._is_closed = True
            self._arrived.notify_all()
        self._mirror.let_go(self)

    def offer(self, view: View, changes: Changes, now: float) -> float | None:
        """Take changes and pass them on, or return when to do that. For the mirror's thread."""
        self._pending |= changes
        if not self._pending or self._is_closed:
            return None
        if now < self._due_at:
            return self._due_at
        pending, self._pending, self._due_at = self._pending, Changes(), now + self._pause_s
        if self._on_change is None:
            with self._arrived:
                self._ready |= pending
                self._arrived.notify_all()
        else:
            try:
                self._on_change(view, pending)
            except Exception:  # one reader's error must not affect the others
                log.exception("a reader of live figures failed")
        return None


class Mirror:
    """The cluster as this process knows it. Get it by `mirror_of`."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._lock = threading.Lock()
        self._readers: list[Reader] = []
        self._newcomers: list[Reader] = []
        self._model = Model()
        self._view = View()
        self._thread: threading.Thread | None = None
        self._last: threading.Thread | None = None
        """The earlier thread, which may still be ending."""
        self._wakes: tuple[socket.socket, socket.socket] | None = None
        self._heard_at: float | None = None
        self._needs_snapshot = True

    @property
    def view(self) -> View:
        """Return the newest view."""
        return self._view

    def reader(self, on_change: OnChange | None = None, per_second: float = 2.0) -> Reader:
        """Start watching; `on_change` is called on the mirror's thread and must not block. Close it later."""
        reader = Reader(self, on_change, per_second)
        with self._lock:
            self._readers.append(reader)
            self._newcomers.append(reader)
            if self._thread is None:
                self._view = self._model.view(LiveState.CONNECTING)
                self._wakes = socket.socketpair()
                self._thread = threading.Thread(
                    target=self._run, args=(self._wakes, self._last), name="mgpu-live", daemon=True
                )
                self._thread.start()
            else:
                self._wake()
        return reader

    def let_go(self, reader: Reader) -> None:
        """Forget a reader."""
        with self._lock:
            if reader in self._readers:
                self._readers.remove(reader)
            thread = self._thread if not self._readers else None
            if thread is not None:
                self._thread, self._last = None, thread
                self._wake()
        if thread is not None and thread is not threading.current_thread():
            thread.join(STOP_S)

    def retry(self) -> None:
        """Connect now, if it waits before the next try."""
        with self._lock:
            self._wake()

    def _wake(self) -> None:
        if self._wakes is not None:
            with contextlib.suppress(OSError):
                self._wakes[1].send(b"!")

    # --- the thread -----------------------------------------------------------------------------

    def _is_wanted(self) -> bool:
        with self._lock:
            return self._thread is threading.current_thread()

    def _run(self, wakes: tuple[socket.socket, socket.socket], last: threading.Thread | None) -> None:
        if last is not None:
            last.join()
        delay_s = FIRST_RETRY_S
        try:
            while self._is_wanted():
                try:
                    self._follow(wakes[0])
                except _Anew:
                    continue
                except MgpuError as error:
                    if self._view.state is LiveState.LIVE:
                        delay_s = FIRST_RETRY_S
                    self._show(LiveState.STALE, error.message, time.time() + delay_s)
                    self._sleep(wakes[0], delay_s)
                    delay_s = min(LAST_RETRY_S, 2 * delay_s)
        except Exception:  # a bug must be visible, and not look like silence
            log.exception("the mirror of the cluster stopped")
        finally:
            self._stop(wakes)

    def _stop(self, wakes: tuple[socket.socket, socket.socket]) -> None:
        with self._lock:
            if self._wakes is wakes:
                self._wakes = None
                if self._thread is threading.current_thread():
                    self._thread = None
        for one in wakes:
            one.close()
        if self._thread is None:
            self._show(LiveState.STOPPED)

    def _follow(self, wake: socket.socket) -> None:
        """Stay live until nobody watches any more; raises what ended it otherwise."""
        if self._needs_snapshot:
            self._snapshot()
        query = {"since": str(self._model.seq), "samples": "1", "queue": str(self._model.queue_version)}
        status, body, live = self._caller.transport.upgrade(Request(path="events", query=query))
        if live is None:
            raise error_of(status, body)
        try:
            self._heard_at = time.time()
            self._read(live, wake)
        finally:
            live.close()

    def _snapshot(self) -> None:
        """Ask for everything; changes meanwhile come as events after the number that is read first."""
        cluster = self._caller.call(Request(path="cluster"), models.Cluster, retry_s=0)
        nodes = self._caller.call(Request(path="nodes"), models.NodeList, retry_s=0)
        query = {"state": "active", "limit": str(models.MAX_PAGE)}
        jobs: list[models.Job] = []
        while True:
            page = self._caller.call(Request(path="jobs", query=dict(query)), models.JobList, retry_s=0)
            jobs += page.jobs
            if page.next_cursor is None:
                break
            query["cursor"] = page.next_cursor
        self._model.begin(cluster, nodes.nodes, jobs)
        self._needs_snapshot = False

    def _read(self, live: WebSocket, wake: socket.socket) -> None:
        idle_s = self._caller.timeouts.stream_idle_s
        heard = time.monotonic()
        due_at: float | None = None
        while self._is_wanted():
            now = time.monotonic()
            if now - heard > idle_s:
                raise ConnectionLost("no-answer", "The mgpu server fell silent: see whether it still runs.")
            wait_s = idle_s if due_at is None else max(0.0, min(idle_s, due_at - now))
            if not live.has_data:
                both: list[WebSocket | socket.socket] = [live, wake]
                readable = select.select(both, [], [], wait_s)[0]
                if wake in readable:
                    wake.recv(64)
                if live not in readable:
                    due_at = self._hand_out()
                    continue
            messages = live.receive()
            if messages is None:
                raise ConnectionLost("no-answer", "The mgpu server closed the connection.")
            heard, self._heard_at = time.monotonic(), time.time()
            for message in messages:
                self._take(message)
            due_at = self._hand_out()

    def _take(self, message: bytes) -> None:
        try:
            frame = _frames.decode(message)
        except msgspec.DecodeError:  # of a later server
            return
        if isinstance(frame, ResetFrame):
            self._needs_snapshot = True
            raise _Anew
        self._model.take(frame)
        if isinstance(frame, frames.ReadyFrame) and self._view.state is not LiveState.LIVE:
            self._show(LiveState.LIVE)

    def _show(self, state: LiveState, problem: str = "", retry_at: float | None = None) -> None:
        before, changes = self._view, self._model.take_changes()
        is_new = (state, problem) != (before.state, before.problem)
        if not changes and not is_new and before.retry_at == retry_at:
            return
        since = self._heard_at if state is LiveState.STALE else None
        self._view = self._model.view(state, problem=problem, stale_since=since, retry_at=retry_at)
        self._offer(changes._replace(state=is_new or before.retry_at != retry_at))

    def _hand_out(self) -> float | None:
        """Give readers the changes; return when the next of them is due."""
        changes = Changes()
        if self._view.state is LiveState.LIVE and (changes := self._model.take_changes()):
            self._view = self._model.view(LiveState.LIVE)
        return self._offer(changes)

    def _offer(self, changes: Changes) -> float | None:
        with self._lock:
            readers, newcomers = list(self._readers), set(map(id, self._newcomers))
            self._newcomers.clear()
        now = time.monotonic()
        due: list[float] = []
        for reader in readers:
            news = self._model.everything() if id(reader) in newcomers else changes
            at = reader.offer(self._view, news, now)
            if at is not None:
                due.append(at)
        return min(due, default=None)

    def _sleep(self, wake: socket.socket, seconds: float) -> None:
        """Wait before the next try; new readers are served meanwhile, and `retry` ends it."""
        if select.select([wake], [], [], seconds)[0]:
            wake.recv(64)
            self._hand_out()


_mirrors: WeakValueDictionary[tuple[int, str], Mirror] = WeakValueDictionary()
_mirrors_lock = threading.Lock()


def mirror_of(client: Client) -> Mirror:
    """Return the one mirror of the cluster that this client speaks to."""
    transport = client.caller.transport
    place = str(id(transport))
    if isinstance(transport, HttpTransport):
        with contextlib.suppress(MgpuError):  # nobody is there yet: this client's own mirror will report it
            place = transport.place
    key = (os.getpid(), place)
    with _mirrors_lock:
        mirror = _mirrors.get(key)
        if mirror is None:
            mirror = _mirrors[key] = Mirror(client.caller)
        return mirror
