"""The log as a site wants it: its level, on stderr, and in a file beside it. Knows nothing of what is logged.

What mgpu itself says is handed to a thread that writes it: a terminal that was stopped, or a slow disk, stops
no turn of the master.
"""

from __future__ import annotations

import contextlib
import logging
import queue
from logging.handlers import QueueHandler, QueueListener, WatchedFileHandler
from pathlib import Path

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.log_lines import LogFormatter
from mgpu_jupyter.model.cluster_file import LoggingPart

ROOT = "mgpu"
MAX_WAITING = 10_000
"""So many lines may wait to be written; further ones are lost."""


class _Handover(QueueHandler):
    """Hands records on as they are."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        """Return the record with its words, which may change before it is written."""
        record.msg, record.args = record.getMessage(), None
        return record

    def enqueue(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, unless nobody has written any for long."""
        with contextlib.suppress(queue.Full):
            self.queue.put_nowait(record)


class ServerLog:
    """mgpu's own log and the server's, from `start` to `stop`."""

    def __init__(self, wanted: LoggingPart, server_log: logging.Logger) -> None:
        self._own, self._server = logging.getLogger(ROOT), server_log
        self._level = wanted.level or logging.getLevelName(server_log.getEffectiveLevel())
        self._path = wanted.file
        self._handlers: list[logging.Handler] = [logging.StreamHandler()]
        self._handover = _Handover(queue.Queue(MAX_WAITING))
        self._listener: QueueListener | None = None

    def start(self) -> None:
        """Begin to write; where the file cannot be, that is said and stderr is all there is."""
        problem = self._open_file()
        for handler in self._handlers:
            handler.setFormatter(LogFormatter())
        self._own.setLevel(self._level)
        self._own.addHandler(self._handover)
        self._listener = QueueListener(self._handover.queue, *self._handlers)
        self._listener.start()
        if problem is not None:
            raise problem

    def stop(self) -> None:
        """Write what waits, and let go of the file."""
        self._own.removeHandler(self._handover)
        self._own.setLevel(logging.NOTSET)
        if self._listener is not None:
            self._listener.stop()
            self._listener = None
        for handler in self._handlers:
            self._server.removeHandler(handler)
            handler.close()

    def _open_file(self) -> Unavailable | None:
        if not self._path:
            return None
        try:
            Path(self._path).parent.mkdir(parents=True, exist_ok=True)
            file = WatchedFileHandler(self._path, encoding="utf-8")  # opens it anew when logrotate moved it
        except OSError as error:
            return Unavailable(
                "log-file",
                f"The log file {self._path} cannot be written ({error.strerror}): name another one under "
                f"logging.file, or make it writable.",
            )
        self._handlers.append(file)
        self._server.addHandler(file)
        return None
