"""A job as an object: asks the server, keeps what can no longer change."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Self

import msgspec

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models, requests, traces
from mgpu_jupyter.api.files import ResultList
from mgpu_jupyter.api.frames import EndedJob, EndFrame, JobFrame
from mgpu_jupyter.api.histories import JobUsage
from mgpu_jupyter.api.traces import Summary
from mgpu_jupyter.client import front
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.displays import Stripper
from mgpu_jupyter.client.fetching import download, result_of, wait_for_results
from mgpu_jupyter.client.follow import Follow
from mgpu_jupyter.client.lines import Labeller
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import MAX_TASKS, JobState

TAIL_BYTES = 64 * 1024
OUTPUT_PAGE_BYTES = 4 * 1024 * 1024
NO_RANK = MAX_TASKS
"""A rank that no job has: its stream has the changes of the job and no output."""


class Job:
    """One job: `id state exit_code info`, `wait cancel hold release requeue`, `output tail follow attach` …

    `await job` returns the job when it is over.
    """

    def __init__(self, caller: Caller, job_id: str, info: models.Job | None = None) -> None:
        self.id = JobId(job_id)
        self.snapshot = info
        """The last known state, if any; reading it sends no request."""
        self.ended: EndedJob | None = None
        """How it ended, if that was learnt while waiting for many jobs."""
        self._caller = caller

    @property
    def caller(self) -> Caller:
        """Return the sender of its requests."""
        return self._caller

    def __repr__(self) -> str:
        return f"<Job {self.id} {self.last_state}>" if self.last_state else f"<Job {self.id}>"

    @property
    def info(self) -> models.Job:
        """Return the present state of the job, with all details."""
        if self.snapshot is not None and self.snapshot.state.is_final:
            return self.snapshot
        return self.refresh()

    @property
    def last_state(self) -> JobState | None:
        """Return the last known state, if any; sends no request."""
        seen = self.ended or self.snapshot
        return seen.state if seen is not None else None

    @property
    def is_over(self) -> bool:
        """Tell whether it is known to be over; sends no request."""
        return self.last_state is not None and self.last_state.is_final

    @property
    def state(self) -> JobState:
        """Return the present state."""
        return (self.ended or self.info).state

    @property
    def exit_code(self) -> int | None:
        """Return the exit code, or None while there is none."""
        return (self.ended or self.info).exit_code

    def refresh(self) -> models.Job:
        """Ask the server and return the present state of the job."""
        self.snapshot = self._caller.call(Request(path=f"jobs/{self.id}"), models.Job)
        return self.snapshot

    def wait(self, timeout: float | None = None) -> Job:
        """Wait until the job is over; raise `TimeoutError` if that takes more than `timeout` seconds."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self.info.state.is_final:
            return self
        with self.follow(rank=NO_RANK) as frames:
            frames.deadline = deadline
            try:
                for frame in frames:
                    if isinstance(frame, JobFrame | EndFrame):
                        self.snapshot = frame.job
                    if self.snapshot is not None and self.snapshot.state.is_final:
                        break
            except TimeoutError:
                raise TimeoutError(f"Job {self.id} is not over after {timeout} s; it goes on.") from None
        return self

    def __await__(self) -> Generator[object, None, Self]:
        """Wait for its end without blocking the event loop; giving up leaves the job running."""
        return self._over().__await__()

    async def _over(self) -> Self:
        import asyncio  # commands need none of it, and start faster without

        loop, over, left = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
        trouble: list[BaseException] = []

        def watch() -> None:
            try:
                self.wait_unless(left)
            except BaseException as error:  # noqa: BLE001 - handed to whoever awaits
                trouble.append(error)
            if not left.is_set():
                loop.call_soon_threadsafe(over.set)

        # A daemon thread: one of the loop's pool would keep the interpreter alive as long as the job runs.
        threading.Thread(target=watch, name=f"mgpu-await-{self.id}", daemon=True).start()
        try:
            await over.wait()
        finally:
            left.set()
        if trouble:
            raise trouble[0]
        return self

    def wait_unless(self, left: threading.Event) -> None:
        """Wait until it is over, or `left` is set; that is checked at each ping of the server."""
        if self.info.state.is_final:
            return
        with self.follow(rank=NO_RANK) as frames:
            for frame in frames:
                if left.is_set():
                    return
                if isinstance(frame, JobFrame | EndFrame):
                    self.snapshot = frame.job
                    if frame.job.state.is_final:
                        return

    def cancel(self, *, retry_s: float | None = None) -> requests.CancelAnswer:
        """Cancel the job; the end follows by itself, and a second time is no error."""
        request = Request(method="POST", path=f"jobs/{self.id}/cancel")
        return self._caller.call(request, requests.CancelAnswer, retry_s=retry_s)

    def explain(self) -> explanations.Explanation:
        """Return why it waits, what would start it now, and what it was told before."""
        return self._caller.call(Request(path=f"jobs/{self.id}/explain"), explanations.Explanation)

    def trace(self, *, verify: bool = False) -> traces.Trace:
        """Return its whole trace: when, where, by which process; `verify` asks its nodes for the present
        state.
        """
        query = {"verify": "1"} if verify else {}
        return self._caller.call(Request(path=f"jobs/{self.id}/trace", query=query), traces.Trace)

    def results(self) -> ResultList:
        """Return the files that it left for you (`--results`), as far as they were collected."""
        return self._caller.call(Request(path=f"jobs/{self.id}/results"), ResultList)

    def wait_for_results(self, timeout: float | None = 60.0) -> ResultList:
        """Return them once they are complete; they follow the job's end."""
        return wait_for_results(self._caller, self.id, timeout)

    def download_results(self, to: str | os.PathLike[str]) -> list[Path]:
        """Fetch its files, each verified, into a directory; with several nodes, one directory for each."""
        return download(self._caller, self.wait_for_results(), Path(to))

    def result(self) -> object:
        """Return the variables that its cell returned (`--out`): a value, a dict of several, lists of
        ranks.
        """
        return result_of(self._caller, self.id)

    def summary(self) -> Summary:
        """Return what it asked for, had and used."""
        return self._caller.call(Request(path=f"jobs/{self.id}/summary"), Summary)

    def usage(self, *, points: int = 300) -> JobUsage:
        """Return how busy each of its GPUs was while it ran, what it asked for and used, and a hint."""
        return usage_of(self._caller, self.id, points)

    def hold(self) -> requests.OrderAnswer:
        """Keep the job from starting until it is released."""
        return self._change(requests.JobChange(hold=True))

    def release(self) -> requests.OrderAnswer:
        """Let a held job start."""
        return self._change(requests.JobChange(release=True))

    def update(self, *, priority: int | None = None, time_limit: float | None = None) -> requests.OrderAnswer:
        """Give the job another priority (while it waits) or time limit in seconds (until it ends)."""
        return self._change(requests.JobChange(priority=priority, time_limit_s=time_limit))

    def requeue(self) -> requests.OrderAnswer:
        """End what runs of the job; it waits again in its old place."""
        return self._caller.call(Request(method="POST", path=f"jobs/{self.id}/requeue"), requests.OrderAnswer)

    def _change(self, change: requests.JobChange) -> requests.OrderAnswer:
        request = Request(method="PATCH", path=f"jobs/{self.id}", body=msgspec.json.encode(change))
        return self._caller.call(request, requests.OrderAnswer)

    def output(self, rank: int | None = None) -> str:
        """Return the job's output so far; of several ranks in order, with the rank before each line."""
        if rank is not None:
            return self.output_bytes(rank).decode("utf-8", "replace")
        ranks = rank_count(self.info)
        if ranks == 1:
            return self.output_bytes(0).decode("utf-8", "replace")
        parts = []
        for one in range(ranks):
            labeller = Labeller("{}: ")
            parts.append(
                labeller.feed(one, self.output_bytes(one).decode("utf-8", "replace")) + labeller.flush(one)
            )
        return "".join(parts)

    def output_bytes(self, rank: int = 0, offset: int = 0) -> bytes:
        """Return the output of one rank so far, from byte `offset` on; of displays, the text."""
        parts: list[bytes] = []
        while True:
            query = {"rank": str(rank), "offset": str(offset), "limit": str(OUTPUT_PAGE_BYTES)}
            headers = {"Accept": "application/octet-stream"}
            data = self._caller.send(
                Request(path=f"jobs/{self.id}/output", query=query, headers=headers)
            ).body
            if not data:
                stripper = Stripper()
                return stripper.feed(b"".join(parts)) + stripper.flush()
            parts.append(data)
            offset += len(data)

    def tail(self, lines: int = 10, rank: int = 0) -> str:
        """Return the last lines of one rank's output, without fetching all of it."""
        size = TAIL_BYTES
        while True:
            query = {"rank": str(rank), "tail": str(size), "limit": str(size)}
            headers = {"Accept": "application/octet-stream"}
            data = self._caller.send(
                Request(path=f"jobs/{self.id}/output", query=query, headers=headers)
            ).body
            found = data.decode("utf-8", "replace").splitlines(keepends=True)
            if len(found) > lines or len(data) < size or size >= models.MAX_OUTPUT_LIMIT:
                return "".join(found[-lines:]) if lines > 0 else ""
            size *= 8

    def attach(self, rank: int | None = None) -> Self:
        """Show its output from the start and live until it is over; an interrupt leaves it running."""
        front.now().attach(self, rank)
        return self

    def follow(self, offsets: Mapping[int, int] | None = None, *, rank: int | None = None) -> Follow:
        """Iterate over output and changes from the start, or `offsets` by rank, across lost connections."""
        return Follow(self._caller, self.id, offsets, rank)


def rank_count(info: models.Job) -> int:
    """Return how many ranks a job has, as far as it is known."""
    return max(len({placement.rank for placement in info.placements}), len(info.nodes), 1)


def usage_of(caller: Caller, job_id: str, points: int) -> JobUsage:
    """Return what a job used."""
    return caller.call(Request(path=f"jobs/{job_id}/usage", query={"points": str(points)}), JobUsage)
