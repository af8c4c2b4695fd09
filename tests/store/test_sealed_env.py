"""Values of --env: nowhere in the database as they are, there again for their job, and gone some time after
its end.
"""

from __future__ import annotations

import shutil
import sqlite3

import msgspec
import pytest

from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.store.migrations import STEPS
from mgpu_jupyter.store.sqlite import SqliteStore
from tests.builders import a_spec, job_id
from tests.contract.test_store import a_job, save

SECRET = "hf_planted_secret"
ENV = {"HF_TOKEN": SECRET, "MGPU_DISPLAY_KEY": "planted_display"}


def holds(root, *words):
    """Return which files below a directory hold one of these words; keys are not looked into."""
    files = [path for path in root.rglob("*") if path.is_file() and path.parent.name != "keys"]
    assert files
    return [path.name for path in files if any(word.encode() in path.read_bytes() for word in words)]


def with_env(number, **changes):
    return a_job(number, spec=a_spec(name=f"job-{number}", env=ENV), **changes)


@pytest.mark.parametrize("on_network", [False, True])
def test_values_are_nowhere_in_the_file_and_names_are(tmp_path, on_network):
    store = SqliteStore(tmp_path / "mgpu.db", on_network=on_network)
    save(store, with_env(1, key="k"))

    assert (holds(tmp_path, *ENV.values()), bool(holds(tmp_path, "HF_TOKEN"))) == ([], True)
    assert (tmp_path / "keys" / "env.key").stat().st_mode & 0o777 == 0o600
    assert store.recover().jobs == (with_env(1, key="k"),)
    assert store.find_by_key("ann", "k").spec.env == store.reader().job(job_id(1)).job.spec.env == ENV
    store.close()
    assert SqliteStore(tmp_path / "mgpu.db", on_network=on_network).find_job(job_id(1)).spec.env == ENV


def test_rows_that_an_earlier_mgpu_wrote_in_plain_are_sealed_and_wiped(tmp_path):
    connection = sqlite3.connect(tmp_path / "mgpu.db")
    for step in STEPS[:9]:
        connection.executescript(step)
    columns = "number, id, user, name, state, submitted_at, seq, spec, record"
    for number in range(1, 40):
        record = {
            "id": job_id(number),
            "number": number,
            "user": "ann",
            "submitted_at": 5.0,
            "state": "queued",
            "spec": {},
        }
        spec = {"command": ["x"], "env": {**ENV, "LONG": SECRET * 300}} if number % 3 else {"command": ["x"]}
        blobs = (msgspec.msgpack.encode(spec), msgspec.msgpack.encode(record))
        values = (number, job_id(number), "ann", "old", "queued", 5.0, 3, *blobs)
        connection.execute(f"INSERT INTO jobs ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", values)
    connection.executescript("PRAGMA user_version = 9;")
    connection.commit()
    connection.close()
    assert holds(tmp_path, SECRET) == ["mgpu.db"]

    store = SqliteStore(tmp_path / "mgpu.db")
    assert holds(tmp_path, *ENV.values()) == []
    assert [job.spec.env for job in store.recover().jobs[:3]] == [{**ENV, "LONG": SECRET * 300}] * 2 + [{}]
    store.close()
    assert holds(tmp_path, *ENV.values()) == []


def test_a_row_that_was_copied_to_another_job_is_not_opened(tmp_path):
    store = SqliteStore(tmp_path / "mgpu.db")
    save(store, with_env(1, state=JobState.COMPLETED), with_env(2, state=JobState.COMPLETED, user="bob"))
    store._connection.execute(
        "UPDATE jobs SET sealed = (SELECT sealed FROM jobs WHERE number = 1) WHERE number = 2"
    )
    saved = store.reader().job(job_id(2))
    assert (saved.job.spec.env, saved.values_dropped) == ({"HF_TOKEN": "", "MGPU_DISPLAY_KEY": ""}, True)
    store.close()


def test_without_its_key_no_job_starts_with_an_empty_environment(tmp_path):
    store = SqliteStore(tmp_path / "mgpu.db")
    save(store, with_env(1), a_job(2))
    store.close()
    shutil.rmtree(tmp_path / "keys")

    with pytest.raises(Unavailable) as caught:
        SqliteStore(tmp_path / "mgpu.db").recover()
    assert (caught.value.code, caught.value.message) == (
        "key-lost",
        (
            f"The values of --env of 1 jobs that are not over cannot be read ({job_id(1)} is the first): "
            "put keys/env.key of this database back, or begin anew without mgpu.db."
        ),
    )


def test_what_is_dropped_is_gone_from_the_file_but_for_what_displays_need(tmp_path):
    store = SqliteStore(tmp_path / "mgpu.db", on_network=True)
    save(store, with_env(1, state=JobState.FAILED, ended_at=100.0))
    (sealed,) = store._connection.execute("SELECT sealed FROM jobs").fetchone()
    assert store.drop_values(100.0) == (1, 0)
    store.close()
    assert sealed not in (tmp_path / "mgpu.db").read_bytes()
    saved = SqliteStore(tmp_path / "mgpu.db").reader().job(job_id(1))
    assert (saved.job.spec.env, saved.values_dropped) == (
        {"HF_TOKEN": "", "MGPU_DISPLAY_KEY": "planted_display"},
        True,
    )
