"""Reads a request: its body, parameters of its query, ids in its path. Refuses what is malformed."""

from __future__ import annotations

import re
from typing import Any, TypeVar

import msgspec
from jupyter_server.base.handlers import JupyterHandler

from mgpu_agent.protocol.errors import (
    InvalidRequest,
    NotFound,
)
from mgpu_agent.protocol.ids import JOB_ID_PATTERN, JobId
from mgpu_jupyter.model.job import PLAIN_PATTERN
from mgpu_jupyter.model.mistakes import about_body

_T = TypeVar("_T")
_JOB_ID = re.compile(JOB_ID_PATTERN)
_PLAIN = re.compile(PLAIN_PATTERN)
_INDEX = re.compile(r"`\$\.jobs\[(\d+)\]")
_PLAIN_NUMBERS = {
    int: re.compile(r"-?[0-9]{1,18}"),
    float: re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?"),
}
_TRUTH = {"1": True, "true": True, "0": False, "false": False}

_WORDS: dict[type, str] = {
    str: "plain text",
    bool: "truth value (0 or 1)",
    int: "whole number",
    float: "number",
}


class ReadingHandler(JupyterHandler):
    """Reads requests."""

    def read_body(self, kind: type[_T]) -> _T:
        """Return the request's body as a value, or refuse it with what is wrong."""
        try:
            return decode_body(self.request.body, kind)
        except msgspec.ValidationError as error:
            found = _INDEX.search(str(error))
            details = {"index": int(found[1])} if found else {}
            raise InvalidRequest("invalid", about_body(error), details) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            why = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error
            raise InvalidRequest(
                "not-json", f"The request is not JSON ({why}): send one JSON document in UTF-8."
            ) from error

    def query(self, name: str, kind: type[_T], default: _T) -> _T:
        """Return a query parameter as a value, or refuse it."""
        values = self.request.query_arguments.get(name)
        if not values:
            return default
        # Not through tornado's `get_query_argument`, which turns control characters into spaces.
        text = self.decode_argument(values[-1], name)
        value: object = None
        if kind is str:
            value = text if _PLAIN.fullmatch(text) else None
        elif kind is bool:
            value = _TRUTH.get(text)
        elif _PLAIN_NUMBERS[kind].fullmatch(text):
            value = kind(text)  # type: ignore[call-arg]
        if value is None:
            raise InvalidRequest("invalid", f"The parameter {name} is no {_WORDS[kind]}: see openapi.json.")
        return value  # type: ignore[return-value]

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a query parameter as a whole number within bounds, or refuse it."""
        value = self.query(name, int, default)
        if not least <= value <= most:
            raise InvalidRequest("invalid", f"{name} must be between {least} and {most}, not {value}.")
        return value


def job_id_of(text: str) -> JobId:
    """Return a job id from a path, or raise that there is no such job."""
    if not _JOB_ID.fullmatch(text):
        raise NotFound(
            "no-such-job",
            f"{text[:50]!r} is no job id (eight characters A-Z and 0-9): see `mgpu_queue --all`.",
        )
    return JobId(text)


def decode_body(body: bytes, kind: type[_T]) -> _T:
    """Return a JSON document as a value."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        # In JSON, 2.0 is a whole number, and some programs write it so.
        if "got `float`" not in str(error):
            raise
        return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body)), kind)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
