"""Folders of users beside the master: kept on a thread of their own, and never let go while a job that is not over needs one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import is_digest
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.server.access import Person
from mgpu_jupyter.store.pieces import PieceStore

Ask = Callable[[Callable[[ClusterState], set[str]]], Awaitable[set[str]]]


class Folders:
    """What handlers ask about folders. Belongs to the server's event loop."""

    def __init__(self, store: PieceStore, ask: Ask) -> None:
        self._store = store
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mgpu-folders")

    async def missing(self, person: Person, digests: Sequence[str]) -> list[str]:
        """Return which of these a person has not sent."""
        return await self._loop.run_in_executor(self._thread, self._store.missing, person.name, digests)

    async def put(self, person: Person, pieces: Sequence[bytes]) -> list[str]:
        """Keep pieces of a person; returns when they are on disk."""
        in_use = await self._ask(_in_use)
        return await self._loop.run_in_executor(self._thread, self._store.put, person.name, pieces, lambda: in_use)

    async def check(self, person: Person, specs: Iterable[JobSpec]) -> None:
        """Refuse jobs whose folder is not whole here."""
        for digest in dict.fromkeys(spec.sync for spec in specs if spec.sync):
            if not is_digest(digest):
                raise InvalidRequest("bad-folder", "sync names a folder that was sent, by the SHA-256 of its list: the client does that.")
            await self._loop.run_in_executor(self._thread, partial(self._store.folder, person.name, digest))

    def close(self) -> None:
        """End the thread."""
        self._thread.shutdown(wait=True)


def _in_use(state: ClusterState) -> set[str]:
    return {job.spec.sync for job in state.jobs.values() if job.spec.sync and not job.state.is_final}
