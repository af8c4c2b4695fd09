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
from mgpu_jupyter.master.marks import ATTEMPTS_REMEMBERED, Mark
from mgpu_jupyter.master.ports import (
    ALL_ANSWERS_REMEMBERED,
    ANSWERS_REMEMBERED,
    ENDED_REMEMBERED,
    JOIN_KEYS_REMEMBERED_S,
    LOCAL_SCOPE,
    Batch,
    JobFilter,
    JoinKey,
    NodeNotes,
    Recovered,
    SavedJob,
    SavedNode,
    TokenRow,
    UserRow,
    assigned_in,
)
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import FINAL_STATES, JobSpec, JobState
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.store.migrations import check_version, migrate
from mgpu_jupyter.store.sealed_env import EnvSafe, key_lost

BUSY_TIMEOUT_S = 10.0
_ACTIVE = tuple(sorted(state.value for state in JobState if state not in FINAL_STATES))
_NO_SPEC = JobSpec()
_encoder = msgspec.msgpack.Encoder()
_job_decoder = msgspec.msgpack.Decoder(Job)
_record_decoder = msgspec.msgpack.Decoder(Record)
_facts_decoder = msgspec.msgpack.Decoder(NodeFacts)
_notes_decoder = msgspec.msgpack.Decoder(NodeNotes)

_SELECT = "SELECT seq, spec, record, id, sealed, values_dropped FROM jobs"
_INSERT_JOB = """
    INSERT INTO jobs (number, id, user, name, state, submitted_at, idempotency_key, seq, spec, sealed, record, array_id, notebook)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""
_BIND_KEY = """
    INSERT INTO nodes (id, public_key) VALUES (?, ?)
    ON CONFLICT (id) DO UPDATE SET public_key = excluded.public_key, revoked = ''
"""
_JOIN_KEY = ("public_key", "node_id", "created_by", "created_at", "expires_at", "used_by")
_SELECT_JOIN_KEYS = f"SELECT {', '.join(_JOIN_KEY)} FROM join_keys ORDER BY created_at"  # noqa: S608 - columns are named above
_UPDATE_JOB = "UPDATE jobs SET state = ?, seq = ?, record = ? WHERE number = ?"
# A user's login ends with the token that lives longest; one without an end means none.
_SELECT_USERS = """
    SELECT users.name, users.role, users.created_at, CASE WHEN count(expires_at) = count(hash) THEN max(expires_at) END
    FROM users LEFT JOIN tokens ON tokens.user = users.name AND tokens.scope = 'user'
"""


class SqliteStore:
    """Opens, migrates and writes the database at `path`. Used by the master's thread alone."""

    def __init__(self, path: Path, *, on_network: bool = False) -> None:
        self._path = path
        with _as_unavailable():
            self._connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
            try:
                check_version(self._connection)  # before anything is changed
            except Unavailable:
                self._connection.close()
                raise
            # A network file system has no shared memory for WAL and no locks to trust: one process, rollback journal.
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
        """Read all that a new master must know."""
        with _as_unavailable():
            marks = ", ".join("?" * len(_ACTIVE))
            rows = self._connection.execute(f"{_SELECT} WHERE state IN ({marks})", _ACTIVE)
            active = [_saved_job(row, self._safe) for row in rows]
            if lost := [saved.job for saved in active if saved.values_dropped]:
                raise key_lost(lost)
            jobs = tuple(saved.job for saved in active)
            nodes = tuple(_saved_node(row) for row in self._connection.execute("SELECT id, public_key, facts, revoked, orders FROM nodes"))
            join_keys = tuple(JoinKey(**dict(zip(_JOIN_KEY, row, strict=True))) for row in self._connection.execute(_SELECT_JOIN_KEYS))
            number = self._connection.execute("SELECT coalesce(max(number), 0) FROM jobs").fetchone()[0]
            number = max(number, int(self.setting("number") or 0))  # the newest may have been purged
            memos = dict(self._connection.execute("SELECT name, value FROM memos").fetchall())
            over = self._connection.execute(
                f"{_SELECT} WHERE state NOT IN ({marks}) ORDER BY number DESC LIMIT ?",
                (*_ACTIVE, ENDED_REMEMBERED),
            )
            ended = tuple(_saved_job(row, self._safe).job for row in over)[::-1]
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
        attempts = [(job.id, job.attempt, job.epoch, _encoder.encode(replace(job, spec=_NO_SPEC))) for job in batch.attempts]
        old = [(job.id, job.attempt - ATTEMPTS_REMEMBERED) for job in batch.attempts if job.attempt > ATTEMPTS_REMEMBERED]
        facts = [(_encoder.encode(facts), node_id) for node_id, facts in batch.nodes.items()]
        notes = [(_encoder.encode(notes), node_id) for node_id, notes in batch.notes.items()]
        revoked = [(reason, node_id) for node_id, reason in batch.revoked.items()]
        with _as_unavailable(), self._transaction() as cursor:
            cursor.executemany(_INSERT_JOB, inserts)
            cursor.executemany(_UPDATE_JOB, updates)
            cursor.executemany("INSERT OR REPLACE INTO attempts (job_id, attempt, epoch, record) VALUES (?, ?, ?, ?)", attempts)
            cursor.executemany("DELETE FROM attempts WHERE job_id = ? AND attempt <= ?", old)
            cursor.executemany("DELETE FROM marks WHERE job_id = ? AND attempt <= ?", old)
            cursor.executemany(
                "INSERT OR IGNORE INTO marks VALUES (?, ?, ?, ?, ?)", [msgspec.structs.astuple(mark) for mark in batch.marks]
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
        with _as_unavailable():
            row = self._connection.execute(f"{_SELECT} WHERE user = ? AND idempotency_key = ?", (user, key)).fetchone()
        return None if row is None else _saved_job(row, self._safe).job

    def find_array(self, array_id: str) -> list[Job]:
        """Return the jobs of an array, in the order of their numbers."""
        with _as_unavailable():
            rows = self._connection.execute(f"{_SELECT} WHERE array_id = ? ORDER BY number", (array_id,))
            return [_saved_job(row, self._safe).job for row in rows]

    def forget_jobs(self, job_ids: Sequence[JobId]) -> None:
        """Delete all that is kept of jobs that are over; their numbers are never given again."""
        names = [(job_id,) for job_id in job_ids]
        with _as_unavailable(), self._transaction() as cursor:
            highest = cursor.execute("SELECT coalesce(max(number), 0) FROM jobs").fetchone()[0]
            number = str(max(highest, int(self.setting("number") or 0)))
            cursor.execute("INSERT OR REPLACE INTO meta VALUES ('number', ?)", (number,))
            for column, table in (("id", "jobs"), ("job_id", "attempts"), ("job_id", "marks"), ("key", "answers")):
                cursor.executemany(f"DELETE FROM {table} WHERE {column} = ?", names)  # noqa: S608 - tables are named above

    def drop_values(self, ended_before: float, after: int = 0) -> tuple[int, int]:
        """Drop values of `--env` of jobs that ended before then, a page; return how many, and where to go on (0 at the end)."""
        with _as_unavailable():
            return self._safe.drop(self._connection, ended_before, after)

    def owners(self) -> dict[str, str]:
        """Return whose each job is."""
        with _as_unavailable():
            return dict(self._connection.execute("SELECT id, user FROM jobs").fetchall())

    def assigned_nodes(self, key: AttemptKey) -> frozenset[NodeId]:
        """Return the nodes that this attempt was placed on, now or in the past."""
        query = "SELECT record FROM jobs WHERE id = ? UNION ALL SELECT record FROM attempts WHERE job_id = ? AND attempt = ?"
        with _as_unavailable():
            rows = self._connection.execute(query, (key.job_id, key.job_id, key.attempt)).fetchall()
        return assigned_in((_job_decoder.decode(record) for (record,) in rows), key)

    def bind_node_key(self, node_id: NodeId, public_key: str, join_key: str | None = None) -> None:
        """Bind a key to a node id in place of the one before; the join key that it came by is used up with it."""
        with _as_unavailable(), self._transaction() as cursor:
            cursor.execute("DELETE FROM nodes WHERE public_key = ? AND id <> ?", (public_key, node_id))
            cursor.execute(_BIND_KEY, (node_id, public_key))
            cursor.execute("UPDATE join_keys SET used_by = ? WHERE public_key = ?", (node_id, join_key))

    def add_join_key(self, key: JoinKey) -> None:
        """Keep a key for one enrolment; those that are long over are forgotten."""
        values = tuple(getattr(key, name) for name in _JOIN_KEY)
        with _as_unavailable(), self._transaction() as cursor:
            cursor.execute("DELETE FROM join_keys WHERE expires_at < ?", (key.created_at - JOIN_KEYS_REMEMBERED_S,))
            cursor.execute("INSERT OR REPLACE INTO join_keys VALUES (?, ?, ?, ?, ?, ?)", values)

    def setting(self, name: str) -> str | None:
        """Return a value that was kept under this name."""
        with _as_unavailable():
            row = self._connection.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
        return None if row is None else str(row[0])

    def set_setting(self, name: str, value: str) -> None:
        """Keep a value under this name."""
        with _as_unavailable():
            reach("store.setting.before")
            self._connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))
            reach("store.setting.after")

    def add_token(self, token: TokenRow) -> None:
        """Keep a token's hash."""
        with _as_unavailable():
            self._connection.execute(
                "INSERT OR REPLACE INTO tokens VALUES (?, ?, ?, ?, ?)",
                (token.hash, token.user, token.scope, token.created_at, token.expires_at),
            )

    def add_user(self, user: UserRow, token: TokenRow) -> None:
        """Keep a new user and the token to log in with, both or neither."""
        with _as_unavailable(), self._transaction() as cursor:
            cursor.execute("INSERT INTO users VALUES (?, ?, ?)", (user.name, user.role, user.created_at))
            cursor.execute(
                "INSERT INTO tokens VALUES (?, ?, ?, ?, ?)", (token.hash, token.user, token.scope, token.created_at, token.expires_at)
            )

    def remove_user(self, name: str) -> None:
        """Forget a user and all tokens they were given, at once."""
        with _as_unavailable(), self._transaction() as cursor:
            cursor.execute("DELETE FROM users WHERE name = ?", (name,))
            cursor.execute("DELETE FROM tokens WHERE user = ? AND scope <> ?", (name, LOCAL_SCOPE))

    def reader(self) -> SqliteReader:
        """Return a connection for looking; on a network file system it is the writer's own."""
        if self._on_network:
            return SqliteReader(self._connection, self._safe, owns=False)
        connection = sqlite3.connect(self._path, isolation_level=None, timeout=BUSY_TIMEOUT_S, check_same_thread=False)
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


class SqliteReader:
    """Reads committed rows. The caller keeps to one thread at a time."""

    def __init__(self, connection: sqlite3.Connection, safe: EnvSafe, *, owns: bool = True) -> None:
        self._connection = connection
        self._safe = safe
        self._owns = owns

    def job(self, job_id: JobId) -> SavedJob | None:
        """Return one job."""
        with _as_unavailable():
            row = self._connection.execute(f"{_SELECT} WHERE id = ?", (job_id,)).fetchone()
        return None if row is None else _saved_job(row, self._safe)

    def jobs(self, wanted: JobFilter) -> list[SavedJob]:
        """Return a page, newest first."""
        clauses: list[str] = []
        values: list[object] = []
        if wanted.states:
            clauses.append(f"state IN ({', '.join('?' * len(wanted.states))})")
            values += [state.value for state in wanted.states]
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
        query = f"{_SELECT} {where} ORDER BY number DESC LIMIT ?"
        with _as_unavailable():
            return [_saved_job(row, self._safe) for row in self._connection.execute(query, (*values, wanted.limit))]

    def changed_since(self, seq: int, limit: int) -> list[SavedJob]:
        """Return jobs that changed after `seq`, in the order of their last change."""
        query = f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT ?"
        with _as_unavailable():
            return [_saved_job(row, self._safe) for row in self._connection.execute(query, (seq, limit))]

    def count_active(self) -> dict[str, int]:
        """Return how many jobs are in each state that is not final."""
        marks = ", ".join("?" * len(_ACTIVE))
        query = f"SELECT state, count(*) FROM jobs WHERE state IN ({marks}) GROUP BY state"  # noqa: S608 - marks only
        with _as_unavailable():
            return dict.fromkeys(_ACTIVE, 0) | dict(self._connection.execute(query, _ACTIVE).fetchall())

    def oldest_ended(self, after: int, limit: int) -> list[SavedJob]:
        """Return jobs that are over with numbers above `after`, the first submitted first."""
        marks = ", ".join("?" * len(_ACTIVE))
        query = f"{_SELECT} WHERE number > ? AND state NOT IN ({marks}) ORDER BY number LIMIT ?"
        with _as_unavailable():
            return [_saved_job(row, self._safe) for row in self._connection.execute(query, (after, *_ACTIVE, limit))]

    def count_ended(self) -> int:
        """Return how many jobs are over."""
        with _as_unavailable():
            every = int(self._connection.execute("SELECT count(*) FROM jobs").fetchone()[0])
        return every - sum(self.count_active().values())

    def answers(self, keys: Sequence[str]) -> list[Record]:
        """Return what was recorded under these names, oldest first."""
        query = f"SELECT record FROM answers WHERE key IN ({', '.join('?' * len(keys))}) ORDER BY id"  # noqa: S608 - marks only
        with _as_unavailable():
            return [_record_decoder.decode(record) for (record,) in self._connection.execute(query, tuple(keys))]

    def attempts(self, job_id: JobId) -> list[Job]:
        """Return a job's earlier attempts, oldest first, each as the job was at its end."""
        query = "SELECT record FROM attempts WHERE job_id = ? ORDER BY attempt"
        with _as_unavailable():
            return [_job_decoder.decode(record) for (record,) in self._connection.execute(query, (job_id,))]

    def marks(self, job_id: JobId) -> list[Mark]:
        """Return the steps of a job that were seen, in the order of time."""
        query = "SELECT job_id, attempt, step, who, at FROM marks WHERE job_id = ? ORDER BY at"
        with _as_unavailable():
            rows = self._connection.execute(query, (job_id,)).fetchall()
        return [Mark(job_id=JobId(job), attempt=attempt, step=step, who=who, at=at) for job, attempt, step, who, at in rows]

    def token(self, hash_: bytes) -> TokenRow | None:
        """Return the token with this hash."""
        query = "SELECT user, scope, created_at, expires_at FROM tokens WHERE hash = ?"
        with _as_unavailable():
            row = self._connection.execute(query, (hash_,)).fetchone()
        if row is None:
            return None
        user, scope, created_at, expires_at = row
        return TokenRow(hash=hash_, user=user, scope=scope, created_at=created_at, expires_at=expires_at)

    def users(self) -> list[UserRow]:
        """Return all users by name."""
        with _as_unavailable():
            return [_user(row) for row in self._connection.execute(f"{_SELECT_USERS} GROUP BY users.name ORDER BY users.name")]

    def user(self, name: str) -> UserRow | None:
        """Return one user."""
        with _as_unavailable():
            row = self._connection.execute(f"{_SELECT_USERS} WHERE users.name = ? GROUP BY users.name", (name,)).fetchone()
        return None if row is None else _user(row)

    def close(self) -> None:
        """Close the connection, if it is this reader's own."""
        if self._owns:
            self._connection.close()


def _keep_answers(cursor: sqlite3.Cursor, answers: list[tuple[str, Record]]) -> None:
    """Write answers; of each name, and of all names together, only the newest stay."""
    cursor.executemany("INSERT INTO answers (key, record) VALUES (?, ?)", [(key, _encoder.encode(record)) for key, record in answers])
    old = "SELECT id FROM answers WHERE key = ? ORDER BY id DESC LIMIT 1 OFFSET ?"
    names = {key for key, _ in answers}
    cursor.executemany(
        f"DELETE FROM answers WHERE key = ? AND id <= ({old})",  # noqa: S608 - a query of our own
        [(key, key, ANSWERS_REMEMBERED) for key in names],
    )
    cursor.execute("DELETE FROM answers WHERE id <= (SELECT max(id) FROM answers) - ?", (ALL_ANSWERS_REMEMBERED,))


def _saved_job(row: tuple[int, bytes, bytes, str, bytes | None, int], safe: EnvSafe) -> SavedJob:
    seq, blob, record, job_id, sealed, was_dropped = row
    spec, is_open = safe.join(job_id, blob, sealed)
    return SavedJob(replace(_job_decoder.decode(record), spec=spec), seq, bool(was_dropped) or not is_open)


def _saved_node(row: tuple[str, str | None, bytes | None, str, bytes | None]) -> SavedNode:
    node_id, key, facts, revoked, notes = row
    return SavedNode(
        id=NodeId(node_id),
        public_key=key,
        facts=_facts_decoder.decode(facts) if facts else None,
        revoked=revoked,
        notes=_notes_decoder.decode(notes) if notes else NodeNotes(),
    )


def _user(row: tuple[str, str, float, float | None]) -> UserRow:
    name, role, created_at, expires_at = row
    return UserRow(name=name, role=role, created_at=created_at, expires_at=expires_at)


@contextmanager
def _as_unavailable() -> Iterator[None]:
    """Turn what SQLite says into a sentence for people."""
    try:
        yield
    except sqlite3.Error as error:
        text = str(error)
        if "full" in text:
            raise Unavailable("disk-full", "The disk with the queue is full: free some space, then try again.") from error
        if "readonly" in text:
            raise Unavailable("read-only", "The queue's database cannot be written: check the disk and its permissions.") from error
        raise Unavailable("store-error", f"The queue's database does not answer ({text}): see the server's log.") from error
