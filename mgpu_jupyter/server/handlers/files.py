"""Files of jobs: folders, results, and variables of cells. Each belongs to its user alone."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tornado.iostream import StreamClosedError

from mgpu_agent.protocol.errors import Forbidden, InvalidRequest, MgpuError, NotFound
from mgpu_agent.protocol.folders import MAX_LIST_BYTES
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import CellWish, PythonWish, ResultFile
from mgpu_jupyter.api import files as api
from mgpu_jupyter.api import models
from mgpu_jupyter.master.keeping import Index
from mgpu_jupyter.master.views import summary_of
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.launchers import tasks_of
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.foreign import BYTES
from mgpu_jupyter.server.handlers.base import Guarded
from mgpu_jupyter.server.handlers.reading import job_id_of
from mgpu_jupyter.server.limits import Cost


class MissingHandler(Guarded):
    """Which pieces are missing."""

    path = "folders/missing"

    async def post(self) -> None:
        """Look for pieces of the requesting user."""
        wanted = self.read_body(api.Digests).digests
        tray = self.near(self.service.folders.tray)
        if tray is not None:
            await self.service.folders.take_laid(self.person, wanted)
        self.answer(
            api.Missing(missing=tuple(await self.service.folders.missing(self.person, wanted)), tray=tray)
        )


class PiecesHandler(Guarded):
    """New pieces."""

    path = "folders/pieces"

    async def post(self) -> None:
        """Keep pieces of the requesting user."""
        if self.request.headers.get("Content-Type", "") == api.RAW:
            await self._take_raw(self.request.body)
            return
        pieces = self.read_body(api.Pieces).pieces
        if any(len(piece) > MAX_LIST_BYTES for piece in pieces):
            raise InvalidRequest(
                "piece-too-large",
                f"A piece may have {MAX_LIST_BYTES} bytes: send the folder with mgpu's own client.",
            )
        self.answer(api.Digests(digests=tuple(await self.service.folders.put(self.person, pieces))), 201)

    async def _take_raw(self, body: bytes) -> None:
        """Keep one piece sent as a raw body."""
        if not 0 < len(body) <= MAX_LIST_BYTES:
            raise InvalidRequest(
                "piece-too-large", f"A piece has 1 to {MAX_LIST_BYTES} bytes: send it with mgpu's own client."
            )
        self.answer(
            api.Digests(digests=tuple(await self.service.folders.put(self.person, (memoryview(body),)))),
            201,
        )


CHUNK_BYTES = 1024 * 1024
RESULT_LIMIT = 16 * 1024 * 1024


class OfJob(Guarded):
    """What all handlers of a job's files have in common."""

    def own_job(self, job_id: str) -> Job:
        """Return a job whose files the requesting user may have."""
        job = self.service.saved_job(job_id_of(job_id)).job
        self.person.check_may_touch(job.user, job.id)
        return job

    def check_owner(self, job: Job) -> None:
        """Refuse variables to everybody else, administrators too: reading them runs code of their owner's."""
        if self.person.name != job.user:
            raise Forbidden(
                "not-yours",
                f"Variables of job {job.id} go to {job.user} alone: reading them runs what they say.",
            )

    def collected(self, job: Job) -> tuple[dict[NodeId, Index | None], bool]:
        """Return what each node sent of a job's newest attempt, and whether that is all."""
        nodes = dict.fromkeys(placement.node_id for placement in job.placements)
        indexes = {node_id: self.service.results.index(job.id, job.attempt, node_id) for node_id in nodes}
        started = {task.node_id for task in job.tasks if not task.lost}
        to_come = [
            node_id
            for node_id, index in indexes.items()
            if index is None and (node_id in started or not job.state.is_final)
        ]
        return indexes, job.state.is_final and not to_come

    def listed(self, job: Job) -> api.ResultList:
        """Return the list of files of a job's newest attempt."""
        indexes, complete = self.collected(job) if job.spec.results else ({}, job.state.is_final)
        return api.ResultList(
            job_id=job.id,
            attempt=job.attempt,
            complete=complete,
            files=tuple(
                api.Result(
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
            problems=tuple(
                f"{index.node_id}: {problem}"
                for index in indexes.values()
                if index is not None
                for problem in index.problems
            ),
        )


class ResultsHandler(OfJob):
    """The list of results."""

    path = "jobs/{job_id}/results"

    def get(self, job_id: str) -> None:
        """List what was collected."""
        self.answer(self.listed(self.own_job(job_id)))


class ResultHandler(OfJob):
    """One file."""

    path = "jobs/{job_id}/result"
    cost = Cost.STREAM

    async def get(self, job_id: str) -> None:
        """Send a file or a part of it, chunk by chunk."""
        job = self.own_job(job_id)
        node, number = self.query("node", str, ""), self.number("number", 0, 0, models.MAX_RANK)
        file = self._file(job, NodeId(node), number)
        if file is None:
            raise NotFound("no-such-result", f"Job {job.id} has no such file: see `mgpu results {job.id}`.")
        if file.rank >= 0:
            self.check_owner(job)
        offset = min(self.number("offset", 0, 0, models.MAX_OFFSET), file.size)
        size = min(self.number("limit", RESULT_LIMIT, 1, models.MAX_OUTPUT_LIMIT), file.size - offset)
        path = self.service.results.directory(job.id, job.attempt, NodeId(node)) / str(number)
        self.set_saved(BYTES)
        self.set_header("Content-Length", str(size))
        self.set_header("X-Mgpu-Sha256", file.sha256)
        await self._send_file(path, offset, size)

    def _file(self, job: Job, node: NodeId, number: int) -> ResultFile | None:
        """Return a file that is here: a result, or variables of a rank."""
        wanted = bool(job.spec.results or job.spec.outputs) and node in {
            placement.node_id for placement in job.placements
        }
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
        """Summarise a job; everybody sees the queue, and what became of its jobs."""
        self.answer(summary_of(self.service.saved_job(job_id_of(job_id)).job, self.service.clock()))


ASK_S = 2.0
LOOK_S = 0.01  # a look at a directory or two; a request for each would cost far more


class ValuesHandler(OfJob):
    """The variables that a job returned."""

    path = "jobs/{job_id}/values"
    cost = Cost.STREAM

    async def get(self, job_id: str) -> None:
        """List what each rank returned, for the job's owner alone."""
        ends_at = time.monotonic() + self.number("wait", 0, 0, api.MAX_WAIT_S)
        while True:
            job = self.own_job(job_id)
            self.check_owner(job)
            indexes, complete = self.collected(job) if job.spec.outputs else ({}, job.state.is_final)
            if complete or time.monotonic() >= ends_at:
                break
            await asyncio.sleep(LOOK_S)
        files = [
            api.ValueFile(
                rank=kept.file.rank,
                node=node,
                number=number,
                size=kept.file.size,
                sha256=kept.file.sha256,
                problem=kept.problem,
                near=None
                if kept.problem
                else self.near(self.service.results.directory(job.id, job.attempt, node) / str(number)),
            )
            for node, index in indexes.items()
            if index is not None
            for number, kept in enumerate(index.files)
            if kept.file.rank >= 0
        ]
        self.answer(
            api.ValueList(
                job_id=job.id,
                attempt=job.attempt,
                state=job.state,
                outputs=job.spec.outputs,
                ranks=sum(placement.tasks for placement in job.placements) or tasks_of(job.spec),
                complete=complete,
                files=tuple(sorted(files, key=lambda file: file.rank)),
            )
        )


class PythonsHandler(Guarded):
    """The Python interpreters of nodes."""

    path = "pythons"
    cost = Cost.HEAVY

    async def post(self) -> None:
        """Ask all nodes that the user may use at once; those that do not answer soon are left out."""
        asked = self.read_body(api.PythonQuestion)
        wish = PythonWish(
            path=asked.python, kernel_path=asked.kernel_python, kernel_version=asked.kernel_python_version
        )
        usable = await self.service.usable_nodes(self.person)
        nodes = [
            node.id
            for node in self.service.master.nodes()
            if node.state is NodeState.ONLINE and node.id in usable
        ]
        told = await asyncio.gather(*(self._ask(node, wish) for node in nodes))
        self.answer(api.PythonAnswers(nodes=tuple(one for one in told if one is not None)))

    async def _ask(self, node: NodeId, wish: PythonWish) -> api.NodePython | None:
        try:
            answered = await asyncio.wait_for(
                self.service.ping(node, cell=CellWish(user=self.person.name, python=wish)), ASK_S
            )
        except (MgpuError, TimeoutError):
            return None
        cell = answered.pong.cell
        return (
            api.NodePython(node=node, path=cell.path, version=cell.version)
            if cell is not None and cell.version
            else None
        )
