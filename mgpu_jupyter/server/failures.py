"""Which process of a job failed first, and its last output. Reads the end of one file; decides nothing."""

from __future__ import annotations

from pathlib import Path

from mgpu_jupyter.api import models
from mgpu_jupyter.client.lines import TAIL_CHARS, Tail
from mgpu_jupyter.master.ports import LogKey
from mgpu_jupyter.scheduler.attempts import first_failed
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.store.logs import log_size, read_runs

LAST_LINES = 5


def failure_of(root: Path, job: Job, *, with_lines: bool) -> models.Failure | None:
    """Return the process that failed first, if any, with its last lines for those who may read them."""
    task = first_failed(job.tasks)
    if task is None:
        return None
    lines = last_lines(root, LogKey(job.id, job.attempt, task.rank)) if with_lines else ()
    return models.Failure(
        rank=task.rank, node=task.node_id, exit_code=task.exit_code, signal=task.signal, last_lines=lines
    )


def last_lines(root: Path, key: LogKey) -> tuple[str, ...]:
    """Return the last lines of what one rank printed, of both its streams."""
    begin = max(0, log_size(root, key) - TAIL_CHARS)
    tail = Tail()
    tail.feed(
        key.rank,
        b"".join(run.data for run in read_runs(root, key, begin, TAIL_CHARS)).decode("utf-8", "replace"),
    )
    return tail.last_lines(key.rank, LAST_LINES)
