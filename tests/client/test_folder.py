"""What of a folder travels, and what is said when it cannot."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import PIECE_BYTES, check_folder
from mgpu_jupyter.client.folder import Ignore, read_folder


@pytest.mark.parametrize(
    ("lines", "path", "is_directory", "is_out"),
    [
        (["*.pt"], "model.pt", False, True),
        (["*.pt"], "deep/down/model.pt", False, True),
        (["/data"], "data", True, True),
        (["/data"], "src/data", True, False),
        (["data/"], "data", False, False),
        (["data/"], "src/data", True, True),
        (["src/*.log"], "src/a.log", False, True),
        (["src/*.log"], "src/x/a.log", False, False),
        (["src/**/a.log"], "src/x/y/a.log", False, True),
        (["**/b"], "a/b", False, True),
        (["a/**"], "a/b/c", False, True),
        (["*.log", "!keep.log"], "keep.log", False, False),
        (["!keep.log", "*.log"], "keep.log", False, True),
        (["run[0-9]"], "run7", True, True),
        (["run[!0-9]"], "run7", True, False),
        (["?.txt"], "ab.txt", False, False),
        (["# a comment", "", "\\#file", "/"], "#file", False, True),
        (["a.b"], "aXb", False, False),
        ([], ".git", True, True),
        ([], "x/__pycache__", True, True),
        (["!.git/"], ".git", True, False),
    ],
)
def test_patterns_are_those_of_gitignore(
    lines: list[str], path: str, is_directory: bool, is_out: bool
) -> None:
    assert Ignore(lines).leaves_out(path, is_directory=is_directory) is is_out


def test_a_folder_is_listed_with_modes_links_and_empty_directories(tmp_path: Path) -> None:
    (tmp_path / "src" / "none").mkdir(parents=True)
    (tmp_path / "src" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "src" / "run.sh").chmod(0o750)
    (tmp_path / "big").write_bytes(b"x" * PIECE_BYTES + b"y")
    (tmp_path / "link").symlink_to("src/run.sh")
    (tmp_path / "left").write_text("no")
    (tmp_path / ".mgpuignore").write_text("left\n")
    folder, places = read_folder(tmp_path)
    check_folder(folder)
    assert [(entry.path, entry.kind, len(entry.pieces)) for entry in folder.entries] == [
        ("big", "file", 2),
        ("link", "link", 0),
        ("src", "directory", 0),
        ("src/none", "directory", 0),
        ("src/run.sh", "file", 1),
    ]
    assert folder.entries[4].mode == 0o750
    assert places[folder.entries[0].pieces[1]] == ("big", PIECE_BYTES)
    (tmp_path / "src" / "run.sh").touch()
    again, _ = read_folder(tmp_path)
    assert again.pieces == folder.pieces


def test_what_cannot_travel_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidRequest, match="there is no such folder"):
        read_folder(tmp_path / "nothing")
    (tmp_path / "small").write_bytes(b"x" * 10)
    (tmp_path / "huge").write_bytes(b"x" * 3 * 1024 * 1024)
    with pytest.raises(
        InvalidRequest,
        match=r"has 3 MiB, over the limit of 1 MiB; the biggest are huge \(3 MiB\), small \(10 B\)",
    ):
        read_folder(tmp_path, 1024 * 1024)
    monkeypatch.setenv("MGPU_SYNC_LIMIT", "2")
    with pytest.raises(InvalidRequest, match="over the limit of 2 MiB"):
        read_folder(tmp_path)
    monkeypatch.setenv("MGPU_SYNC_LIMIT", "much")
    with pytest.raises(InvalidRequest, match="is no number of MiB"):
        read_folder(tmp_path)
    monkeypatch.delenv("MGPU_SYNC_LIMIT")
    (tmp_path / "out").symlink_to("../elsewhere")
    with pytest.raises(InvalidRequest, match=r"out is a link to \.\./elsewhere, out of the folder"):
        read_folder(tmp_path)
    (tmp_path / "out").unlink()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidRequest, match="neither a file nor a directory"):
        read_folder(tmp_path)


def test_a_file_that_vanishes_while_it_is_read_gives_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_text("a")
    (tmp_path / "b").write_text("b")
    lstat = os.lstat

    def vanish(path: str | Path) -> os.stat_result:
        info = lstat(path)
        if Path(path).name == "b":
            os.unlink(path)
        return info

    monkeypatch.setattr(os, "lstat", vanish)
    with pytest.raises(InvalidRequest, match="b vanished or shrank while it was read: try again"):
        read_folder(tmp_path)
