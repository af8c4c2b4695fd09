"""The append-only record of what was started on this node, so that nothing starts twice. Starts and kills
nothing itself.

Written with write(2) and no sync: after a crash of agent or keeper all that was written is there, and a power
cut ends the jobs too, which the new boot id tells the master. A torn tail is cut off at the next start.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from mgpu_agent.keeper.ledger_file import LedgerFile, LedgerNotes
from mgpu_agent.keeper.messages import Hooks, StartRefused, TaskRecord
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.sealing import seal, unseal

TaskKey = tuple[AttemptKey, int]

STALE = "stale"
GONE_LIMIT = 20_000  # finished jobs that are remembered in case of late launches: about 3 MB of memory
COMPACT_AT_BYTES = 4 * 1024 * 1024
SEALED = b"\0sealed"  # no variable can have this name
_HEAD = struct.Struct(">II")


class _Opened(msgspec.Struct, frozen=True, array_like=True, tag="o"):
    ledger_id: str
    boot_id: str


class _Meant(msgspec.Struct, frozen=True, array_like=True, tag="m"):
    record: TaskRecord


class _Begun(msgspec.Struct, frozen=True, array_like=True, tag="b"):
    key: AttemptKey
    rank: int
    pid: int
    started_at: float
    boot_s: float


class _Ended(msgspec.Struct, frozen=True, array_like=True, tag="e"):
    key: AttemptKey
    rank: int
    ended_at: float
    exit_code: int | None
    signal: int | None
    reason: str
    lost: bool
    stdout_bytes: int
    stderr_bytes: int


class _Forgotten(msgspec.Struct, frozen=True, array_like=True, tag="f"):
    keys: tuple[AttemptKey, ...]


class _Refused(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    key: AttemptKey
    code: str
    message: str
    fault: str
    exit_code: int | None


class _Hooked(msgspec.Struct, frozen=True, array_like=True, tag="h"):
    key: AttemptKey
    hooks: Hooks


class _Tidied(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    key: AttemptKey


_Line = _Opened | _Meant | _Begun | _Ended | _Forgotten | _Refused | _Hooked | _Tidied
_encoder = msgspec.msgpack.Encoder()
_env_decoder = msgspec.msgpack.Decoder(dict[bytes, bytes])
_decoder: msgspec.msgpack.Decoder[_Line] = msgspec.msgpack.Decoder(_Line)


class Ledger:
    """What is known of every attempt on this node. Owns the file that holds it."""

    def __init__(self, path: Path, boot_id: str, opened: Callable[[Path], LedgerNotes] = LedgerFile) -> None:
        self._file = opened(path)
        self.boot_id = boot_id
        self.ledger_id = ""
        self.last_boot_id = boot_id
        self.tasks: dict[TaskKey, TaskRecord] = {}
        self.boot_times: dict[TaskKey, float] = {}
        """When each live process was started, on the boot clock."""
        self.hooks: dict[AttemptKey, Hooks] = {}
        """Attempts whose epilog has not run yet."""
        self._ranks: dict[AttemptKey, list[int]] = {}
        self._gone: dict[JobId, StartRefused] = {}
        self._highest: dict[JobId, int] = {}
        self._buffer = bytearray()
        self._compact_at = COMPACT_AT_BYTES
        self._load()

    # --- questions -------------------------------------------------------------------------------

    def known(self, key: AttemptKey) -> list[TaskRecord]:
        """Return the records of every rank of this attempt."""
        return [self.tasks[key, rank] for rank in self._ranks.get(key, ())]

    def refusal(self, key: AttemptKey) -> StartRefused | None:
        """Return why this attempt must not be started, or None if nothing speaks against it."""
        gone = self._gone.get(key.job_id)
        if gone is not None and gone.key == key:
            return gone
        if key.epoch < self._highest.get(key.job_id, 0) or (gone is not None and key.epoch <= gone.key.epoch):
            return stale(key, f"A newer attempt of job {key.job_id} is already known here.")
        return None

    def unfinished(self) -> list[TaskRecord]:
        """Return the tasks that were to run and have no recorded end."""
        return [record for record in self.tasks.values() if record.ended_at is None]

    # --- notes -----------------------------------------------------------------------------------

    def note_meant(self, record: TaskRecord) -> None:
        """Note that this process is about to be started; call `flush` before starting it."""
        self._apply_and_keep(_Meant(record))

    def note_begun(
        self, key: AttemptKey, rank: int, pid: int, started_at: float, boot_s: float
    ) -> TaskRecord:
        """Note the process that was started and return its record."""
        self._apply_and_keep(_Begun(key, rank, pid, started_at, boot_s))
        return self.tasks[key, rank]

    def note_ended(
        self,
        key: AttemptKey,
        rank: int,
        *,
        ended_at: float,
        exit_code: int | None,
        signal: int | None,
        reason: str,
        sizes: tuple[int, int],
        lost: bool = False,
    ) -> TaskRecord:
        """Note how a process ended and return its final record."""
        self._apply_and_keep(_Ended(key, rank, ended_at, exit_code, signal, reason, lost, *sizes))
        return self.tasks[key, rank]

    def note_refused(self, refusal: StartRefused) -> None:
        """Note that nothing will ever start under this key: a failed spawn, or a stop that came first."""
        self._apply_and_keep(
            _Refused(refusal.key, refusal.code, refusal.message, refusal.fault, refusal.exit_code)
        )

    def note_hooked(self, key: AttemptKey, hooks: Hooks) -> None:
        """Note the hooks of an attempt that is about to be started."""
        self.hooks[key] = hooks
        self._buffer += _frame(_Hooked(key, self._sealed(hooks)))

    def note_tidied(self, key: AttemptKey) -> None:
        """Note that the epilog of an attempt has run."""
        self._apply_and_keep(_Tidied(key))

    def note_forgotten(self, keys: Iterable[AttemptKey]) -> list[TaskRecord]:
        """Note that the master has the ends of these attempts and return their records; live ones stay."""
        ended = tuple(
            key
            for key in keys
            if key in self._ranks and all(record.ended_at is not None for record in self.known(key))
        )
        records = [record for key in ended for record in self.known(key)]
        if ended:
            self._apply_and_keep(_Forgotten(ended))
        return records

    def flush(self) -> bool:
        """Write all notes; tell whether the disk took them. The rest is tried again by the next flush."""
        if not self._buffer:
            return True
        try:
            reach("keeper.ledger.before")
            is_written = self._file.append(self._buffer)
        except OSError:
            is_written = False
        if not is_written:
            return False
        reach("keeper.ledger.after")
        self._buffer.clear()
        if self._file.size >= self._compact_at:
            try:
                self._compact()
            except OSError:
                self._compact_at = 2 * self._file.size
        return True

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    # --- file ------------------------------------------------------------------------------------

    def _load(self) -> None:
        whole = 0
        for line, whole in _read_lines(self._file.read()):  # noqa: B007 - where the last one ends
            self._apply(line)
        if not self.ledger_id:
            self.ledger_id = os.urandom(8).hex()
        try:
            self._compact()
        except OSError:
            # A full disk: the file stays as it is, and nothing starts before it can be written again.
            self._file.keep(whole)
            self._buffer += _frame(_Opened(self.ledger_id, self.boot_id))

    def _compact(self) -> None:
        lines: list[_Line] = [_Opened(self.ledger_id, self.boot_id)]
        lines += [
            _Refused(gone.key, gone.code, gone.message, gone.fault, gone.exit_code)
            for gone in self._gone.values()
        ]
        for task_key, record in self.tasks.items():
            lines.append(_Meant(record))
            if task_key in self.boot_times:
                lines.append(
                    _Begun(record.key, record.rank, record.pid, record.started_at, self.boot_times[task_key])
                )
        lines += [_Hooked(key, self._sealed(hooks)) for key, hooks in self.hooks.items()]
        data = b"".join(map(_frame, lines))
        self._file.replace(data)
        self._compact_at = max(COMPACT_AT_BYTES, 4 * len(data))

    def _apply_and_keep(self, line: _Line) -> None:
        self._apply(line)
        self._buffer += _frame(line)

    def _apply(self, line: _Line) -> None:
        match line:
            case _Meant(record):
                self._add(record)
            case _Begun(key, rank, pid, started_at, boot_s):
                if (key, rank) in self.tasks:
                    self.tasks[key, rank] = replace(self.tasks[key, rank], pid=pid, started_at=started_at)
                    self.boot_times[key, rank] = boot_s
            case _Ended(key, rank):
                self._end(line)
            case _Forgotten(keys):
                for key in keys:
                    self._remove(key)
                    self._remember_gone(stale(key, f"Attempt {key} ended here and was forgotten."))
            case _Refused(key, code, message, fault, exit_code):
                self._remove(key)
                self._remember_gone(
                    StartRefused(key=key, code=code, message=message, fault=fault, exit_code=exit_code)
                )
            case _Hooked(key, hooks):
                self.hooks[key] = self._opened(hooks)
            case _Tidied(key):
                self.hooks.pop(key, None)
            case _Opened(ledger_id, boot_id):
                self.ledger_id = ledger_id
                self.last_boot_id = boot_id

    def _sealed(self, hooks: Hooks) -> Hooks:
        """Return hooks as they are written: the job's environment may hold secrets, so it is encrypted, or
        left out without a key.
        """
        if not hooks.env:
            return hooks
        try:
            return replace(hooks, env={SEALED: seal(self._file.key(), _encoder.encode(hooks.env))})
        except (OSError, MgpuError):
            return replace(hooks, env={})

    def _opened(self, hooks: Hooks) -> Hooks:
        """Return hooks as they were; epilogs run also when the environment can no longer be decrypted."""
        if SEALED not in hooks.env:
            return hooks
        try:
            return replace(hooks, env=_env_decoder.decode(unseal(self._file.key(), hooks.env[SEALED])))
        except (OSError, MgpuError, msgspec.DecodeError):
            return replace(hooks, env={})

    def _add(self, record: TaskRecord) -> None:
        key = record.key
        if (key, record.rank) not in self.tasks:
            self._ranks.setdefault(key, []).append(record.rank)
        self.tasks[key, record.rank] = record
        if key.epoch > self._highest.get(key.job_id, 0):
            self._highest[key.job_id] = key.epoch

    def _end(self, line: _Ended) -> None:
        task_key = (line.key, line.rank)
        if task_key not in self.tasks:
            return
        self.boot_times.pop(task_key, None)
        self.tasks[task_key] = replace(
            self.tasks[task_key],
            ended_at=line.ended_at,
            exit_code=line.exit_code,
            signal=line.signal,
            reason=line.reason,
            lost=line.lost,
            stdout_bytes=line.stdout_bytes,
            stderr_bytes=line.stderr_bytes,
        )

    def _remove(self, key: AttemptKey) -> None:
        self.hooks.pop(key, None)
        for rank in self._ranks.pop(key, ()):
            self.tasks.pop((key, rank), None)
            self.boot_times.pop((key, rank), None)

    def _remember_gone(self, refusal: StartRefused) -> None:
        job = refusal.key.job_id
        known = self._gone.pop(job, None)
        self._gone[job] = refusal if known is None or known.key.epoch <= refusal.key.epoch else known
        if self._highest.get(job, 0) <= refusal.key.epoch:
            self._highest.pop(job, None)
        while len(self._gone) > GONE_LIMIT:
            del self._gone[next(iter(self._gone))]


def stale(key: AttemptKey, message: str) -> StartRefused:
    """Return the refusal of an attempt that is out of date."""
    return StartRefused(key=key, code=STALE, message=message, fault="stale")


def _frame(line: _Line) -> bytes:
    body = _encoder.encode(line)
    return _HEAD.pack(len(body), zlib.crc32(body)) + body


def _read_lines(data: bytes) -> Iterable[tuple[_Line, int]]:
    """Yield each line and where it ends, up to the first that is incomplete."""
    position = 0
    while position + _HEAD.size <= len(data):
        length, checksum = _HEAD.unpack_from(data, position)
        start = position + _HEAD.size
        body = data[start : start + length]
        if len(body) != length or zlib.crc32(body) != checksum:
            return
        try:
            line = _decoder.decode(body)
        except msgspec.DecodeError:
            return
        position = start + length
        yield line, position
