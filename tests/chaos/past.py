"""A database with a past: many jobs that ended long ago, and some that wait. Written by the store's own code;
starts nothing.
"""

from __future__ import annotations

from pathlib import Path

from mgpu_agent.protocol.places import make_private_dir
from mgpu_jupyter.master.ports import Batch, SavedJob
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.store.sqlite import SqliteStore
from tests.builders import job_id

BATCH = 10_000
PAST = "past"
"""The name of all these jobs."""


def make_past(
    state: Path, ended: int, waiting: int = 0, *, user: str = "ann", first: int = 0, since: float = 1_000.0
) -> None:
    """Fill the database in a state directory that no master uses: one job a second, each a second long."""
    store = SqliteStore(make_private_dir(state) / "mgpu.db")
    spec = JobSpec(command=("python", "train.py", "--epochs", "10"), gpus=1, name=PAST)
    last = first + ended + waiting
    for start in range(first, last, BATCH):
        numbers = range(start, min(start + BATCH, last))
        jobs = {
            job_id(number): _job(number, user, spec, since, is_over=number < first + ended)
            for number in numbers
        }
        saved = {name: SavedJob(job, job.number) for name, job in jobs.items()}
        store.commit(
            Batch(
                jobs=saved,
                new=set(jobs),
                attempts=[],
                nodes={},
                notes={},
                revoked={},
                removed=set(),
                memos={},
            )
        )
    store.close()
    (state / "mgpu.db").chmod(0o600)


def _job(number: int, user: str, spec: JobSpec, since: float, *, is_over: bool) -> Job:
    plain = Job(id=job_id(number), number=number + 1, user=user, spec=spec, submitted_at=since + number)
    if not is_over:
        return plain
    return Job(
        id=plain.id,
        number=plain.number,
        user=user,
        spec=spec,
        submitted_at=plain.submitted_at,
        state=JobState.COMPLETED,
        attempt=1,
        started_at=plain.submitted_at + 1,
        ended_at=plain.submitted_at + 2,
        exit_code=0,
    )
