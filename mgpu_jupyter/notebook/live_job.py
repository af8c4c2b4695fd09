"""A job as the value of a cell: a line that follows it while the kernel does something else, and says how it ended.

The updates come from a thread and go by the display's id: JupyterLab shows them at any time, other front ends keep what they had
when the cell ended. A terminal gets the line once.
"""

from __future__ import annotations

import html
import threading
import time
from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.gather import tally_of
from mgpu_jupyter.client.job import NO_RANK, Job
from mgpu_jupyter.client.words import duration, ending, names, printable, waiting
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.front import bar_html, show_bundle
from mgpu_jupyter.notebook.remember import mark

MAX_LIVE = 32
"""So many jobs are followed at once; the others are shown as they were."""
ARRAY_PAUSE_S = 1.0
_live: set[int] = set()


def line_of(job: Job) -> str:
    """Return a job as one line, as it was seen last."""
    if isinstance(job, JobArray):
        return f"mgpu {job.id}: {tally_of(job.jobs).text()}"
    info = job.snapshot
    if info is None:
        return f"mgpu {job.id}"
    name = f"{info.name} " if info.name else ""
    if info.state is JobState.QUEUED:
        return waiting(info)
    if info.state.is_final:
        return f"{ending(info)} · {name}{info.id}"
    where = f" on {names(info.nodes)}" if info.nodes else ""
    since = f" for {duration(time.time() - info.started_at)}" if info.started_at and info.state is not JobState.STARTING else ""
    return f"mgpu {info.id} {name}{info.state.value}{where}{since}"


def bundle_of(job: Job) -> dict[str, str]:
    """Return the line for any front end."""
    text = line_of(job)
    if isinstance(job, JobArray):
        return {"text/plain": text, "text/html": bar_html(tally_of(job.jobs), [])}
    return {"text/plain": printable(text), "text/html": f'<div class="mgpu-job" style="{QUIET}">{html.escape(text)}</div>'}


QUIET = "color: var(--jp-ui-font-color1, #212121); font-family: var(--jp-ui-font-family, sans-serif); font-size: 12px"


class LiveJobs:
    """Shows jobs that are values of cells, and follows them."""

    def __init__(self, *, is_rich: bool) -> None:
        self._is_rich = is_rich

    def show(self, job: Job) -> None:
        """Show a job; in a kernel it goes on by itself."""
        try:
            job.refresh()
        except MgpuError as error:
            print(f"{job!r}: {error.message}")  # noqa: T201 - what a cell's value says is output
            return
        if not self._is_rich:
            print(line_of(job))  # noqa: T201
            return
        handle = show_bundle(bundle_of(job), display_id=True, metadata=mark(job))
        if job.snapshot is not None and not job.snapshot.state.is_final and len(_live) < MAX_LIVE:
            threading.Thread(target=self._follow, args=(job, handle), name=f"mgpu-shows-{job.id}", daemon=True).start()

    def _follow(self, job: Job, handle: Any) -> None:
        """Update the line until the job is over; a thread, so it keeps its troubles to itself."""
        ident = threading.get_ident()
        _live.add(ident)
        try:
            if isinstance(job, JobArray):
                while not _is_over(job):
                    time.sleep(ARRAY_PAUSE_S)
                    job.refresh()
                    handle.update(bundle_of(job), raw=True, metadata=mark(job))
                return
            with job.follow(rank=NO_RANK) as frames:
                for frame in frames:
                    if isinstance(frame, models.JobFrame | models.EndFrame):
                        job.snapshot = frame.job
                    handle.update(bundle_of(job), raw=True, metadata=mark(job))
                    if job.snapshot is not None and job.snapshot.state.is_final:
                        return
        except Exception:  # noqa: BLE001 - the line stays as it was; asking the job tells what is wrong
            return
        finally:
            _live.discard(ident)


def _is_over(array: JobArray) -> bool:
    return all(job.snapshot is not None and job.snapshot.state.is_final for job in array.jobs)
