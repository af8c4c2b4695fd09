"""What attempts leave in the spool: gone with them, while that of others stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mgpu_agent.process import spool as module
from mgpu_agent.process.spool import SCRATCH_DAYS, Spool
from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import AttemptKey, JobId

OVER, STAYS = AttemptKey(JobId("AAAAAAAA"), 1, 1), AttemptKey(JobId("BBBBBBBB"), 1, 1)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LATE_S", 0.0)


def filled(spool: Spool, key: AttemptKey) -> list[Path]:
    """Return a cell, variables, a folder and scratch of an attempt, all with something in them."""
    cell = Path(spool.write_script(key, "print(1)"))
    output = spool.path / f"{key}.0.out"
    output.touch()
    values = spool.values_of(key)
    (values / "x").write_text("1")
    folder = spool.folder_of(key)
    (folder / "below").mkdir(parents=True)
    scratch = spool.scratch_of(key.job_id)
    (scratch / "kept").write_text("1")
    return [cell, output, values, folder, scratch]


def there(paths: list[Path]) -> list[bool]:
    return [path.exists() for path in paths]


def test_an_attempt_takes_all_of_its_own_along_but_what_its_job_left(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    over, stays = filled(spool, OVER), filled(spool, STAYS)
    empty = spool.scratch_of("CCCCCCCC")
    spool.delete_attempts([OVER, AttemptKey(JobId("CCCCCCCC"), 1, 1)])
    spool.delete_files([f"{OVER}.0"])
    spool.close()
    assert there(over) == [False, False, False, False, True], (
        "a job's own directory is kept while it has something"
    )
    assert there(stays) == [True] * 5
    assert not empty.exists()


def test_what_belongs_to_nothing_goes_and_scratch_when_it_is_old(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    unknown, known = filled(spool, OVER), filled(spool, STAYS)
    old = time.time() - SCRATCH_DAYS * 86_400 - 60
    for path in (unknown[-1], known[-1]):
        os.utime(path, (old, old))
    new = spool.scratch_of("CCCCCCCC")
    (new / "kept").write_text("1")
    spool.delete_unknown([STAYS], [f"{STAYS}.0"])
    spool.close()
    assert there(unknown) == [False] * 5
    assert there(known) == [True] * 5
    assert new.exists()


def test_the_directory_of_a_job_waits_for_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(tmp_path)
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    path = spool.scratch_of("AAAAAAAA")
    assert (path.stat().st_mode & 0o777, spool.scratch_of("AAAAAAAA"), synced) == (0o700, path, [])
    path.chmod(0o755)
    with pytest.raises(MgpuError, match="chmod"):
        spool.scratch_of("AAAAAAAA")
    spool.close()
