"""Jobs that were submitted before: attaching to them, reading their output, and listing those of this
notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgpu_agent.protocol.errors import InvalidRequest, NotFound
from mgpu_jupyter.client import watch, words
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.gather import gather
from mgpu_jupyter.client.job import Job, rank_count
from mgpu_jupyter.client.reasons import clock
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.errors import shorten
from mgpu_jupyter.notebook.leaving import Leaving
from mgpu_jupyter.notebook.stream import CellViewer

LISTED = 50


def find(client: Client, job_id: str) -> Job:
    """Return the job or array of this id."""
    try:
        job = client.job(job_id)
    except NotFound:
        try:
            return client.array(job_id)
        except NotFound:
            pass
        raise
    return job if job.info.id == job.id else client.array(job_id)


def attach(
    job: Job,
    rank: int | None,
    viewer_of: Callable[[int], CellViewer],
    *,
    cancel: Callable[[], bool] = lambda: False,
) -> SweepTable | None:
    """Show a job to its end, or the jobs of an array; an interrupt leaves it running.

    For an array that was submitted just now, `cancel` tells whether the interrupt cancels it.
    """
    if isinstance(job, JobArray):
        try:
            gather(job, cancel=cancel)
        except KeyboardInterrupt as interrupt:
            raise shorten(interrupt) from None
        return job.table()
    info = job.info
    viewer = viewer_of(1 if rank is not None else max(rank_count(info), info.nodes_wanted))
    viewer.submitted(job)
    viewer.attached()
    job.caller.on_trouble = viewer.trouble
    try:
        outcome = watch.attach(job, viewer, Leaving(None), rank)
    finally:
        job.caller.on_trouble = None
        viewer.close()
    if outcome.detached:
        raise shorten(KeyboardInterrupt(left(job.id))) from None
    if outcome.job.state is not JobState.COMPLETED:
        raise viewer.failure(outcome.job)
    viewer.done(outcome.job)
    return None


def left(job_id: str) -> str:
    """Return the sentence for a user who leaves a job that goes on."""
    return (
        f"Left {job_id}; it goes on. `%mgpu_attach {job_id}` shows it again, `%mgpu_cancel {job_id}` ends it."
    )


def logs(client: Client, job_id: str | None, rank: int | None, tail: int | None) -> str:
    """Return the output of a job so far."""
    if not job_id:
        raise InvalidRequest("usage", "Name the job, as in `%mgpu_logs R4T8W2ZB`.")
    job = find(client, job_id)
    if tail is None or hasattr(job, "jobs"):
        return job.output(rank) if tail is None else job.tail(tail, rank or 0)
    ranks: Sequence[int] = range(rank_count(job.info)) if rank is None else (rank,)
    if len(ranks) == 1:
        return job.tail(tail, ranks[0])
    return "".join(f"{one}: {line}\n" for one in ranks for line in job.tail(tail, one).splitlines())


def jobs_of(client: Client, notebook: str) -> Table:
    """Return the jobs of a notebook, newest first; where none is known, the user's own newest ones."""
    if notebook:
        found = [job.snapshot for job in client.jobs(notebook=notebook, limit=LISTED) if job.snapshot]
        caption, empty = (
            "Jobs of this notebook; `%mgpu_attach ID` shows one:",
            "No job came from this notebook.",
        )
    else:
        user = client.cluster().user
        found = [job.snapshot for job in client.jobs(user=user, limit=LISTED) if job.snapshot]
        caption, empty = (
            "This front end does not say which notebook it is. Your newest jobs:",
            "You have no jobs.",
        )
    rows = [
        (
            info.id if info.array_id is None else f"{info.id} of {info.array_id}",
            info.name or info.command,
            info.state.value,
            clock(info.submitted_at),
            words.ending(info) if info.state.is_final else info.reason,
        )
        for info in found
    ]
    return Table(caption, ("Job", "Name", "State", "Submitted", ""), rows, empty)
