"""What a job leaves behind: the list of its files, one of them, and a summary. Files are their user's alone."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tornado.iostream import StreamClosedError

from mgpu_agent.protocol.errors import Forbidden, NotFound
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import ResultFile
from mgpu_jupyter.api import models, results
from mgpu_jupyter.master.keeping import Index
from mgpu_jupyter.master.summary import summary_of
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.foreign import BYTES
from mgpu_jupyter.server.handlers.base import Guarded, job_id_of
from mgpu_jupyter.server.limits import Cost

CHUNK_BYTES = 1024 * 1024
DEFAULT_LIMIT = 16 * 1024 * 1024


class OfJob(Guarded):
    """What all of these have in common."""

    def own_job(self, job_id: str) -> Job:
        """Return a job whose files the one who asks may have."""
        job = self.service.saved_job(job_id_of(job_id)).job
        self.person.check_may_touch(job.user, job.id)
        return job

    def check_owner(self, job: Job) -> None:
        """Refuse variables to everybody else, administrators too: reading them runs code of their owner's."""
        if self.person.name != job.user:
            raise Forbidden("not-yours", f"Variables of job {job.id} go to {job.user} alone: reading them runs what they say.")

    def collected(self, job: Job) -> tuple[dict[NodeId, Index | None], bool]:
        """Return what each node gave of a job's newest attempt, and whether that is all."""
        nodes = dict.fromkeys(placement.node_id for placement in job.placements)
        indexes = {node_id: self.service.results.index(job.id, job.attempt, node_id) for node_id in nodes}
        started = {task.node_id for task in job.tasks if not task.lost}
        to_come = [node_id for node_id, index in indexes.items() if index is None and (node_id in started or not job.state.is_final)]
        return indexes, job.state.is_final and not to_come

    def listed(self, job: Job) -> results.ResultList:
        """Return what is here of a job's newest attempt."""
        indexes, complete = self.collected(job) if job.spec.results else ({}, job.state.is_final)
        return results.ResultList(
            job_id=job.id,
            attempt=job.attempt,
            complete=complete,
            files=tuple(
                results.Result(
                    node=node_id,
                    number=number,
                    path=kept.file.path,
                    size=kept.file.size,
                    sha256=kept.file.sha256,
                    mode=kept.file.mode,
                    problem=kept.problem,
                    tries=kept.tries,
                )
                for node_id, index in indexes.items()
                if index is not None
                for number, kept in enumerate(index.files)
                if kept.file.rank < 0
            ),
            problems=tuple(f"{index.node_id}: {problem}" for index in indexes.values() if index is not None for problem in index.problems),
        )


class ResultsHandler(OfJob):
    """The list."""

    path = "jobs/{job_id}/results"

    def get(self, job_id: str) -> None:
        """List what was collected."""
        self.answer(self.listed(self.own_job(job_id)))


class ResultHandler(OfJob):
    """One file."""

    path = "jobs/{job_id}/result"
    cost = Cost.STREAM

    async def get(self, job_id: str) -> None:
        """Send a file or a part of it, piece by piece."""
        job = self.own_job(job_id)
        node, number = self.query("node", str, ""), self.number("number", 0, 0, models.MAX_RANK)
        file = self._file(job, NodeId(node), number)
        if file is None:
            raise NotFound("no-such-result", f"Job {job.id} has no such file: see `mgpu results {job.id}`.")
        if file.rank >= 0:
            self.check_owner(job)
        offset = min(self.number("offset", 0, 0, models.MAX_OFFSET), file.size)
        size = min(self.number("limit", DEFAULT_LIMIT, 1, models.MAX_OUTPUT_LIMIT), file.size - offset)
        path = self.service.results.directory(job.id, job.attempt, NodeId(node)) / str(number)
        self.set_saved(BYTES)
        self.set_header("Content-Length", str(size))
        self.set_header("X-Mgpu-Sha256", file.sha256)
        await self._send_file(path, offset, size)

    def _file(self, job: Job, node: NodeId, number: int) -> ResultFile | None:
        """Return a file that is here, whoever meant it."""
        wanted = bool(job.spec.results or job.spec.outputs) and node in {placement.node_id for placement in job.placements}
        index = self.service.results.index(job.id, job.attempt, node) if wanted else None
        if index is None or number >= len(index.files) or index.files[number].problem:
            return None
        return index.files[number].file

    async def _send_file(self, path: Path, offset: int, size: int) -> None:
        sent = 0
        with path.open("rb") as source:
            source.seek(offset)
            while sent < size and (data := source.read(min(CHUNK_BYTES, size - sent))):
                self.write(data)
                sent += len(data)
                try:
                    await asyncio.wait_for(self.flush(), self.service.settings.follower_timeout_s)
                except (StreamClosedError, TimeoutError):
                    self.end_stream("It took nothing for too long.")
                    return
        self.finish()


class SummaryHandler(Guarded):
    """A job on one page."""

    path = "jobs/{job_id}/summary"

    def get(self, job_id: str) -> None:
        """Sum a job up; everybody sees the queue, and what it became."""
        self.answer(summary_of(self.service.saved_job(job_id_of(job_id)).job, self.service.clock()))
