"""Variables of cells: what a job left of them, and which Python a cell would find on each node. Never looks into a value."""

from __future__ import annotations

import asyncio
import time

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import CellWish, PythonWish
from mgpu_jupyter.api import variables
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.tasks import tasks_of
from mgpu_jupyter.server.handlers.base import Guarded
from mgpu_jupyter.server.handlers.results import OfJob
from mgpu_jupyter.server.limits import Cost

ASK_S = 2.0
LOOK_S = 0.01  # a look at a directory or two; a request for each would cost far more


class ValuesHandler(OfJob):
    """What a job left."""

    path = "jobs/{job_id}/values"
    cost = Cost.STREAM

    async def get(self, job_id: str) -> None:
        """List what each rank left; it is its user's alone."""
        ends_at = time.monotonic() + self.number("wait", 0, 0, variables.MAX_WAIT_S)
        while True:
            job = self.own_job(job_id)
            self.check_owner(job)
            indexes, complete = self.collected(job) if job.spec.outputs else ({}, job.state.is_final)
            if complete or time.monotonic() >= ends_at:
                break
            await asyncio.sleep(LOOK_S)
        files = [
            variables.ValueFile(
                rank=kept.file.rank,
                node=node,
                number=number,
                size=kept.file.size,
                sha256=kept.file.sha256,
                problem=kept.problem,
                near=None if kept.problem else self.near(self.service.results.directory(job.id, job.attempt, node) / str(number)),
            )
            for node, index in indexes.items()
            if index is not None
            for number, kept in enumerate(index.files)
            if kept.file.rank >= 0
        ]
        self.answer(
            variables.ValueList(
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
    """Which interpreters there are."""

    path = "pythons"
    cost = Cost.HEAVY

    async def post(self) -> None:
        """Ask all nodes that are there and that the asker may use, at once; of one that does not answer soon nothing is known."""
        asked = self.read_body(variables.PythonQuestion)
        wish = PythonWish(path=asked.python, kernel_path=asked.kernel_python, kernel_version=asked.kernel_python_version)
        usable = await self.service.usable_nodes(self.person)
        nodes = [node.id for node in self.service.master.nodes() if node.state is NodeState.ONLINE and node.id in usable]
        told = await asyncio.gather(*(self._ask(node, wish) for node in nodes))
        self.answer(variables.PythonAnswers(nodes=tuple(one for one in told if one is not None)))

    async def _ask(self, node: NodeId, wish: PythonWish) -> variables.NodePython | None:
        try:
            answered = await asyncio.wait_for(self.service.ping(node, cell=CellWish(user=self.person.name, python=wish)), ASK_S)
        except (MgpuError, TimeoutError):
            return None
        cell = answered.pong.cell
        return variables.NodePython(node=node, path=cell.path, version=cell.version) if cell is not None and cell.version else None
