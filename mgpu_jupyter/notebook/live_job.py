"""A job as the value of a cell: the same header as over a cell's output, live while the kernel does something
else.

The updates come from a thread and use the display's id: JupyterLab shows them at any time, other front ends
keep what they had when the cell ended. A terminal gets a line once. An array is one bar.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api.frames import EndFrame, JobFrame
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.follow import Pump
from mgpu_jupyter.client.gather import tally_of
from mgpu_jupyter.client.job import NO_RANK, Job
from mgpu_jupyter.client.words import first_to_fail
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.actions import RUN_JOB
from mgpu_jupyter.notebook.front import bar_html, show_bundle
from mgpu_jupyter.notebook.gauges import Gauges, NoGauges
from mgpu_jupyter.notebook.header_text import Facts, text_of
from mgpu_jupyter.notebook.header_updates import HeaderUpdates
from mgpu_jupyter.notebook.remember import mark
from mgpu_jupyter.notebook.screen import RichHeader

MAX_LIVE = 32
"""How many jobs are followed at once; others are shown once."""
ARRAY_PAUSE_S = 1.0
PACE_S = 0.5
_live: set[int] = set()


def line_of(job: Job) -> str:
    """Return a job as one line, by its last known state."""
    if isinstance(job, JobArray):
        return f"mgpu {job.id}: {tally_of(job.jobs).text()}"
    info = job.snapshot
    if info is None:
        return f"mgpu {job.id}"
    return text_of(Facts(job=info, now=time.time(), waits=NoGauges().waits(info)))


def bundle_of(array: JobArray) -> dict[str, str]:
    """Return the bar of an array for any front end."""
    return {"text/plain": printable(line_of(array)), "text/html": bar_html(tally_of(array.jobs), [])}


class LiveJobs:
    """Shows jobs that are values of cells, and follows them."""

    def __init__(self, *, is_rich: bool, gauges_of: Callable[[], Gauges] = NoGauges) -> None:
        self._is_rich = is_rich
        self._gauges_of = gauges_of

    def show(self, job: Job) -> None:
        """Show a job; in a kernel it is updated by itself."""
        try:
            job.refresh()
        except MgpuError as error:
            tell(f"{job!r}: {error.message}")
            return
        if not self._is_rich:
            tell(line_of(job))
        elif isinstance(job, JobArray):
            handle = show_bundle(bundle_of(job), display_id=True, metadata=mark(job))
            _start(job, lambda: _follow_array(job, handle), is_over=_is_over(job))
        elif job.snapshot is not None:
            updates = HeaderUpdates(
                lambda _: RichHeader(ends_quietly=True),
                self._gauges_of(),
                is_rich=True,
                lines_of=lambda rank, count: _last_lines(job, rank, count),
                run_again=RUN_JOB,
            )
            updates.job = job
            updates.changed(job.snapshot)
            if job.snapshot.state.is_final or not _start(job, lambda: _follow(job, updates), is_over=False):
                updates.end()


def _start(job: Job, follow: Callable[[], None], *, is_over: bool) -> bool:
    """Follow a job in a thread of its own, if it is not over and not too many are followed; errors of the
    thread are not shown.
    """
    if is_over or len(_live) >= MAX_LIVE:
        return False

    def run() -> None:
        ident = threading.get_ident()
        _live.add(ident)
        try:
            follow()
        except Exception:  # noqa: BLE001 - what is shown stays as it was; asking the job tells what is wrong
            return
        finally:
            _live.discard(ident)

    threading.Thread(target=run, name=f"mgpu-shows-{job.id}", daemon=True).start()
    return True


def _follow(job: Job, updates: HeaderUpdates) -> None:
    """Update the header until the job is over."""
    frames = Pump(job.follow(rank=NO_RANK), PACE_S)
    try:
        for frame in frames:
            if isinstance(frame, JobFrame | EndFrame):
                job.snapshot = frame.job
                updates.changed(frame.job)
                if frame.job.state.is_final:
                    return
            else:
                updates.bring_up_to_date()
    finally:
        frames.close()
        updates.end()


def _follow_array(array: JobArray, handle: Any) -> None:
    while not _is_over(array):
        time.sleep(ARRAY_PAUSE_S)
        array.refresh()
        handle.update(bundle_of(array), raw=True, metadata=mark(array))


def _last_lines(job: Job, rank: int, count: int) -> tuple[str, ...]:
    """Return the last lines of the rank that failed first, as the server kept them; none for others, which
    are not fetched.
    """
    culprit = first_to_fail(job.snapshot) if job.snapshot is not None else None
    if culprit is not None and rank != culprit.rank:
        return ()
    try:
        told = job.refresh()
    except MgpuError:
        return ()
    return (
        told.failure.last_lines[-count:] if told.state is JobState.FAILED and told.failure is not None else ()
    )


def _is_over(array: JobArray) -> bool:
    return all(job.snapshot is not None and job.snapshot.state.is_final for job in array.jobs)
