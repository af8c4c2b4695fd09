"""Answers "why?" outside the master: copies its state inside a turn, and works in a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.master.ports import Reader
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.explanations import Explanation, NodeOutlook
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.explain import history
from mgpu_jupyter.scheduler.explain.questions import explain_job, explain_node, explain_request
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.state import ClusterState

_T = TypeVar("_T")


class Ask(Protocol):
    """Answers a question from the master's state, on its thread."""

    def __call__(self, question: Callable[[ClusterState], _T]) -> Awaitable[_T]:
        """Return the answer."""


class Explainer:
    """Belongs to the server's event loop; the reader is its own."""

    def __init__(self, ask: Ask, reader: Reader, clock: Callable[[], float]) -> None:
        self._ask, self._reader, self._clock = ask, reader, clock
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mgpu-explain")

    async def job(self, saved: Job) -> Explanation:
        """Explain a job, with what it was told before."""
        now = self._clock()

        def question(state: ClusterState) -> tuple[Job, tuple[str, ...], StateSnapshot]:
            job = state.jobs.get(saved.id, saved)
            return job, history.keys_of(state, job), StateSnapshot(state, now)

        job, keys, snapshot = await self._ask(question)

        def work() -> Explanation:
            own, *shared = [self._reader.answers((key,)) for key in keys]
            told = tuple(
                record
                for since, until in history.waits(job, self._reader.attempts(job.id))
                for record in history.merged(own, shared, since, until)
            )
            return replace(explain_job(snapshot, job), job_id=job.id, history=told[-history.KEPT :])

        return await self._run(work)

    async def request(self, user: str, spec: JobSpec) -> Explanation:
        """Explain a request that is not submitted."""
        check(spec)
        now = self._clock()
        snapshot = await self._ask(lambda state: StateSnapshot(state, now))
        return await self._run(lambda: explain_request(snapshot, user, spec))

    async def node(self, node_id: NodeId) -> NodeOutlook:
        """Return the jobs that are expected on a node."""
        now = self._clock()
        snapshot = await self._ask(lambda state: StateSnapshot(state, now))
        return await self._run(lambda: explain_node(snapshot, node_id))

    def close(self) -> None:
        """Finish pending work."""
        self._thread.shutdown(wait=True)
        self._reader.close()

    async def _run(self, work: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)
