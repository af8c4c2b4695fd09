"""Retention by hand: forgets jobs that ended long ago, row first, then their output. Decides only who may purge what."""

from __future__ import annotations

from functools import partial
from shutil import rmtree

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import upkeep
from mgpu_jupyter.master.ports import JobFilter, Reader, SavedJob
from mgpu_jupyter.model.job import FINAL_STATES
from mgpu_jupyter.server.access import Person
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.store.logs import log_files
from mgpu_jupyter.store.results import result_directories

PAGE = 500
"""So many jobs are forgotten in one commit: others are served between two."""


async def purge(service: Service, person: Person, request: upkeep.PurgeRequest) -> upkeep.PurgeAnswer:
    """Forget what is asked for; return what it was."""
    user = None if request.everybody else request.user or person.name
    if user != person.name:
        person.check_is_admin("purge the jobs of others")
    before = service.clock() - request.older_than_s
    jobs = size = 0
    last: int | None = None
    while True:
        page = await service.look(partial(_page, wanted=_those(user, last)))
        old = [saved.job.id for saved in page if saved.job.ended_at is not None and saved.job.ended_at <= before]
        jobs, size = jobs + len(old), size + await forget(service, old, dry_run=request.dry_run)
        if len(page) < PAGE:
            return upkeep.PurgeAnswer(jobs=jobs, output_bytes=size, dry_run=request.dry_run)
        last = page[-1].job.number


async def forget(service: Service, old: list[JobId], *, dry_run: bool = False) -> int:
    """Forget these jobs, which are over, row first, then their output; return how many bytes that was."""
    files = [path for job_id in old for path in log_files(service.log_root, job_id)]
    size = sum(path.stat().st_size for path in files)
    if old and not dry_run:
        carried = await service.look(partial(_inputs, job_ids=old))
        await service.forget_jobs(old)
        reach("server.purge")
        for path in files:
            path.unlink(missing_ok=True)
        for directory in (one for job_id in old for one in result_directories(service.place.path / "results", job_id)):
            rmtree(directory, ignore_errors=True)
        for user, digests in carried.items():
            await service.folders.forget(user, digests)
    return size


def _page(reader: Reader, wanted: JobFilter) -> list[SavedJob]:
    return reader.jobs(wanted)


def _inputs(reader: Reader, job_ids: list[JobId]) -> dict[str, list[str]]:
    """Return by user which variables these jobs were given."""
    found: dict[str, list[str]] = {}
    for job_id in job_ids:
        saved = reader.job(job_id)
        if saved is not None and saved.job.spec.inputs:
            found.setdefault(saved.job.user, []).append(saved.job.spec.inputs)
    return found


def _those(user: str | None, before: int | None) -> JobFilter:
    return JobFilter(states=tuple(sorted(FINAL_STATES)), user=user, before=before, limit=PAGE)
