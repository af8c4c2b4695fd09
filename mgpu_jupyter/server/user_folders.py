"""Folders of users, handled outside the master in threads; one that a job needs is never deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import Folder, is_digest, values_of
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.server.access import Person
from mgpu_jupyter.store.pieces import PieceStore

THREADS = 4
VARIABLES_GONE = "The variables of this job are not here (any more): run the cell again, which sends them."
Ask = Callable[[Callable[[ClusterState], set[str]]], Awaitable[set[str]]]


class UserFolders:
    """The handlers' access to folders. Belongs to the server's event loop."""

    def __init__(self, store: PieceStore, ask: Ask, limit_bytes: int = 0) -> None:
        self._store = store
        self._limit_bytes = limit_bytes
        """The most bytes of one folder when laid out."""
        self._ask = ask
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(THREADS, thread_name_prefix="mgpu-folders")

    async def missing(self, person: Person, digests: Sequence[str]) -> list[str]:
        """Return which of these a person has not sent."""
        return await self._loop.run_in_executor(self._thread, self._store.missing, person.name, digests)

    async def put(self, person: Person, pieces: Sequence[bytes | memoryview]) -> list[str]:
        """Keep pieces of a person; returns when they are on disk."""
        in_use = await self._ask(_in_use)
        return await self._loop.run_in_executor(
            self._thread, self._store.put, person.name, pieces, lambda: in_use
        )

    @property
    def tray(self) -> Path:
        """The directory into which programs of this server's user on this machine may put pieces."""
        return self._store.tray

    async def take_laid(self, person: Person, digests: Sequence[str]) -> None:
        """Keep pieces that a person of this machine put into the tray; returns when they are on disk."""
        laid = await self._loop.run_in_executor(self._thread, self._store.laid, digests)
        if laid:
            in_use = await self._ask(_in_use)
            await self._loop.run_in_executor(
                self._thread, self._store.take_laid, person.name, laid, lambda: in_use
            )

    async def check(self, person: Person, specs: Iterable[JobSpec]) -> None:
        """Refuse jobs whose folder is incomplete here."""
        specs = list(specs)
        for digest in dict.fromkeys(spec.sync for spec in specs if spec.sync):
            if not is_digest(digest):
                raise InvalidRequest(
                    "bad-folder",
                    "sync names a folder that was sent, by the SHA-256 of its list: the client does that.",
                )
            await self._whole(person, digest)
        for digest in dict.fromkeys(spec.inputs for spec in specs if spec.inputs):
            values_of(await self._whole(person, digest, VARIABLES_GONE))

    async def _whole(self, person: Person, digest: str, gone_text: str = "") -> Folder:
        return await self._loop.run_in_executor(
            self._thread, partial(self._store.folder, person.name, digest, gone_text, self._limit_bytes)
        )

    async def forget(self, user: str, digests: Sequence[str]) -> None:
        """Delete variables of jobs that are forgotten, unless another job that is not over has them."""
        in_use = await self._ask(_in_use)
        gone = [digest for digest in digests if digest not in in_use]
        await self._loop.run_in_executor(self._thread, self._store.forget, user, gone, in_use)

    def close(self) -> None:
        """End the threads."""
        self._thread.shutdown(wait=True)
        self._store.close()


def _in_use(state: ClusterState) -> set[str]:
    return {
        digest
        for job in state.jobs.values()
        if not job.state.is_final
        for digest in (job.spec.sync, job.spec.inputs)
        if digest
    }
