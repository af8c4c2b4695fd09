"""Results of jobs from their nodes: one file after the other, in parts, and each compared with the SHA-256
that its node reported.

A file that arrived damaged is fetched again, a few times; then it is left out, and the listing says so. A
node keeps an attempt until all of its results are on disk here.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from queue import Empty, SimpleQueue

from mgpu_agent.protocol.file_messages import CollectResult, FoundResults, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_jupyter.master.keeping import DiskShares, Index, Kept, ResultKeeper

log = logging.getLogger("mgpu.results")

PART_BYTES = 1024 * 1024
WINDOW_BYTES = 8 * PART_BYTES  # requested ahead, so that there is no pause between parts
SYNC_BYTES = (
    16 * PART_BYTES
)  # synced while the rest still comes, so that the end of a large file causes no pause
UNHASHED = 16  # parts that may wait to be hashed: they are in memory
MAX_TRIES = 3
Held = tuple[NodeId, AttemptKey]


class _Transfer:
    """The results of one node for one attempt, as far as they are here."""

    def __init__(self, found: FoundResults, directory: os.PathLike[str]) -> None:
        self.found = found
        self.directory = directory
        self.kept: list[Kept] = []
        self.tries = 1
        self.told_of_damage = False
        self.unsynced: OSError | None = None
        """Why a part of it may not be on disk."""
        self.user = ""
        self.counted = 0
        """How much of its owner's share it takes so far, with the present file."""
        self.has_room = False
        """Whether the present file is counted."""
        self.begin()

    @property
    def number(self) -> int:
        return len(self.kept)

    def sha256(self) -> str:
        """Return the digest of all that was written; at most the last part is still to be hashed."""
        for part in self.hashed:
            part.result()
        self.hashed.clear()
        return self.digest.hexdigest()

    def begin(self) -> None:
        """Begin the present file, from its start."""
        self.offset = self.asked = 0
        self.digest = hashlib.sha256()
        self.hashed: deque[Future[None]] = deque()
        """The parts being hashed, in order, in another thread."""


class ResultCollector:
    """Fetches results. Used by the master's thread, with one thread of its own that syncs them to disk."""

    def __init__(
        self,
        store: ResultKeeper | None,
        wake: Callable[[], None],
        cap_bytes: int = 0,
        syncer: Executor | None = None,
        *,
        shares: DiskShares | None = None,
        owner: Callable[[JobId], str] = lambda _: "",
    ) -> None:
        self._store = store
        self._wake = wake
        self._cap_bytes = cap_bytes
        self._shares, self._owner = shares or DiskShares(), owner
        self._syncer = syncer or ThreadPoolExecutor(1, thread_name_prefix="mgpu-results")
        self._hasher = syncer or ThreadPoolExecutor(1, thread_name_prefix="mgpu-results-hash")
        self._transfers: dict[Held, _Transfer] = {}
        self._wanted: list[tuple[NodeId, CollectResult]] = []
        self._done: SimpleQueue[Held] = SimpleQueue()

    def take_found(self, node_id: NodeId, found: FoundResults) -> None:
        """Note the files to collect; when reported again, continue."""
        key = found.key
        if self._store is None or self._store.index(key.job_id, key.attempt, node_id) is not None:
            self._done.put((node_id, key))
            return
        transfer = self._transfers.get((node_id, key))
        if transfer is None or transfer.found != found:
            try:
                user = self._owner(key.job_id)
                directory = self._store.make_directory(key.job_id, key.attempt, node_id)
            except OSError as error:
                log.warning(
                    "results of job=%s cannot be kept: %s", key.job_id, error
                )  # its node reports them again
                return
            if transfer is not None:
                self._shares.add(transfer.user, -transfer.counted)
            transfer = self._transfers[node_id, key] = _Transfer(found, directory)
            transfer.user = user
        transfer.asked = transfer.offset
        self._go_on(node_id, transfer)

    def take_chunk(self, node_id: NodeId, chunk: ResultChunk) -> None:
        """Write a part of a file."""
        transfer = self._transfers.get((node_id, chunk.key))
        if transfer is None or (chunk.number, chunk.offset) != (transfer.number, transfer.offset):
            return
        file = transfer.found.files[transfer.number]
        if chunk.problem or (not chunk.data and transfer.offset < file.size):
            self._settle(transfer, chunk.problem or "it is shorter than it was")
        else:
            try:
                self._write(transfer, chunk.data)
            except OSError as error:
                self._settle(transfer, f"it could not be written: {error.strerror or error}")
        self._go_on(node_id, transfer)

    def take_wanted(self) -> list[tuple[NodeId, CollectResult]]:
        """Return the requests to nodes."""
        wanted, self._wanted = self._wanted, []
        return wanted

    def take_done(self) -> list[Held]:
        """Return the attempts whose results of a node are on disk."""
        done = []
        while True:
            try:
                done.append(self._done.get_nowait())
            except Empty:
                return done

    def close(self) -> None:
        """Finish the syncs that are under way."""
        self._syncer.shutdown(wait=True)
        self._hasher.shutdown(wait=True)

    def _go_on(self, node_id: NodeId, transfer: _Transfer) -> None:
        key, files = transfer.found.key, transfer.found.files
        while transfer.number < len(files):
            file = files[transfer.number]
            if (
                self._cap_bytes
                and sum(kept.file.size for kept in transfer.kept if not kept.problem) + file.size
                > self._cap_bytes
            ):
                self._settle(transfer, f"results are kept up to {self._cap_bytes} bytes")
            elif not self._has_room(transfer, file.size):
                share = (
                    f"with it all your results would have more than your share of "
                    f"{self._shares.limit_bytes} bytes"
                )
                self._settle(
                    transfer,
                    f"{share} (limits.user_results_bytes): delete old jobs with mgpu purge, or ask an "
                    f"administrator",
                )
            elif transfer.offset < file.size:
                while transfer.asked < min(file.size, transfer.offset + WINDOW_BYTES):
                    part = CollectResult(
                        key=key, number=transfer.number, offset=transfer.asked, size=PART_BYTES
                    )
                    self._wanted.append((node_id, part))
                    transfer.asked += PART_BYTES
                return
            elif transfer.sha256() == file.sha256:
                if not file.size:
                    self._write(transfer, memoryview(b""))
                self._settle(transfer, "")
            elif transfer.tries < MAX_TRIES:
                if not transfer.told_of_damage:
                    log.warning(
                        "result %r of job=%s arrived damaged from %s: fetched again",
                        file.path,
                        key.job_id,
                        node_id,
                    )
                transfer.told_of_damage = True
                transfer.tries += 1
                transfer.begin()
            else:
                self._settle(
                    transfer, "it arrived with another SHA-256 each time: it changed, or the way is broken"
                )
        del self._transfers[node_id, key]
        self._syncer.submit(self._finish, node_id, transfer)

    def _has_room(self, transfer: _Transfer, size: int) -> bool:
        """Count the present file for its owner before it comes; tell whether their share has room for it."""
        if not transfer.has_room and self._shares.take(transfer.user, size):
            transfer.counted += size
            transfer.has_room = True
        return transfer.has_room

    def _write(self, transfer: _Transfer, data: memoryview) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (0 if transfer.offset else os.O_TRUNC)
        descriptor = os.open(os.path.join(transfer.directory, str(transfer.number)), flags, 0o600)
        try:
            written = os.pwrite(descriptor, data, transfer.offset)
        finally:
            os.close(descriptor)
        transfer.hashed.append(self._hasher.submit(transfer.digest.update, data[:written]))
        if len(transfer.hashed) > UNHASHED:
            transfer.hashed.popleft().result()
        if transfer.offset // SYNC_BYTES < (transfer.offset + written) // SYNC_BYTES:
            self._syncer.submit(_sync_early, transfer, os.path.join(transfer.directory, str(transfer.number)))
        transfer.offset += written
        if written < min(PART_BYTES, transfer.found.files[transfer.number].size - transfer.offset + written):
            transfer.asked = transfer.offset  # later parts would leave a hole

    def _settle(self, transfer: _Transfer, problem: str) -> None:
        transfer.kept.append(
            Kept(file=transfer.found.files[transfer.number], problem=problem, tries=transfer.tries)
        )
        if problem and transfer.has_room:
            size = transfer.found.files[transfer.number - 1].size
            self._shares.add(transfer.user, -size)
            transfer.counted -= size
        transfer.has_room, transfer.tries = False, 1
        transfer.begin()

    def _finish(self, node_id: NodeId, transfer: _Transfer) -> None:
        key = transfer.found.key
        assert self._store is not None
        try:
            if transfer.unsynced is not None:
                raise transfer.unsynced
            index = Index(node_id=node_id, files=tuple(transfer.kept), problems=transfer.found.problems)
            self._store.finish(key.job_id, key.attempt, index)
        except OSError as error:
            log.warning("results of job=%s could not be brought to disk: %s", key.job_id, error)
            self._shares.add(
                transfer.user, -transfer.counted
            )  # its node reports them again, and they are fetched anew
        else:
            self._done.put((node_id, key))
            self._wake()


def _sync_early(transfer: _Transfer, path: str) -> None:
    """Sync what is there of a file. The system reports a failure once: a later sync would not know of it."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        transfer.unsynced = error
