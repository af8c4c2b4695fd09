"""Reads the end of a job's output and then what comes, in a thread of its own; after `stop` it ends with the
next frame.

Only the last part of a long log is fetched: its size is found by a few small requests for single bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import GapFrame, OutputFrame
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job, rank_count
from mgpu_jupyter.client.transport import Request

TAIL_BYTES = 64 * 1024
MAX_RANKS = 64


class LogReader:
    """Passes pieces of output to `on_output`, and calls `on_end` with why there is no more."""

    def __init__(
        self,
        client: Client,
        job: models.Job,
        on_start: Callable[[bool], None],
        on_output: Callable[[OutputFrame], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._client = client
        self._job = job
        self._on_start, self._on_output, self._on_end = on_start, on_output, on_end
        self._stopped = threading.Event()
        self._follow = Job(client.caller, job.id).follow()
        threading.Thread(target=self._run, name=f"mgpu-log-{job.id}", daemon=True).start()

    def stop(self) -> None:
        """Stop reading."""
        self._stopped.set()
        self._follow.deadline = time.monotonic()

    def _run(self) -> None:
        told = ""
        try:
            offsets = {
                rank: start
                for rank in range(min(rank_count(self._job), MAX_RANKS))
                if (start := self._start(rank))
            }
            if offsets:
                self._follow.offsets.update(offsets)
                self._follow.attempt = self._job.attempt
            self._on_start(not offsets)
            with self._follow as frames:
                for frame in frames:
                    if self._stopped.is_set():
                        return
                    if isinstance(frame, OutputFrame):
                        self._on_output(frame)
                    elif isinstance(frame, GapFrame):
                        told = frame.message
        except TimeoutError:
            return  # stopped while it waited
        except MgpuError as error:
            told = error.message
        if not self._stopped.is_set():
            self._on_end(told)

    def _start(self, rank: int) -> int:
        """Return where the last part of a rank's output begins."""
        if not self._has(rank, TAIL_BYTES):
            return 0
        low, high = TAIL_BYTES, 2 * TAIL_BYTES
        while self._has(rank, high):
            low, high = high, high * 2
        while high - low > TAIL_BYTES:
            middle = (low + high) // 2
            low, high = (middle, high) if self._has(rank, middle) else (low, middle)
        return max(low - TAIL_BYTES, 0)

    def _has(self, rank: int, offset: int) -> bool:
        query = {"rank": str(rank), "offset": str(offset), "limit": "1"}
        headers = {"Accept": "application/octet-stream"}
        with contextlib.suppress(MgpuError):
            return bool(
                self._client.caller.send(
                    Request(path=f"jobs/{self._job.id}/output", query=query, headers=headers)
                ).body
            )
        return False
