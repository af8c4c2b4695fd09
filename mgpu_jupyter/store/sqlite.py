"""The store in SQLite: WAL and FULL sync, one writer, one commit per batch. Decides nothing about jobs."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.model import NodeFacts
from mgpu_jupyter.master.ports import (
    ALL_ANSWERS_REMEMBERED,
    ANSWERS_REMEMBERED,
    ATTEMPTS_REMEMBERED,
    ENDED_REMEMBERED,
    JOIN_KEYS_REMEMBERED_S,
    LOCAL_SCOPE,
    Batch,
    JoinKey,
    NodeNotes,
    Recovered,
    SavedNode,
    TokenRow,
    UserRow,
    assigned_in,
)
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.store.migrations import check_version, migrate
from mgpu_jupyter.store.sealed_env import EnvSafe, key_lost
from mgpu_jupyter.store.sqlite_reader import (
    ACTIVE,
    SELECT_JOB,
    SqliteReader,
    as_unavailable,
    job_decoder,
    saved_job,
)

BUSY_TIMEOUT_S = 10.0

_NO_SPEC = JobSpec()
_encoder = msgspec.msgpack.Encoder()

_facts_decoder = msgspec.msgpack.Decoder(NodeFacts)
_notes_decoder = msgspec.msgpack.Decoder(NodeNotes)

_INSERT_JOB = """
    INSERT INTO jobs (
        number, id, user, name, state, submitted_at, idempotency_key, seq, spec, sealed, record, array_id, notebook
    )
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""  # noqa: E501
_BIND_KEY = """
    INSERT INTO nodes (id, public_key) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET public_key = excluded.public_key, revoked = ''
"""
_JOIN_KEY = ("public_key", "node_id", "created_by", "created_at", "expires_at", "used_by")
_SELECT_JOIN_KEYS = f"SELECT {', '.join(_JOIN_KEY)} FROM join_keys ORDER BY created_at"  # noqa: S608 - columns are named above
_UPDATE_JOB = "UPDATE jobs SET state = ?, seq = ?, record = ? WHERE number = ?"


class SqliteStore:
    """Opens, migrates and writes the database at `path`. Used by the master's thread alone."""

    def __init__(self, path: Path, *, on_network: bool = False) -> None:
        self._path = path
        with as_unavailable():
            self._connection = sqlite3.connect(
                path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
            )
            try:
                check_version(self._connection)  # before anything is changed
            except Unavailable:
                self._connection.close()
                raise
            # A network file system has no shared memory for WAL and no reliable locks: one process, rollback
            # journal.
            self._connection.execute(f"PRAGMA journal_mode = {'TRUNCATE' if on_network else 'WAL'}")
            if on_network:
                self._connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute("PRAGMA wal_autocheckpoint = 4000")
            migrate(self._connection)
            self._safe = EnvSafe(path)
            self._safe.seal_all(self._connection)
        self._on_network = on_network

    def recover(self) -> Recovered:
        """Return all that a new master must know."""
        with as_unavailable():
            marks = ", ".join("?" * len(ACTIVE))
            rows = self._connection.execute(f"{SELECT_JOB} WHERE state IN ({marks})", ACTIVE)
            active = [saved_job(row, self._safe) for row in rows]
            if lost := [saved.job for saved in active if saved.values_dropped]:
                raise key_lost(lost)
            jobs = tuple(saved.job for saved in active)
            nodes = tuple(
                _saved_node(row)
                for row in self._connection.execute(
                    "SELECT id, public_key, facts, revoked, orders FROM nodes"
                )
            )
            join_keys = tuple(
                JoinKey(**dict(zip(_JOIN_KEY, row, strict=True)))
                for row in self._connection.execute(_SELECT_JOIN_KEYS)
            )
            number = self._connection.execute("SELECT coalesce(max(number), 0) FROM jobs").fetchone()[0]
            number = max(number, int(self.setting("number") or 0))  # the newest may have been purged
            memos = dict(self._connection.execute("SELECT name, value FROM memos").fetchall())
            over = self._connection.execute(
                f"{SELECT_JOB} WHERE state NOT IN ({marks}) ORDER BY number DESC LIMIT ?",
                (*ACTIVE, ENDED_REMEMBERED),
            )
            ended = tuple(saved_job(row, self._safe).job for row in over)[::-1]
            return Recovered(
                jobs=jobs,
                nodes=nodes,
                epoch=int(self.setting("epoch") or 0),
                number=number,
                join_keys=join_keys,
                memos=memos,
                ended=ended,
            )

    def next_master_epoch(self) -> int:
        """Raise the master epoch and return it."""
        epoch = int(self.setting("master_epoch") or 0) + 1
        self.set_setting("master_epoch", str(epoch))
        return epoch

    def commit(self, batch: Batch) -> None:
        """Write a batch in one transaction and return when it is on disk."""
        reach("store.batch")
        inserts, updates = [], []
        for saved in batch.jobs.values():
            job = saved.job
            record = _encoder.encode(replace(job, spec=_NO_SPEC))
            if job.id in batch.new:
                spec, sealed = self._safe.split(job.id, job.spec)
                array = job.array.id if job.array else None
                about = (job.number, job.id, job.user, job.spec.name, job.state, job.submitted_at, job.key)
                notebook = (job.spec.origin.notebook if job.spec.origin else "") or None
                inserts.append((*about, saved.seq, spec, sealed, record, array, notebook))
            else:
                updates.append((job.state, saved.seq, record, job.number))
        attempts = [
            (job.id, job.attempt, job.epoch, _encoder.encode(replace(job, spec=_NO_SPEC)))
            for job in batch.attempts
        ]
        old = [
            (job.id, job.attempt - ATTEMPTS_REMEMBERED)
            for job in batch.attempts
            if job.attempt > ATTEMPTS_REMEMBERED
        ]
        facts = [(_encoder.encode(facts), node_id) for node_id, facts in batch.nodes.items()]
        notes = [(_encoder.encode(notes), node_id) for node_id, notes in batch.notes.items()]
        revoked = [(reason, node_id) for node_id, reason in batch.revoked.items()]
        with as_unavailable(), self._transaction() as cursor:
            cursor.executemany(_INSERT_JOB, inserts)
            cursor.executemany(_UPDATE_JOB, updates)
            cursor.executemany(
                "INSERT OR REPLACE INTO attempts (job_id, attempt, epoch, record) VALUES (?, ?, ?, ?)",
                attempts,
            )
            cursor.executemany("DELETE FROM attempts WHERE job_id = ? AND attempt <= ?", old)
            cursor.executemany("DELETE FROM marks WHERE job_id = ? AND attempt <= ?", old)
            cursor.executemany(
                "INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?, ?)",
                [msgspec.structs.astuple(mark) for mark in batch.marks],
            )
            cursor.executemany("UPDATE nodes SET facts = ? WHERE id = ?", facts)
            cursor.executemany("UPDATE nodes SET public_key = NULL, revoked = ? WHERE id = ?", revoked)
            cursor.executemany("INSERT OR REPLACE INTO memos VALUES (?, ?)", list(batch.memos.items()))
            cursor.executemany("UPDATE nodes SET orders = ? WHERE id = ?", notes)
            cursor.executemany("DELETE FROM nodes WHERE id = ?", [(node_id,) for node_id in batch.removed])
            if batch.answers:
                _keep_answers(cursor, batch.answers)
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (str(batch.epoch),))

    def find_job(self, job_id: JobId) -> Job | None:
        """Return one job."""
        saved = SqliteReader(self._connection, self._safe, owns=False).job(job_id)
        return None if saved is None else saved.job

    def find_by_key(self, user: str, key: str) -> Job | None:
        """Return the job that this user submitted under this key."""
        with as_unavailable():
            row = self._connection.execute(
                f"{SELECT_JOB} WHERE user = ? AND idempotency_key = ?", (user, key)
            ).fetchone()
        return None if row is None else saved_job(row, self._safe).job

    def find_array(self, array_id: str) -> list[Job]:
        """Return the jobs of an array, in the order of their numbers."""
        with as_unavailable():
            rows = self._connection.execute(f"{SELECT_JOB} WHERE array_id = ? ORDER BY number", (array_id,))
            return [saved_job(row, self._safe).job for row in rows]

    def forget_jobs(self, job_ids: Sequence[JobId]) -> None:
        """Delete all records of jobs that are over; their numbers are never used again."""
        names = [(job_id,) for job_id in job_ids]
        with as_unavailable(), self._transaction() as cursor:
            highest = cursor.execute("SELECT coalesce(max(number), 0) FROM jobs").fetchone()[0]
            number = str(max(highest, int(self.setting("number") or 0)))
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ('number', ?)", (number,))
            for column, table in (
                ("id", "jobs"),
                ("job_id", "attempts"),
                ("job_id", "marks"),
                ("key", "answers"),
            ):
                cursor.executemany(f"DELETE FROM {table} WHERE {column} = ?", names)  # noqa: S608 - tables are named above

    def drop_values(self, ended_before: float, after: int = 0) -> tuple[int, int]:
        """Delete `--env` values of jobs that ended before then, one page; return how many, and where to
        continue (0 at the end).
        """
        with as_unavailable():
            return self._safe.drop(self._connection, ended_before, after)

    def owners(self) -> dict[str, str]:
        """Return the owner of each job."""
        with as_unavailable():
            return dict(self._connection.execute("SELECT id, user FROM jobs").fetchall())

    def assigned_nodes(self, key: AttemptKey) -> frozenset[NodeId]:
        """Return the nodes that this attempt was placed on, now or in the past."""
        query = (
            "SELECT record FROM jobs WHERE id = ? UNION ALL SELECT record FROM attempts WHERE job_id = "
            "? AND attempt = ?"
        )
        with as_unavailable():
            rows = self._connection.execute(query, (key.job_id, key.job_id, key.attempt)).fetchall()
        return assigned_in((job_decoder.decode(record) for (record,) in rows), key)

    def bind_node_key(self, node_id: NodeId, public_key: str, join_key: str | None = None) -> None:
        """Bind a key to a node id in place of the one before; this uses up the join key."""
        with as_unavailable(), self._transaction() as cursor:
            cursor.execute("DELETE FROM nodes WHERE public_key = ? AND id <> ?", (public_key, node_id))
            cursor.execute(_BIND_KEY, (node_id, public_key))
            cursor.execute("UPDATE join_keys SET used_by = ? WHERE public_key = ?", (node_id, join_key))

    def add_join_key(self, key: JoinKey) -> None:
        """Keep a key for one enrolment; those that expired long ago are forgotten."""
        values = tuple(getattr(key, name) for name in _JOIN_KEY)
        with as_unavailable(), self._transaction() as cursor:
            cursor.execute(
                "DELETE FROM join_keys WHERE expires_at < ?", (key.created_at - JOIN_KEYS_REMEMBERED_S,)
            )
            cursor.execute("INSERT OR REPLACE INTO join_keys VALUES (?, ?, ?, ?, ?, ?)", values)

    def setting(self, name: str) -> str | None:
        """Return the value kept under this name."""
        with as_unavailable():
            row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_setting(self, name: str, value: str) -> None:
        """Keep a value under this name."""
        with as_unavailable():
            reach("store.setting.before")
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
            reach("store.setting.after")

    def add_token(self, token: TokenRow) -> None:
        """Keep a token's hash."""
        with as_unavailable():
            self._connection.execute(
                "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?)",
                (token.hash, token.user, token.scope, token.created_at, token.expires_at),
            )

    def add_user(self, user: UserRow, token: TokenRow) -> None:
        """Keep a new user and the token to log in with, both or neither."""
        with as_unavailable(), self._transaction() as cursor:
            cursor.execute("INSERT INTO users VALUES (?, ?, ?)", (user.name, user.role, user.created_at))
            cursor.execute(
                "INSERT INTO tokens VALUES (?, ?, ?, ?, ?)",
                (token.hash, token.user, token.scope, token.created_at, token.expires_at),
            )

    def remove_user(self, name: str) -> None:
        """Forget a user and all tokens they were given, at once."""
        with as_unavailable(), self._transaction() as cursor:
            cursor.execute("DELETE FROM users WHERE name = ?", (name,))
            cursor.execute("DELETE FROM tokens WHERE user = ? AND scope <> ?", (name, LOCAL_SCOPE))

    def reader(self) -> SqliteReader:
        """Return a connection for reading; on a network file system it is the writer's own."""
        if self._on_network:
            return SqliteReader(self._connection, self._safe, owns=False)
        connection = sqlite3.connect(
            self._path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False
        )
        return SqliteReader(connection, self._safe)

    def close(self) -> None:
        """Close the database."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._connection.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
            reach("store.commit.before")
            cursor.execute("COMMIT")
            reach("store.commit.after")
        except BaseException:
            if self._connection.in_transaction:
                cursor.execute("ROLLBACK")
            raise


def _keep_answers(cursor: sqlite3.Cursor, answers: list[tuple[str, Record]]) -> None:
    """Write answers; for each name, and for all names together, only the newest are kept."""
    cursor.executemany(
        "INSERT INTO answers (key, record) VALUES (?, ?)",
        [(key, _encoder.encode(record)) for key, record in answers],
    )
    old = "SELECT id FROM answers WHERE key = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    names = {key for key, _ in answers}
    cursor.executemany(
        f"DELETE FROM answers WHERE key = ? AND id <= ({old})",  # noqa: S608 - a query of our own
        [(key, key, ANSWERS_REMEMBERED) for key in names],
    )
    cursor.execute(
        "DELETE FROM answers WHERE id <= (SELECT max(id) FROM answers) - ?", (ALL_ANSWERS_REMEMBERED,)
    )


def _saved_node(row: tuple[str, str | None, bytes | None, str, bytes | None]) -> SavedNode:
    node_id, key, facts, revoked, notes = row
    return SavedNode(
        id=NodeId(node_id),
        public_key=key,
        facts=_facts_decoder.decode(facts) if facts else None,
        revoked=revoked,
        notes=_notes_decoder.decode(notes) if notes else NodeNotes(),
    )
