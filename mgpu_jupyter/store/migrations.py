"""The schema of the database, as numbered steps that only go forward."""

from __future__ import annotations

import sqlite3

from mgpu_agent.protocol.errors import Unavailable

STEPS: tuple[str, ...] = (
    # 1: jobs by number; `record` is the job without its request, which never changes and may be long.
    """
    CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE jobs (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        user TEXT NOT NULL,
        name TEXT NOT NULL,
        state TEXT NOT NULL,
        submitted_at REAL NOT NULL,
        idempotency_key TEXT,
        seq INTEGER NOT NULL,
        spec BLOB NOT NULL,
        record BLOB NOT NULL
    );
    CREATE UNIQUE INDEX jobs_by_key ON jobs (user, idempotency_key) WHERE idempotency_key IS NOT NULL;
    CREATE INDEX jobs_by_seq ON jobs (seq);
    CREATE INDEX jobs_active ON jobs (state) WHERE state IN ('queued', 'starting', 'running', 'stopping');
    CREATE TABLE attempts (
        job_id TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        epoch INTEGER NOT NULL,
        record BLOB NOT NULL,
        PRIMARY KEY (job_id, attempt)
    ) WITHOUT ROWID;
    CREATE TABLE nodes (id TEXT PRIMARY KEY, public_key TEXT NOT NULL UNIQUE, facts BLOB) WITHOUT ROWID;
    CREATE TABLE tokens (
        hash BLOB PRIMARY KEY,
        user TEXT NOT NULL,
        scope TEXT NOT NULL,
        created_at REAL NOT NULL,
        expires_at REAL
    ) WITHOUT ROWID;
    """,
    # 2: a revoked node keeps its row without a key; keys under which a node may enrol once.
    """
    CREATE TABLE nodes_2 (
        id TEXT PRIMARY KEY, public_key TEXT UNIQUE, facts BLOB, revoked TEXT NOT NULL DEFAULT ''
    ) WITHOUT ROWID;
    INSERT INTO nodes_2 (id, public_key, facts) SELECT id, public_key, facts FROM nodes;
    DROP TABLE nodes;
    ALTER TABLE nodes_2 RENAME TO nodes;
    CREATE TABLE join_keys (
        public_key TEXT PRIMARY KEY,
        node_id TEXT,
        created_by TEXT NOT NULL,
        created_at REAL NOT NULL,
        expires_at REAL NOT NULL,
        used_by TEXT
    ) WITHOUT ROWID;
    """,
    # 3: people of a shared master; their tokens are deleted with them.
    """
    CREATE TABLE users (name TEXT PRIMARY KEY, role TEXT NOT NULL, created_at REAL NOT NULL) WITHOUT ROWID;
    CREATE INDEX tokens_by_user ON tokens (user);
    """,
    # 4: small facts that decisions depend on, such as what users used.
    """
    CREATE TABLE memos (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """,
    # 5: what operators ordered about a node, and how starts went on it.
    """
    ALTER TABLE nodes ADD COLUMN orders BLOB;
    """,
    # 6: what waiting jobs were told, each time that it changed, under the names that they share.
    """
    CREATE TABLE answers (id INTEGER PRIMARY KEY, key TEXT NOT NULL, record BLOB NOT NULL);
    CREATE INDEX answers_by_key ON answers (key, id);
    """,
    # 7: the jobs of an array are found by its id.
    """
    ALTER TABLE jobs ADD COLUMN array_id TEXT;
    CREATE INDEX jobs_by_array ON jobs (array_id) WHERE array_id IS NOT NULL;
    """,
    # 8: steps on the way of a job, for its trace.
    """
    CREATE TABLE marks (
        job_id TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        step TEXT NOT NULL,
        who TEXT NOT NULL,
        at REAL NOT NULL,
        PRIMARY KEY (job_id, attempt, step, who)
    ) WITHOUT ROWID;
    """,
    # 9: a notebook finds its jobs again.
    """
    ALTER TABLE jobs ADD COLUMN notebook TEXT;
    CREATE INDEX jobs_by_notebook ON jobs (notebook, number) WHERE notebook IS NOT NULL;
    """,
    # 10: values of --env are sealed, and dropped some time after the end.
    """
    ALTER TABLE jobs ADD COLUMN sealed BLOB;
    ALTER TABLE jobs ADD COLUMN values_dropped INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX jobs_sealed ON jobs (number) WHERE sealed IS NOT NULL AND values_dropped = 0;
    """,
)


def check_version(connection: sqlite3.Connection) -> int:
    """Return the step of the database, or refuse one of a newer mgpu; changes nothing."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > len(STEPS):
        raise Unavailable(
            "store-too-new",
            f"The database was written by a newer mgpu (step {version}, known: {len(STEPS)}): install that "
            f"version again.",
        )
    return version


def migrate(connection: sqlite3.Connection) -> None:
    """Bring the database to the newest step, each in a transaction of its own."""
    version = check_version(connection)
    for number, step in enumerate(STEPS[version:], start=version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {step} PRAGMA user_version = {number}; COMMIT;")
