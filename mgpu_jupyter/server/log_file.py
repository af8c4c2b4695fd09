"""The log as a site wants it: its level, and a file beside stderr. Part of the wiring; knows nothing of what is logged."""

from __future__ import annotations

import logging
from logging.handlers import WatchedFileHandler
from pathlib import Path

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.log_lines import LogFormatter

ROOT = "mgpu"


def write_log(path: str, level: str | None, server_log: logging.Logger) -> list[logging.Handler]:
    """Let mgpu's own log and the server's go to this file, too; return what `unwrite_log` takes off again."""
    own = logging.getLogger(ROOT)
    own.setLevel(level or logging.INFO)
    shown = logging.StreamHandler()
    shown.setLevel(level or logging.WARNING)
    shown.setFormatter(LogFormatter())
    own.addHandler(shown)
    handlers: list[logging.Handler] = [shown]
    if path:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            file = WatchedFileHandler(path, encoding="utf-8")  # opens it anew when logrotate moved it
        except OSError as error:
            unwrite_log(handlers, server_log)
            text = f"The log file {path} cannot be written ({error.strerror}): name another one under logging.file, or make it writable."
            raise Unavailable("log-file", text) from error
        file.setFormatter(LogFormatter())
        own.addHandler(file)
        server_log.addHandler(file)
        handlers.append(file)
    return handlers


def unwrite_log(handlers: list[logging.Handler], server_log: logging.Logger) -> None:
    """Take these off again."""
    for handler in handlers:
        logging.getLogger(ROOT).removeHandler(handler)
        server_log.removeHandler(handler)
        handler.close()
