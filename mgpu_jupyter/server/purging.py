"""Retention by hand: forgets jobs that ended long ago, row first, then their output. Decides only who may purge what."""

from __future__ import annotations

from functools import partial
from shutil import rmtree

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import administration
from mgpu_jupyter.master.ports import JobFilter, Reader, SavedJob
from mgpu_jupyter.model.job import FINAL_STATES
from mgpu_jupyter.server.access import Person
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.store.disk_use import results_size
from mgpu_jupyter.store.logs import log_files
from mgpu_jupyter.store.results import result_directories

PAGE = 500
"""So many jobs are forgotten in one commit: others are served between two."""


async def purge(service: Service, person: Person, request: administration.PurgeRequest) -> administration.PurgeAnswer:
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
            return administration.PurgeAnswer(jobs=jobs, output_bytes=size, dry_run=request.dry_run)
        last = page[-1].job.number


async def forget(service: Service, old: list[JobId], *, dry_run: bool = False) -> int:
    """Forget these jobs, which are over, row first, then their output; return how many bytes that was."""
    files = {path: job_id for job_id in old for path in log_files(service.log_root, job_id)}
    sizes = {path: path.stat().st_size for path in files}
    if old and not dry_run:
        carried, owners = await service.look(partial(_inputs_and_owners, job_ids=old))
        await service.forget_jobs(old)
        reach("server.purge")
        for path, job_id in files.items():
            path.unlink(missing_ok=True)
            service.output_shares.add(owners.get(job_id, ""), -sizes[path])
        for job_id in old:
            for directory in result_directories(service.place.path / "results", job_id):
                kept = results_size(directory)
                rmtree(directory, ignore_errors=True)
                service.results_shares.add(owners.get(job_id, ""), -kept)
        for user, digests in carried.items():
            await service.folders.forget(user, digests)
    return sum(sizes.values())


def _page(reader: Reader, wanted: JobFilter) -> list[SavedJob]:
    return reader.jobs(wanted)


def _inputs_and_owners(reader: Reader, job_ids: list[JobId]) -> tuple[dict[str, list[str]], dict[JobId, str]]:
    """Return by user which variables these jobs were given, and whose each is."""
    found: dict[str, list[str]] = {}
    owners: dict[JobId, str] = {}
    for job_id in job_ids:
        saved = reader.job(job_id)
        if saved is not None:
            owners[job_id] = saved.job.user
            if saved.job.spec.inputs:
                found.setdefault(saved.job.user, []).append(saved.job.spec.inputs)
    return found, owners


def _those(user: str | None, before: int | None) -> JobFilter:
    return JobFilter(states=tuple(sorted(FINAL_STATES)), user=user, before=before, limit=PAGE)
