"""Values of `--env` in the database: sealed under a key beside it, and dropped some time after the end of
their job.

With the database alone (a copy, a backup) one reads names and no values; with the key, too, everything.
Rows that an earlier mgpu wrote in plain text are sealed when the database is opened. Decides nothing about
jobs.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.places import make_private_dir
from mgpu_agent.protocol.sealing import Unsealable, load_key, seal, unseal
from mgpu_jupyter.model.display import VARIABLE as DISPLAY_KEY
from mgpu_jupyter.model.job import FINAL_STATES, JobSpec
from mgpu_jupyter.scheduler.model import Job

KEY_FILE = "env.key"
PAGE = 500
_SEALED_ALL = "env_sealed"
_encoder = msgspec.msgpack.Encoder()
_spec_decoder = msgspec.msgpack.Decoder(JobSpec)
_job_decoder = msgspec.msgpack.Decoder(Job)
_env_decoder = msgspec.msgpack.Decoder(dict[str, str])
_OVER = tuple(sorted(FINAL_STATES))
_SELECT_OVER = f"""
    SELECT number, id, spec, sealed, record FROM jobs
    WHERE sealed IS NOT NULL AND values_dropped = 0 AND number > ?
        AND state IN ({", ".join("?" * len(_OVER))})
    ORDER BY number LIMIT ?
"""  # noqa: S608 - marks only


class EnvSafe:
    """Splits requests into a plain and a sealed part, and joins them again."""

    def __init__(self, database: Path) -> None:
        self._key = load_key(make_private_dir(database.parent / "keys") / KEY_FILE)

    def split(self, job_id: str, spec: JobSpec) -> tuple[bytes, bytes | None]:
        """Return a request without values, and the values sealed."""
        if not spec.env:
            return _encoder.encode(spec), None
        names = replace(spec, env=dict.fromkeys(spec.env, ""))
        return _encoder.encode(names), seal(self._key, _encoder.encode(spec.env), job_id.encode())

    def join(self, job_id: str, spec: bytes, sealed: bytes | None) -> tuple[JobSpec, bool]:
        """Return the request, and whether its values could be opened; those that could not are empty."""
        plain = _spec_decoder.decode(spec)
        if sealed is None:
            return plain, True
        try:
            values = _env_decoder.decode(unseal(self._key, sealed, job_id.encode()))
        except (Unsealable, msgspec.DecodeError):
            return plain, False
        return replace(plain, env=plain.env | values), True

    def seal_all(self, connection: sqlite3.Connection) -> None:
        """Seal what an earlier mgpu wrote in plain text, and leave nothing of it in the file; done once."""
        if connection.execute("SELECT 1 FROM meta WHERE name = ?", (_SEALED_ALL,)).fetchone():
            return
        connection.execute("PRAGMA secure_delete = ON")
        last, found = 0, True
        while found:
            rows = connection.execute(
                "SELECT number, id, spec FROM jobs WHERE number > ? ORDER BY number LIMIT ?", (last, PAGE)
            ).fetchall()
            changed = []
            for number, job_id, blob in rows:
                last, spec = number, _spec_decoder.decode(blob)
                if spec.env:
                    changed.append((*self.split(job_id, spec), number))
            _write(connection, "UPDATE jobs SET spec = ?, sealed = ? WHERE number = ?", changed)
            found = bool(rows)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA secure_delete = OFF")
        connection.execute("INSERT INTO meta VALUES (?, '1')", (_SEALED_ALL,))

    def drop(self, connection: sqlite3.Connection, ended_before: float, after: int) -> tuple[int, int]:
        """Delete the values of jobs that ended before then, one page; return how many, and the number to
        continue from (0 at the end).

        The value that tells a cell's displays from what it printed stays.
        """
        rows = connection.execute(_SELECT_OVER, (after, *_OVER, PAGE)).fetchall()
        changed = []
        for number, job_id, spec, sealed, record in rows:
            ended_at = _job_decoder.decode(record).ended_at
            if ended_at is None or ended_at > ended_before:
                continue
            kept = self.join(job_id, spec, sealed)[0].env.get(DISPLAY_KEY)
            left = seal(self._key, _encoder.encode({DISPLAY_KEY: kept}), job_id.encode()) if kept else None
            changed.append((left, number))
        if changed:
            connection.execute("PRAGMA secure_delete = ON")
            _write(connection, "UPDATE jobs SET sealed = ?, values_dropped = 1 WHERE number = ?", changed)
            connection.execute("PRAGMA secure_delete = OFF")
        return len(changed), rows[-1][0] if len(rows) == PAGE else 0


def key_lost(jobs: Sequence[Job]) -> Unavailable:
    """Return the error for jobs that are not over and whose environment cannot be read."""
    text = (
        f"The values of --env of {len(jobs)} jobs that are not over cannot be read ({jobs[0].id} is the "
        f"first)"
    )
    return Unavailable(
        "key-lost", f"{text}: put keys/{KEY_FILE} of this database back, or begin anew without mgpu.db."
    )


def _write(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> None:
    if not rows:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany(statement, rows)
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
