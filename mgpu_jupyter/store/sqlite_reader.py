"""Reads the database: committed rows as values, and SQLite's errors as sentences. Writes nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.master.ports import (
    JobFilter,
    Mark,
    SavedJob,
    SavedState,
    TokenRow,
    UserRow,
)
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import FINAL_STATES, JobState
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.store.sealed_env import EnvSafe

ACTIVE = tuple(sorted(state.value for state in JobState if state not in FINAL_STATES))

MOST_NAMED = 1_000
"""How many jobs are named in one query."""

job_decoder = msgspec.msgpack.Decoder(Job)


class _ExitCode(msgspec.Struct):
    """The part of a record that is read when only the end of its job matters."""

    exit_code: int | None = None


_exit_code_decoder = msgspec.msgpack.Decoder(_ExitCode)
_record_decoder = msgspec.msgpack.Decoder(Record)

SELECT_JOB = "SELECT seq, spec, record, id, sealed, values_dropped FROM jobs"

# A user's login ends with the token that lives longest; it has no end if one token has none.
_SELECT_USERS = """
    SELECT users.name, users.role, users.created_at,
        CASE WHEN count(expires_at) = count(hash) THEN max(expires_at) END
    FROM users LEFT JOIN tokens ON tokens.user = users.name AND tokens.scope = 'user'
"""


class SqliteReader:
    """Reads committed rows. The caller keeps to one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, safe: EnvSafe, *, owns: bool = True) -> None:
        self._connection = connection
        self._safe = safe
        self._owns = owns

    def job(self, job_id: JobId) -> SavedJob | None:
        """Return one job."""
        with as_unavailable():
            row = self._connection.execute(f"{SELECT_JOB} WHERE id = ?", (job_id,)).fetchone()
        return None if row is None else saved_job(row, self._safe)

    def states_of(self, job_ids: Sequence[JobId]) -> dict[JobId, SavedState]:
        """Return the state of each of these jobs; unknown ones are left out."""
        found: dict[JobId, SavedState] = {}
        for first in range(0, len(job_ids), MOST_NAMED):
            named = tuple(job_ids[first : first + MOST_NAMED])
            query = f"SELECT id, state, record FROM jobs WHERE id IN ({', '.join('?' * len(named))})"  # noqa: S608 - marks only
            with as_unavailable():
                for job_id, state, record in self._connection.execute(query, named):
                    exit_code = None if state in ACTIVE else _exit_code_decoder.decode(record).exit_code
                    found[JobId(job_id)] = SavedState(JobState(state), exit_code)
        return found

    def jobs(self, wanted: JobFilter) -> list[SavedJob]:
        """Return a page, newest first."""
        clauses: list[str] = []
        values: list[object] = []
        if wanted.states:
            clauses.append(f"state IN ({', '.join('?' * len(wanted.states))})")
            values += [state.value for state in wanted.states]
        if wanted.ids:
            clauses.append(f"id IN ({', '.join('?' * len(wanted.ids))})")
            values += wanted.ids
        for column, test, value in (
            ("user", "=", wanted.user),
            ("name", "=", wanted.name),
            ("array_id", "=", wanted.array),
            ("notebook", "=", wanted.notebook),
            ("submitted_at", ">=", wanted.since),
            ("number", "<", wanted.before),
        ):
            if value is not None:
                clauses.append(f"{column} {test} ?")
                values.append(value)
        where = f"WHERE {' AND '.join(clauses)}" if clauses else ""
        query = f"{SELECT_JOB} {where} ORDER BY number DESC LIMIT ?"
        with as_unavailable():
            return [
                saved_job(row, self._safe) for row in self._connection.execute(query, (*values, wanted.limit))
            ]

    def changed_since(self, seq: int, limit: int) -> list[SavedJob]:
        """Return jobs that changed after `seq`, in the order of their last change."""
        query = f"{SELECT_JOB} WHERE seq > ? ORDER BY seq LIMIT ?"
        with as_unavailable():
            return [saved_job(row, self._safe) for row in self._connection.execute(query, (seq, limit))]

    def count_active(self) -> dict[str, int]:
        """Return how many jobs are in each state that is not final."""
        marks = ", ".join("?" * len(ACTIVE))
        query = f"SELECT state, count(*) FROM jobs WHERE state IN ({marks}) GROUP BY state"  # noqa: S608 - marks only
        with as_unavailable():
            return dict.fromkeys(ACTIVE, 0) | dict(self._connection.execute(query, ACTIVE).fetchall())

    def oldest_ended(self, after: int, limit: int) -> list[SavedJob]:
        """Return ended jobs with numbers larger than `after`, the first submitted first."""
        marks = ", ".join("?" * len(ACTIVE))
        query = f"{SELECT_JOB} WHERE number > ? AND state NOT IN ({marks}) ORDER BY number LIMIT ?"
        with as_unavailable():
            return [
                saved_job(row, self._safe) for row in self._connection.execute(query, (after, *ACTIVE, limit))
            ]

    def count_ended(self) -> int:
        """Return how many jobs are over."""
        with as_unavailable():
            every = int(self._connection.execute("SELECT count(*) FROM jobs").fetchone()[0])
        return every - sum(self.count_active().values())

    def answers(self, keys: Sequence[str]) -> list[Record]:
        """Return what was recorded under these names, oldest first."""
        query = f"SELECT record FROM answers WHERE key IN ({', '.join('?' * len(keys))}) ORDER BY id"  # noqa: S608 - marks only
        with as_unavailable():
            return [
                _record_decoder.decode(record) for (record,) in self._connection.execute(query, tuple(keys))
            ]

    def attempts(self, job_id: JobId) -> list[Job]:
        """Return a job's earlier attempts, oldest first, each as the job was at its end."""
        query = "SELECT record FROM attempts WHERE job_id = ? ORDER BY attempt"
        with as_unavailable():
            return [job_decoder.decode(record) for (record,) in self._connection.execute(query, (job_id,))]

    def marks(self, job_id: JobId) -> list[Mark]:
        """Return the steps of a job that were seen, in the order of time."""
        query = "SELECT job_id, attempt, step, who, at FROM marks WHERE job_id = ? ORDER BY at"
        with as_unavailable():
            rows = self._connection.execute(query, (job_id,)).fetchall()
        return [
            Mark(job_id=JobId(job), attempt=attempt, step=step, who=who, at=at)
            for job, attempt, step, who, at in rows
        ]

    def token(self, hash_: bytes) -> TokenRow | None:
        """Return the token with this hash."""
        query = "SELECT user, scope, created_at, expires_at FROM tokens WHERE hash = ?"
        with as_unavailable():
            row = self._connection.execute(query, (hash_,)).fetchone()
        if row is None:
            return None
        user, scope, created_at, expires_at = row
        return TokenRow(hash=hash_, user=user, scope=scope, created_at=created_at, expires_at=expires_at)

    def users(self) -> list[UserRow]:
        """Return all users by name."""
        with as_unavailable():
            return [
                _user(row)
                for row in self._connection.execute(
                    f"{_SELECT_USERS} GROUP BY users.name ORDER BY users.name"
                )
            ]

    def user(self, name: str) -> UserRow | None:
        """Return one user."""
        with as_unavailable():
            row = self._connection.execute(
                f"{_SELECT_USERS} WHERE users.name = ? GROUP BY users.name", (name,)
            ).fetchone()
        return None if row is None else _user(row)

    def close(self) -> None:
        """Close the connection, if it is this reader's own."""
        if self._owns:
            self._connection.close()


def saved_job(row: tuple[int, bytes, bytes, str, bytes | None, int], safe: EnvSafe) -> SavedJob:
    """Return a job of one row of `SELECT_JOB`."""
    seq, blob, record, job_id, sealed, was_dropped = row
    spec, is_open = safe.join(job_id, blob, sealed)
    return SavedJob(replace(job_decoder.decode(record), spec=spec), seq, bool(was_dropped) or not is_open)


def _user(row: tuple[str, str, float, float | None]) -> UserRow:
    name, role, created_at, expires_at = row
    return UserRow(name=name, role=role, created_at=created_at, expires_at=expires_at)


@contextmanager
def as_unavailable() -> Iterator[None]:
    """Turn errors of SQLite into a sentence for people."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text:
            raise Unavailable(
                "disk-full", "The disk with the queue is full: free some space, then try again."
            ) from error
        if "readonly" in text:
            raise Unavailable(
                "read-only", "The queue's database cannot be written: check the disk and its permissions."
            ) from error
        raise Unavailable(
            "store-error", f"The queue's database does not answer ({text}): see the server's log."
        ) from error
