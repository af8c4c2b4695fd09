"""Retention: jobs that ended long ago, or are too many or too large, are forgotten with their output. Bounded work each round.

The jobs that were submitted first go first. A round looks at one page of jobs; what is left over is for the next one.
"""

from __future__ import annotations

import asyncio
import logging
import os
from functools import partial
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.master.ports import Reader, SavedJob, Store
from mgpu_jupyter.model.cluster_file import Retention
from mgpu_jupyter.server.purging import PAGE, forget
from mgpu_jupyter.server.service import Service

log = logging.getLogger("mgpu.retention")

DAY_S = 86_400.0
GB = 1_000_000_000
SOON_S = 1.0
"""When there is more than one round takes, the next one comes so soon."""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """What one round did."""

    jobs: int = 0
    output_bytes: int = 0
    after: int = 0
    """The number of the job where the next round goes on; 0 begins anew."""
    has_more: bool = False


async def keep_tidy(service: Service, wanted: Retention) -> None:
    """Make a round every so often for as long as the master runs."""
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
    """Drop values of `--env` of jobs that ended long ago, a page at a time, every so often for as long as the master runs."""
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
        chosen |= dict.fromkeys(saved.job.id for saved in page if saved.job.ended_at is not None and saved.job.ended_at <= limit)
    oldest = page if after == 0 else await service.look(partial(_page, after=0))
    if wanted.max_jobs is not None:
        excess = await service.look(lambda reader: reader.count_ended()) - wanted.max_jobs
        chosen |= dict.fromkeys(saved.job.id for saved in oldest[: max(0, excess)])
    if wanted.max_output_gb is not None:
        loop = asyncio.get_running_loop()
        sizes = await loop.run_in_executor(None, _sizes, service.log_root)
        chosen |= dict.fromkeys(_too_much([saved.job.id for saved in oldest], sizes, wanted.max_output_gb * GB))
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
    """Return the jobs, oldest first, without whose output the rest is no more than it may be."""
    total = sum(sizes.values())
    gone: list[JobId] = []
    for job_id in oldest:
        if total <= most:
            break
        if size := sizes.get(job_id, 0):
            gone.append(job_id)
            total -= size
    return gone
