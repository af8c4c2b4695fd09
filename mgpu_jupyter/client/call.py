"""From a request to a typed answer or an error, with retries. Does not know what the requests mean.

Every request of the API may be sent twice without harm (a submit carries a key), so each is sent again after
a lost connection or a 503 until `retry_s` is over. After a 429 (too many requests), it is sent again when the
server allows it.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

import msgspec

from mgpu_agent.protocol.errors import (
    Conflict,
    EngineError,
    Forbidden,
    InvalidRequest,
    MgpuError,
    NotFound,
    RemoteProtocolError,
    Unauthorised,
    Unavailable,
)
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api.models import ErrorBody
from mgpu_jupyter.client.transport import Answer, Request, Timeouts, Transport
from mgpu_jupyter.client.websocket import ConnectionLost

T = TypeVar("T")

BUSY = 503
ERRORS: dict[int, type[MgpuError]] = {
    400: InvalidRequest,
    401: Unauthorised,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    413: InvalidRequest,
    429: Unavailable,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
    507: Unavailable,
}
SHARE_USED = "share-used"
"""The code of a refusal for which waiting does not help."""
TOLD_AT_PAUSE = 3  # about a quarter of a second: a short break is not worth a line
RETRIED = frozenset((429, 502, 503, 504))
"""Statuses of a restarting server, its proxy, or an overloaded server, sent before anything is done."""


class Caller:
    """Sends requests over a transport until they are answered."""

    def __init__(self, transport: Transport, timeouts: Timeouts) -> None:
        self.transport = transport
        self.timeouts = timeouts
        self.on_trouble: Callable[[str], None] | None = None
        """Called with one sentence for each request or stream that has to wait for the server."""

    def call(self, request: Request, answer_type: type[T], *, retry_s: float | None = None) -> T:
        """Return the answer to `request`, or raise the error of the server or the network."""
        return read_answer(self.send(request, retry_s=retry_s).body, answer_type)

    def send(self, request: Request, *, retry_s: float | None = None) -> Answer:
        """Return the plain answer to `request`, or raise the error of the server or the network."""
        retry = RetryPause(self.timeouts, self.timeouts.retry_s if retry_s is None else retry_s)
        while True:
            after_s = 0.0
            try:
                answer = self.transport.send(request)
                if answer.status < 300:
                    return answer
                error = error_of(answer.status, answer.body, answer.location)
                if answer.status not in RETRIED or error.code == SHARE_USED:
                    raise error
                after_s = answer.retry_after_s
            except ConnectionLost as lost:
                error = lost
            retry.pause(error, self.on_trouble, after_s)


class RetryPause:
    """Back-off with jitter until a time is over; `renew` starts over."""

    def __init__(self, timeouts: Timeouts, limit_s: float) -> None:
        self._timeouts = timeouts
        self._limit_s = limit_s
        self.renew()

    def renew(self) -> None:
        """Forget past trouble, because the other side answered."""
        self._delay_s = self._timeouts.backoff_base_s
        self._ends_at: float | None = None
        self._pauses = 0
        self._asked_s = 0.0

    def pause(
        self, error: MgpuError, tell: Callable[[str], None] | None = None, after_s: float = 0.0
    ) -> None:
        """Wait before the next try, or raise `error` after the limit; `tell` is called when the trouble
        lasts.

        A wait that the server asks for (`after_s`) is observed, and does not count until they add up to
        `slowed_s`.
        """
        now = time.monotonic()
        self._pauses += 1
        if self._ends_at is None:
            self._ends_at = now + self._limit_s
        if 0 < after_s <= self._timeouts.slowed_s - self._asked_s and self._limit_s > 0:
            wait_s = after_s * random.uniform(1.0, 1.2)  # noqa: S311 - jitter
            self._asked_s += after_s
            self._ends_at += wait_s
            time.sleep(wait_s)
            return
        if now >= self._ends_at:
            raise error
        if self._pauses == TOLD_AT_PAUSE and tell is not None:
            tell(f"{error.message} Trying again for {self._limit_s:.0f} s.")
        time.sleep(min(self._delay_s * random.uniform(0.5, 1.0), self._ends_at - now))  # noqa: S311 - jitter
        self._delay_s = min(self._delay_s * 2, self._timeouts.backoff_cap_s)


def read_answer(body: bytes, answer_type: type[T]) -> T:
    """Return the body as a value; an answer of another shape is the other side's bug."""
    try:
        return msgspec.json.decode(body, type=answer_type)
    except msgspec.DecodeError as error:
        raise RemoteProtocolError(
            "bad-answer",
            f"The server's answer could not be read ({error}): install the same mgpu-jupyter on both sides.",
        ) from error


def error_of(status: int, body: bytes, location: str = "") -> MgpuError:
    """Return the error of an answer, with the server's own code and words where it has them."""
    kind = ERRORS.get(status, EngineError)
    try:
        told = msgspec.json.decode(body, type=ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _without_body(kind, status, location)
    if told.code == SHARE_USED:
        kind = Conflict
    return kind(told.code, printable(told.message), told.details)


def _without_body(kind: type[MgpuError], status: int, location: str) -> MgpuError:
    where = f"The server at {location}" if location else "The server"
    if status == 404:
        return NotFound(
            "no-mgpu", f"{where} runs without mgpu: install mgpu-jupyter there and start it again."
        )
    if status in (301, 302, 303, 307, 401, 403):
        return Unauthorised(
            "login-needed", f"{where} asks for a login: set MGPU_TOKEN to a valid mgpu token."
        )
    if kind is Unavailable:
        return Unavailable("not-ready", f"{where} is not ready (HTTP {status}): try again in a moment.")
    return kind("http-error", f"{where} answered HTTP {status}: look into its log.")
