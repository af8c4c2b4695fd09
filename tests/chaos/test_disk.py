"""The rebuilt disk is worth what it drops: what was synced stays, and of the rest any part may go."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos.power.disk import Disk
from tests.chaos.power.trace import Deed, build, can_record, read_trace

PROGRAM = """
import os, socket, sqlite3
os.mkdir("d")
with open("d/.new", "wb") as file:
    file.write(b"safe")
    file.flush()
    os.fsync(file.fileno())
os.replace("d/.new", "d/file")
directory = os.open("d", os.O_RDONLY)
os.fsync(directory)
os.close(directory)
with open("d/file", "ab") as file:
    file.write(b" and more")
with open("d/other", "wb") as file:
    file.write(b"unsafe")
os.unlink("d/file")
db = sqlite3.connect("a.db", isolation_level=None)
db.execute("PRAGMA journal_mode = WAL")
db.execute("PRAGMA synchronous = FULL")
db.execute("CREATE TABLE t (x)")
db.execute("INSERT INTO t VALUES (1)")
left, right = socket.socketpair()
left.sendall(b"HTTP/1.1 201 Created\\r\\n\\r\\n{}")
os._exit(0)
"""


def never() -> bool:
    return False


def always() -> bool:
    return True


def files(target: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in sorted(target.rglob("*"))
        if path.is_file()
    }


def a_deed(op: str, path: str, data: bytes = b"", inode: int = 1, offset: int = 0) -> Deed:
    return Deed(op, 1, 0.0, inode, offset, path, data)


def image(deeds: list[Deed], target: Path, survives: object = never, seed: int = 0) -> dict[str, bytes]:
    disk = Disk()
    for deed in deeds:
        disk.do(deed)
    disk.image(target, survives, random.Random(seed))  # type: ignore[arg-type]
    return files(target)


def test_content_and_name_are_safe_each_by_its_own_sync(tmp_path: Path) -> None:
    written = [a_deed("C", "a"), a_deed("W", "a", b"text")]
    both = [*written, a_deed("F", "a"), a_deed("F", "")]
    assert image(written, tmp_path / "1") == {}
    assert image([*written, a_deed("F", "a")], tmp_path / "2") == {}
    assert image([*written, a_deed("F", "")], tmp_path / "3") == {"a": b""}
    assert image(both, tmp_path / "4") == {"a": b"text"}
    assert image(
        [*both, a_deed("W", "a", b"T"), a_deed("T", "a", offset=2), a_deed("U", "a")], tmp_path / "5"
    ) == {"a": b"text"}
    assert image([*both, a_deed("W", "a", b"ABC"), a_deed("T", "a", offset=2)], tmp_path / "6", always) == {
        "a": b"AB"
    }
    assert image([*both, a_deed("R", "a", b"b")], tmp_path / "7") == {"a": b"text"}
    assert image([*both, a_deed("R", "a", b"b"), a_deed("F", "")], tmp_path / "8") == {"b": b"text"}


def test_of_what_was_not_synced_any_part_may_survive(tmp_path: Path) -> None:
    deeds = [
        a_deed("C", "a"),
        a_deed("F", ""),
        *(a_deed("W", "a", bytes([65 + number]), offset=number) for number in range(4)),
    ]
    rng = random.Random(3)
    seen = {image(deeds, tmp_path / str(number), lambda: rng.random() < 0.5)["a"] for number in range(60)}
    assert {b"", b"ABCD", b"A", b"\0\0\0D"} <= seen


def test_a_deed_that_means_nothing_is_an_error() -> None:
    with pytest.raises(ValueError, match="'x', which means nothing"):
        Disk().do(a_deed("x", "a"))


@pytest.mark.skipif(not can_record(), reason="There is no gcc to build the recorder.")
def test_a_real_program_is_recorded_and_its_disk_rebuilt_at_any_point(tmp_path: Path) -> None:
    root, trace = tmp_path / "root", tmp_path / "trace"
    root.mkdir()
    env = {
        **os.environ,
        "LD_PRELOAD": str(build(tmp_path)),
        "MGPU_TEST_TRACE": str(trace),
        "MGPU_TEST_ROOT": str(root),
    }
    subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, env=env, check=True, timeout=60)
    deeds = read_trace(trace)

    whole = image(deeds, tmp_path / "whole", always)
    assert whole == {name: data for name, data in files(root).items() if not name.endswith("-shm")}
    strict = image(deeds, tmp_path / "strict")
    # The directory d was never synced into its parent, but a.db's log was, which takes d's name along.
    assert {name: data for name, data in strict.items() if name.startswith("d/")} == {"d/file": b"safe"}
    sent = [deed.data for deed in deeds if deed.op == "S" and deed.data]
    assert sent == [b"HTTP/1.1 201 Created\r\n\r\n{}"]
    rows = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sqlite3; print(sqlite3.connect('a.db').execute('SELECT x FROM t').fetchall())",
        ],
        cwd=tmp_path / "strict",
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert rows.stdout == "[(1,)]\n"
