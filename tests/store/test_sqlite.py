"""What only a database on disk can show: it survives, refuses a future one, and says in a sentence what is
wrong.
"""

from __future__ import annotations

import os
import sqlite3

import msgspec
import pytest

from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.master.ports import Batch, SavedJob, SavedNode
from mgpu_jupyter.store.migrations import STEPS
from mgpu_jupyter.store.sqlite import SqliteStore
from tests.contract.test_store import a_job, save


def test_what_was_committed_is_there_after_the_process_is_gone(tmp_path):
    """The writer never closes: a new connection still sees all of it, as after kill -9."""
    first = SqliteStore(tmp_path / "mgpu.db")
    save(first, a_job(1))

    second = SqliteStore(tmp_path / "mgpu.db")

    assert second.recover().jobs == (a_job(1),)
    first.close()
    second.close()


def test_the_journal_is_wal_with_full_sync_and_rollback_on_a_network(tmp_path):
    local, remote = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db", on_network=True)

    assert local._connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert local._connection.execute("PRAGMA synchronous").fetchone() == (2,)
    assert remote._connection.execute("PRAGMA journal_mode").fetchone() == ("truncate",)
    local.close()
    remote.close()


@pytest.mark.parametrize("journal", ["WAL", "DELETE"])
def test_a_database_from_the_future_is_refused_and_nothing_of_it_is_changed(tmp_path, journal):
    connection = sqlite3.connect(tmp_path / "mgpu.db")
    connection.execute(f"PRAGMA journal_mode = {journal}")
    connection.executescript(f"CREATE TABLE jobs (dreams TEXT); PRAGMA user_version = {len(STEPS) + 1};")
    connection.close()
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    with pytest.raises(Unavailable) as caught:
        SqliteStore(tmp_path / "mgpu.db")

    assert caught.value.code == "store-too-new"
    assert caught.value.message == (
        f"The database was written by a newer mgpu (step {len(STEPS) + 1}, known: {len(STEPS)}): install "
        f"that version again."
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


OLD_JOB = {"id": "AAAA0001", "number": 1, "user": "ann", "submitted_at": 5.0, "state": "queued", "spec": {}}
"""What the first release wrote of a job: every field that was added since must have a default."""
OLD_SPEC = {"command": ["python", "train.py"], "gpus": 2, "name": "old"}


@pytest.mark.parametrize("version", range(1, len(STEPS) + 1))
def test_a_database_of_every_earlier_shape_is_taken_over(tmp_path, version):
    connection = sqlite3.connect(tmp_path / "mgpu.db")
    for step in STEPS[:version]:
        connection.executescript(step)
    about = (1, "AAAA0001", "ann", "old", "queued", 5.0, "key", 3)
    blobs = (msgspec.msgpack.encode(OLD_SPEC), msgspec.msgpack.encode(OLD_JOB))
    columns = "number, id, user, name, state, submitted_at, idempotency_key, seq, spec, record"
    connection.execute(
        f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*about, *blobs)
    )
    connection.executescript(
        "INSERT INTO meta VALUES ('epoch', '7'); INSERT INTO meta VALUES ('master_epoch', '4');"
        "INSERT INTO nodes (id, public_key) VALUES ('n1', 'k'); INSERT INTO tokens VALUES (x'01', 'ann', "
        "'user', 1.0, NULL);"
        f"PRAGMA user_version = {version};"
    )
    connection.close()

    store = SqliteStore(tmp_path / "mgpu.db")
    found = store.recover()
    save(store, a_job(2))

    assert [(job.id, job.number, job.state, job.spec.command, job.spec.gpus) for job in found.jobs] == [
        ("AAAA0001", 1, "queued", ("python", "train.py"), 2)
    ]
    assert (found.epoch, found.nodes, store.next_master_epoch()) == (
        7,
        (SavedNode(id="n1", public_key="k"),),
        5,
    )
    assert (store.find_by_key("ann", "key").id, store.reader().token(b"\x01").user) == ("AAAA0001", "ann")
    assert store._connection.execute("PRAGMA user_version").fetchone() == (len(STEPS),)
    store.close()


def test_nodes_of_the_first_shape_are_taken_over(tmp_path):
    connection = sqlite3.connect(tmp_path / "mgpu.db")
    connection.executescript(
        f"{STEPS[0]} INSERT INTO nodes VALUES ('n1', 'k', NULL); PRAGMA user_version = 1;"
    )
    connection.close()

    store = SqliteStore(tmp_path / "mgpu.db")

    assert store.recover().nodes == (SavedNode(id="n1", public_key="k"),)
    store.close()


def test_a_commit_that_breaks_leaves_nothing(tmp_path):
    store = SqliteStore(tmp_path / "mgpu.db")
    save(store, a_job(1))

    with pytest.raises(Unavailable) as caught:
        store.commit(
            Batch(
                jobs={"x": SavedJob(a_job(2), 2), "y": SavedJob(a_job(1), 3)}, new={a_job(2).id, a_job(1).id}
            )
        )

    assert caught.value.code == "store-error"
    assert store.recover().jobs == (a_job(1),)
    save(store, a_job(2))
    store.close()


def test_a_full_disk_is_said_in_a_sentence_and_passes(tmp_path):
    store = SqliteStore(tmp_path / "mgpu.db")
    pages = store._connection.execute("PRAGMA page_count").fetchone()[0]
    store._connection.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(Unavailable) as caught:
        save(store, *(a_job(number) for number in range(1, 200)))
    assert (caught.value.code, caught.value.message) == (
        "disk-full",
        "The disk with the queue is full: free some space, then try again.",
    )
    assert store.recover().jobs == ()
    store._connection.execute("PRAGMA max_page_count = 100000")
    save(store, a_job(1))
    assert store.recover().jobs == (a_job(1),)
    store.close()


def test_a_database_that_cannot_be_written_is_said_in_a_sentence(tmp_path):
    store = SqliteStore(tmp_path / "mgpu.db")
    store._connection.execute("PRAGMA query_only = 1")

    with pytest.raises(Unavailable) as caught:
        save(store, a_job(1))

    assert caught.value.code == "read-only"
    store.close()


def test_what_is_not_a_database_is_refused(tmp_path):
    (tmp_path / "mgpu.db").write_bytes(os.urandom(8192))

    with pytest.raises(Unavailable) as caught:
        SqliteStore(tmp_path / "mgpu.db")

    assert caught.value.code == "store-error"
