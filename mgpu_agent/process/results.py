"""Files that a job leaves for its user: found when all of it on this node has ended, reported to the master,
and read on demand.

Searching, hashing and reading happen on the thread of the job's user and as that user, so that nothing is
handed out that the user could not read, and one user's files delay nobody else's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from queue import Empty, SimpleQueue

from mgpu_agent.keeper.messages import Collect, TaskRecord
from mgpu_agent.protocol.failpoints import damage
from mgpu_agent.protocol.file_messages import CollectResult, FoundResults, ResultChunk
from mgpu_agent.protocol.ids import AttemptKey
from mgpu_agent.protocol.model import ResultFile
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.found_files import CHUNK_BYTES
from mgpu_agent.run_as.requests import Content, FindResults, Found, ReadResult
from mgpu_agent.run_as.user_files import Ask, UserFiles, account_of


class Results:
    """The results of all attempts on this node that are not forgotten. `send` takes messages for the
    master.
    """

    def __init__(
        self, send: Callable[[FoundResults | ResultChunk], None], wake: Callable[[], None], users: UserFiles
    ) -> None:
        self._send = send
        self._wake = wake
        self._users = users
        self._ended: dict[AttemptKey, set[int]] = {}
        self._places: dict[AttemptKey, TaskRecord] = {}
        self._found: dict[AttemptKey, FoundResults] = {}
        self._ready: SimpleQueue[FoundResults | ResultChunk] = SimpleQueue()

    def note(self, record: TaskRecord) -> None:
        """Note the state of a process; after the last of an attempt its results are searched."""
        if record.collect is None or record.ended_at is None:
            return
        collect = record.collect
        ended = self._ended.setdefault(record.key, set())
        ended.add(record.rank)
        if len(ended) == collect.ranks and record.key not in self._places:
            self._places[record.key] = record
            if not self._users.submit(_lane(collect), lambda ask: self._look(ask, record, collect)):
                self._ready.put(
                    FoundResults(
                        key=record.key,
                        files=(),
                        problems=("Too many results of this user wait on this node",),
                    )
                )

    def turn(self, *, may_tell: bool) -> None:
        """Report what was found and read since the last call."""
        while True:
            try:
                told = self._ready.get_nowait()
            except Empty:
                return
            if told.key not in self._places:
                continue
            if isinstance(told, FoundResults):
                self._found[told.key] = told
            if may_tell:
                self._send(told)

    def tell_again(self) -> None:
        """Report all results again, because there is a new connection."""
        for found in self._found.values():
            self._send(found)

    def answer(self, wanted: CollectResult) -> None:
        """Have a part of a file read and sent."""
        found, record = self._found.get(wanted.key), self._places.get(wanted.key)
        if (
            found is None
            or record is None
            or record.collect is None
            or not 0 <= wanted.number < len(found.files)
        ):
            return
        file, collect = found.files[wanted.number], record.collect
        root = record.cwd if file.rank < 0 else collect.values
        part = ReadResult(
            root=root,
            path=file.path,
            uid=collect.uid,
            offset=wanted.offset,
            size=min(wanted.size, CHUNK_BYTES),
        )
        self._users.submit(
            _lane(collect), lambda ask: self._read(ask, wanted, part)
        )  # asked for again if too much waits

    def forget(self, keys: Iterable[AttemptKey]) -> None:
        """Forget these attempts."""
        for key in keys:
            for known in (self._ended, self._places, self._found):
                known.pop(key, None)

    # --- on the threads ------------------------------------------------------------------------------

    def _look(self, ask: Ask, record: TaskRecord, collect: Collect) -> None:
        task = FindResults(
            root=record.cwd,
            patterns=collect.patterns,
            uid=collect.uid,
            values=collect.values,
            limit_bytes=collect.limit_bytes,
        )
        try:
            found = ask(_account(collect), task)
            assert isinstance(found, Found)
            files = tuple(
                ResultFile(one.path, one.size, one.sha256, one.mode, one.rank) for one in found.files
            )
            told = FoundResults(key=record.key, files=files, problems=found.problems)
        except OSError as error:
            if self._users.is_closed:  # the next agent searches
                return
            told = FoundResults(
                key=record.key, files=(), problems=(f"The results could not be looked for: {error}",)
            )
        self._ready.put(told)
        self._wake()

    def _read(self, ask: Ask, wanted: CollectResult, part: ReadResult) -> None:
        data, problem = b"", ""
        try:
            content = ask(None if part.uid < 0 else account_of(part.uid), part)
            assert isinstance(content, Content)
            data = content.data[: part.size]
        except OSError as error:
            problem = f"{error}"
        data = damage("agent.result", data)
        self._ready.put(
            ResultChunk(
                key=wanted.key,
                number=wanted.number,
                offset=wanted.offset,
                data=memoryview(data),
                problem=problem,
            )
        )
        self._wake()


def _account(collect: Collect) -> Account | None:
    return None if collect.uid < 0 else account_of(collect.uid)


def _lane(collect: Collect) -> str:
    return f"{collect.user if collect.uid < 0 else collect.uid} leaves"
