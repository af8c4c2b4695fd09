"""The input of one person for one job: checked, passed on with offsets, acknowledged. Keeps no bytes.

The sender keeps what was typed until the job's process has read it; a sender that is ahead of that by more
than the window breaks the protocol and is cut off, so that no sender costs memory here or on the way.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.messages import InputAck
from mgpu_jupyter.api import frames
from mgpu_jupyter.api.frames import (
    INPUT_WINDOW_BYTES,
    MAX_INPUT_BYTES,
    ResizeFrame,
    StdinAckFrame,
    StdinFrame,
    TypedInput,
)
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.service import Service

ASK_AGAIN_S = 1.0
WINDOW_BYTES = 4 * INPUT_WINDOW_BYTES
"""More than an honest sender is ever ahead."""


class JobStdin:
    """The input to one job over one connection."""

    def __init__(self, service: Service, job_id: JobId, writer: str) -> None:
        self._service = service
        self._job_id = job_id
        self._writer = writer
        self._attempt = 0
        self._is_answered = False
        self._sent = self._read = 0
        self._news: StdinAckFrame | None = None
        self._event = asyncio.Event()

    @contextmanager
    def attached(self) -> Iterator[None]:
        """Register: progress is reported, and the job counts as attended."""
        with (
            self._service.hub.typist(self._job_id, self._writer, self._note),
            self._service.presence.attached(self._job_id),
        ):
            yield

    async def take(self, frame: frames.ClientFrame) -> None:
        """Pass on typed input, or the size of a terminal."""
        match frame:
            case StdinFrame(offset=offset, data=data, eof=eof, attempt=attempt):
                if len(data) > MAX_INPUT_BYTES:
                    raise InvalidRequest(
                        "too-much-input",
                        f"A piece of input is over {MAX_INPUT_BYTES} bytes: send smaller ones.",
                    )
                end = offset + len(data)
                if data and end - self._read > WINDOW_BYTES:
                    raise InvalidRequest(
                        "too-much-input",
                        "Input was sent far ahead of what the job reads: wait for its stdin_ack.",
                    )
                self._sent = max(self._sent, end)
                await self._service.type_in(
                    self._job_id,
                    TypedInput(writer=self._writer, attempt=attempt, offset=offset, data=data, eof=eof),
                )
            case ResizeFrame(rows=rows, columns=columns):
                await self._service.resize(self._job_id, rows, columns)
            case frames.PingFrame():
                pass

    async def ask(self, job: Job) -> None:
        """Ask a job whose process runs how far it has read; `acks` yields the answer."""
        is_there = any(task.rank == 0 and task.ended_at is None for task in job.tasks)
        if is_there and job.attempt != self._attempt:
            self._attempt = job.attempt
            self._sent = self._read = 0
            self._is_answered = False
            await self._ask()

    async def _ask(self) -> None:
        await self._service.type_in(self._job_id, TypedInput(writer=self._writer, attempt=self._attempt))

    async def acks(self) -> AsyncIterator[StdinAckFrame]:
        """Yield how much was read, only the newest state."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._event.wait(), ASK_AGAIN_S)
            self._event.clear()
            news, self._news = self._news, None
            if news is not None:
                yield news
            elif self._attempt and not self._is_answered:  # its node may have been away
                with contextlib.suppress(Unavailable):
                    await self._ask()

    def _note(self, ack: InputAck) -> None:
        again = ack.again or (self._news is not None and self._news.again)
        if ack.key.attempt == self._attempt:
            self._is_answered = True
            self._read = max(self._read, ack.offset)
        self._news = StdinAckFrame(attempt=ack.key.attempt, offset=ack.offset, again=again, closed=ack.closed)
        self._event.set()
