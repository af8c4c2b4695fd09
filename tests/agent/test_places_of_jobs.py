"""Pieces of folders that a node keeps, and directories that users pass through on the way to their files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.process import passage
from mgpu_agent.process.passage import make_passage, open_passage, own_directory, own_file
from mgpu_agent.process.piece_cache import PieceCache
from mgpu_agent.protocol import folders
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import Entry, Folder, digest_of
from mgpu_agent.run_as.account import Account
from mgpu_agent.run_as.requests import FolderPart
from mgpu_agent.run_as.user_files import FileTrouble

# --- pieces of folders -----------------------------------------------------------------------------------


def kept(cache: PieceCache, data: bytes) -> str:
    digest = digest_of(data)
    cache.keep(digest, memoryview(data))
    return digest


def test_pieces_are_read_again_if_they_are_whole(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path / "pieces")
    digest = kept(cache, b"content")
    path = tmp_path / "pieces" / digest[:2] / digest
    first = (cache.read(digest), cache.touch(digest), stat.S_IMODE(path.stat().st_mode))
    path.write_bytes(b"damaged")
    second = (cache.read(digest), path.exists(), cache.touch(digest), cache.read(digest))

    assert first == (b"content", True, 0o600)
    assert second == (None, False, False, None)


def test_the_least_recently_used_pieces_give_way(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path / "pieces", cap_bytes=100)
    digests = [kept(cache, bytes([number]) * 30) for number in range(3)]
    for number, digest in enumerate(digests):
        os.utime(tmp_path / "pieces" / digest[:2] / digest, (number, number))
    cache.read(digests[0])  # needed again
    digests.append(kept(cache, b"x" * 30))
    there = [cache.touch(digest) for digest in digests]
    again = PieceCache(tmp_path / "pieces", cap_bytes=100)  # counts what is there
    digests.append(kept(again, b"y" * 11))

    assert there == [True, False, True, True]
    assert sum(again.touch(digest) for digest in digests) == 3


def test_a_folder_is_laid_out_in_order_and_settled_from_within(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folders, "PIECE_BYTES", 8)
    cache = PieceCache(tmp_path / "pieces")
    one, two = kept(cache, b"12345678"), kept(cache, b"90")
    entries = (
        Entry(path="d", kind="directory", mode=0o755, modified_ns=1),
        Entry(path="d/e", kind="directory", mode=0o700, modified_ns=2),
        Entry(path="d/l", kind="link", mode=0o777, modified_ns=3, target="f"),
        Entry(path="d/f", kind="file", mode=0o644, modified_ns=4, size=10, pieces=(one, two)),
        Entry(path="d/0", kind="file", mode=0o600, modified_ns=5),
    )
    parts = list(cache.parts(Folder(entries=entries)))

    assert [
        (
            part.path,
            part.kind,
            part.mode,
            part.modified_ns,
            part.target,
            part.offset,
            bytes(part.data),
            part.is_last,
        )
        for part in parts
    ] == [
        ("d", "directory", 0o755, 1, "", 0, b"", True),
        ("d/e", "directory", 0o700, 2, "", 0, b"", True),
        ("d/l", "link", 0o777, 3, "f", 0, b"", True),
        ("d/f", "file", 0o644, 4, "", 0, b"12345678", False),
        ("d/f", "file", 0o644, 4, "", 8, b"90", True),
        ("d/0", "file", 0o600, 5, "", 0, b"", True),
        ("d/e", "settle", 0o700, 2, "", 0, b"", True),
        ("d", "settle", 0o755, 1, "", 0, b"", True),
    ]
    assert isinstance(parts[0], FolderPart)
    wrong = replace(entries[3], size=11)
    with pytest.raises(FileTrouble, match="d/f has other content than its size says"):
        list(cache.parts(Folder(entries=(wrong,))))
    (tmp_path / "pieces" / two[:2] / two).unlink()
    with pytest.raises(OSError, match=f"piece {two[:12]} is gone"):
        list(cache.parts(Folder(entries=(entries[3],))))


# --- directories that users pass -------------------------------------------------------------------------


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of which every part above may be passed, as far as the code is told."""
    real = passage._check
    monkeypatch.setattr(
        passage,
        "_check",
        lambda descriptor, path: real(descriptor, path) if tmp_path in path.parents else None,
    )
    return tmp_path


def test_a_passage_is_made_and_can_be_passed_but_not_listed(place: Path) -> None:
    before = os.umask(0o077)
    try:
        assert make_passage(place / "a" / "b") == place / "a" / "b"
    finally:
        os.umask(before)
    (place / "a" / "b").chmod(0o700)
    make_passage(place / "a" / "b")

    assert [stat.S_IMODE(path.stat().st_mode) for path in (place / "a", place / "a" / "b")] == [0o755, 0o711]


@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        (
            0o775,
            "unsafe-directory",
            "Others can change {a}: run  chmod go-w {a}  or name another --scratch-dir.",
        ),
        (
            0o757,
            "unsafe-directory",
            "Others can change {a}: run  chmod go-w {a}  or name another --scratch-dir.",
        ),
        (
            0o750,
            "closed-directory",
            "Users cannot enter {a}: run  chmod o+x {a}  or name another --scratch-dir.",
        ),
        (0o1777, "", ""),
        (0o711, "", ""),
    ],
)
def test_a_way_that_others_can_change_or_nobody_can_pass_is_refused(
    place: Path, mode: int, code: str, said: str
) -> None:
    (place / "a").mkdir()
    (place / "a").chmod(mode)
    before = len(os.listdir("/proc/self/fd"))
    if not code:
        make_passage(place / "a" / "b")
        return
    with pytest.raises(InvalidRequest) as caught:
        open_passage(place / "a" / "b")

    assert (caught.value.code, str(caught.value)) == (code, said.format(a=place / "a"))
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_link_is_no_passage(place: Path) -> None:
    (place / "real").mkdir()
    (place / "link").symlink_to("real")
    with pytest.raises(InvalidRequest, match="must be a directory, and no link to one"):
        open_passage(place / "link")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, who alone can be another account")
def test_directories_and_files_of_an_account_are_its_alone(place: Path) -> None:
    anne = Account("anne", 4001, 4002)
    parent = open_passage(place / "a")
    try:
        own_directory(parent, "mine", anne)
        own_directory(parent, "mine", anne)
        own_file(parent, "file", anne)
        (place / "a" / "file").write_text("old")
        own_file(parent, "file", anne)
        with pytest.raises(PermissionError, match="mine belongs to another user"):
            own_directory(parent, "mine", Account("bert", 4003, 4003))
    finally:
        os.close(parent)
    states = [(place / "a" / name).stat() for name in ("mine", "file")]
    assert [(one.st_uid, one.st_gid, stat.S_IMODE(one.st_mode)) for one in states] == [
        (4001, 4002, 0o700),
        (4001, 4002, 0o600),
    ]
    assert (place / "a" / "file").read_text() == ""
    os.chown(place / "a", 4001, 4001)
    with pytest.raises(InvalidRequest, match="must be a directory of the agent's own user"):
        open_passage(place / "a")
