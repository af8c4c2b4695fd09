"""Files of a server on this machine: used where they are, but only the very ones that it tells of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_jupyter.api.files import Nearby
from mgpu_jupyter.client.nearby import lay, mapped, take_back, tray_of


def near(path: Path) -> Nearby:
    info = path.stat()
    return Nearby(path=str(path), device=info.st_dev, inode=info.st_ino)


def test_a_file_is_mapped_and_stays_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "0"
    file.write_bytes(b"hello")
    memory = mapped(near(file), 5)
    assert memory is not None
    assert bytes(memory) == b"hello"
    memory[0] = 72
    assert file.read_bytes() == b"hello"


def test_another_file_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, link = tmp_path / "0", tmp_path / "link"
    file.write_bytes(b"hello")
    link.symlink_to(file)
    told = near(file)
    assert mapped(None, 5) is None
    assert mapped(told, 6) is None
    assert mapped(replace(told, inode=told.inode + 1), 5) is None
    assert mapped(replace(told, device=told.device + 1), 5) is None
    assert mapped(replace(told, path=str(link)), 5) is None
    assert mapped(replace(told, path=str(tmp_path / "none")), 5) is None
    assert mapped(near(tmp_path), tmp_path.stat().st_size) is None
    assert tray_of(told) is None
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert mapped(told, 5) is None
    assert tray_of(near(tmp_path)) is None


def test_what_is_laid_is_whole_and_private(tmp_path: Path) -> None:
    tray = tray_of(near(tmp_path))
    assert tray is not None
    assert tray_of(None) is None
    assert lay(tray, "a", memoryview(b"hello"))
    assert (tmp_path / "a").read_bytes() == b"hello"
    assert (tmp_path / "a").stat().st_mode & 0o077 == 0
    take_back(tray, "a")
    take_back(tray, "a")
    (tmp_path / "taken").mkdir()
    assert not lay(tray, "taken", memoryview(b"hello"))
    assert os.listdir(tmp_path) == ["taken"]
    assert not lay(str(tmp_path / "gone"), "a", memoryview(b"hello"))
