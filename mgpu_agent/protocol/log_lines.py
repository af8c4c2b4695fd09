"""Formats records of the log: one line each, whatever text is in them. Opens no file."""

from __future__ import annotations

import logging

from mgpu_agent.protocol.text import printable

LOG_CHARS = 8_192


class LogFormatter(logging.Formatter):
    """One line for each record, whatever it contains; lines of a traceback are indented, so that none looks
    like a record.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name that logging calls
        """Return the line of a record."""
        return printable(super().formatMessage(record), LOG_CHARS)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line and its traceback, if there is one."""
        first, *rest = super().format(record).split("\n")
        return "\n".join([first, *(f"    {printable(line, LOG_CHARS)}" for line in rest)])
