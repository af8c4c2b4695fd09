"""Retention: jobs that ended long ago, or are too many or too large, are forgotten with their output.

The jobs that were submitted first are forgotten first. A round looks at one page of jobs; the rest is left to
the next one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path
from shutil import rmtree

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import administration
from mgpu_jupyter.master.ports import JobFilter, Reader, SavedJob, Store
from mgpu_jupyter.model.cluster_file import Retention
from mgpu_jupyter.model.job import FINAL_STATES
from mgpu_jupyter.server.access import Person
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.store.disk_use import results_size
from mgpu_jupyter.store.logs import log_files
from mgpu_jupyter.store.results import result_directories

log = logging.getLogger("mgpu.retention")

DAY_S = 86_400.0
GB = 1_000_000_000
SOON_S = 1.0
"""The pause before the next round when there is more than one round takes."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one round."""

    jobs: int = 0
    output_bytes: int = 0
    after: int = 0
    """The number of the job at which the next round continues; 0 starts over."""
    has_more: bool = False


async def keep_tidy(service: Service, wanted: Retention) -> None:
    """Make a round at intervals as long as the master runs."""
    done = Round()
    while True:
        try:
            done = await tidy(service, wanted, done.after)
            if done.jobs:
                log.info("retention forgot jobs=%d output_bytes=%d", done.jobs, done.output_bytes)
        except (MgpuError, OSError) as error:
            log.warning("retention came to nothing: %s", error)
            done = Round()
        await asyncio.sleep(SOON_S if done.has_more else wanted.every_s)


async def drop_values(service: Service, wanted: Retention) -> None:
    """Delete `--env` values of jobs that ended long ago, a page at a time, as long as the master runs."""
    after = 0
    while True:
        try:
            before = service.clock() - wanted.env_days * DAY_S
            count, after = await service.write(partial(_drop, before=before, after=after))
            if count:
                log.info("retention dropped values of --env jobs=%d", count)
        except MgpuError as error:
            log.warning("values of --env could not be dropped: %s", error)
            after = 0
        await asyncio.sleep(SOON_S if after else wanted.every_s)


def _drop(store: Store, before: float, after: int) -> tuple[int, int]:
    return store.drop_values(before, after)


async def tidy(service: Service, wanted: Retention, after: int = 0) -> Round:
    """Make one round from the job of this number on."""
    page = await service.look(partial(_page, after=after))
    chosen: dict[JobId, None] = {}
    if wanted.max_age_days is not None:
        limit = service.clock() - wanted.max_age_days * DAY_S
        chosen |= dict.fromkeys(
            saved.job.id for saved in page if saved.job.ended_at is not None and saved.job.ended_at <= limit
        )
    oldest = page if after == 0 else await service.look(partial(_page, after=0))
    if wanted.max_jobs is not None:
        excess = await service.look(lambda reader: reader.count_ended()) - wanted.max_jobs
        chosen |= dict.fromkeys(saved.job.id for saved in oldest[: max(0, excess)])
    if wanted.max_output_gb is not None:
        loop = asyncio.get_running_loop()
        sizes = await loop.run_in_executor(None, _sizes, service.log_root)
        chosen |= dict.fromkeys(
            _too_much([saved.job.id for saved in oldest], sizes, wanted.max_output_gb * GB)
        )
    jobs = list(chosen)
    is_full = len(page) == PAGE
    return Round(
        jobs=len(jobs),
        output_bytes=await forget(service, jobs),
        after=page[-1].job.number if is_full else 0,
        has_more=is_full or len(jobs) >= PAGE,
    )


def _page(reader: Reader, after: int) -> list[SavedJob]:
    return reader.oldest_ended(after, PAGE)


def _sizes(root: Path) -> dict[str, int]:
    """Return how many bytes of output there are of each job."""
    sizes: dict[str, int] = {}
    for folder in root.iterdir() if root.is_dir() else ():
        if folder.is_dir():
            with os.scandir(folder) as entries:
                for entry in entries:
                    job_id = entry.name.partition(".")[0]
                    sizes[job_id] = sizes.get(job_id, 0) + entry.stat().st_size
    return sizes


def _too_much(oldest: list[JobId], sizes: dict[str, int], most: float) -> list[JobId]:
    """Return the oldest jobs without whose output the rest is within the limit."""
    total = sum(sizes.values())
    gone: list[JobId] = []
    for job_id in oldest:
        if total <= most:
            break
        if size := sizes.get(job_id, 0):
            gone.append(job_id)
            total -= size
    return gone


PAGE = 500
"""How many jobs are forgotten in one commit: others are served between two."""


async def purge(
    service: Service, person: Person, request: administration.PurgeRequest
) -> administration.PurgeAnswer:
    """Forget the jobs that are asked for; return what was forgotten."""
    user = None if request.everybody else request.user or person.name
    if user != person.name:
        person.check_is_admin("purge the jobs of others")
    before = service.clock() - request.older_than_s
    jobs = size = 0
    last: int | None = None
    while True:
        page = await service.look(partial(_jobs_page, wanted=_those(user, last)))
        old = [
            saved.job.id for saved in page if saved.job.ended_at is not None and saved.job.ended_at <= before
        ]
        jobs, size = jobs + len(old), size + await forget(service, old, dry_run=request.dry_run)
        if len(page) < PAGE:
            return administration.PurgeAnswer(jobs=jobs, output_bytes=size, dry_run=request.dry_run)
        last = page[-1].job.number


async def forget(service: Service, old: list[JobId], *, dry_run: bool = False) -> int:
    """Forget these ended jobs, row first, then their output; return how many bytes that was."""
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


def _jobs_page(reader: Reader, wanted: JobFilter) -> list[SavedJob]:
    return reader.jobs(wanted)


def _inputs_and_owners(reader: Reader, job_ids: list[JobId]) -> tuple[dict[str, list[str]], dict[JobId, str]]:
    """Return by user which variables these jobs were given, and the owner of each job."""
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
