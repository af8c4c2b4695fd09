"""Pieces of folders: each user's own, whole or not at all, and let go in time."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_agent.protocol.folders import Entry, Folder, digest_of, encode_folder
from mgpu_jupyter.store.pieces import YOUNG_S, PieceStore


def none_in_use() -> set[str]:
    return set()


def age(root: Path, digest: str, seconds: float) -> None:
    (path,) = root.glob(f"*/*/{digest}")
    os.utime(path, (time.time() - seconds,) * 2)


def test_a_piece_is_its_users_alone_and_is_sent_once(tmp_path: Path) -> None:
    store = PieceStore(tmp_path / "pieces")
    (digest,) = store.put("ann", [b"hello"], none_in_use)
    assert digest == digest_of(b"hello")
    assert store.missing("ann", [digest, "0" * 64]) == ["0" * 64]
    assert store.missing("bob", [digest]) == [digest]
    assert store.read("ann", digest) == b"hello"
    assert store.read("bob", digest) is None
    assert store.read("ann", "../../etc") is None
    with pytest.raises(InvalidRequest):
        store.missing("ann", ["../x"])
    assert PieceStore(tmp_path / "pieces").read("ann", digest) == b"hello"


def test_a_piece_that_was_damaged_on_disk_is_missing(tmp_path: Path) -> None:
    store = PieceStore(tmp_path / "pieces")
    (digest,) = store.put("ann", [b"hello"], none_in_use)
    (path,) = (tmp_path / "pieces").glob(f"*/*/{digest}")
    assert store.read("ann", digest) == b"hello"
    path.write_bytes(b"hellO")
    assert store.read("ann", digest) is None
    assert store.missing("ann", [digest]) == [digest]


def test_a_folder_must_be_whole(tmp_path: Path) -> None:
    store = PieceStore(tmp_path / "pieces")
    folder = Folder((Entry("x", size=5, pieces=(digest_of(b"hello"),)),))
    (name,) = store.put("ann", [encode_folder(folder)], none_in_use)
    with pytest.raises(Conflict, match="1 pieces of the folder"):
        store.folder("ann", name)
    store.put("ann", [b"hello"], none_in_use)
    assert store.folder("ann", name) == folder
    with pytest.raises(Conflict, match="is not here"):
        store.folder("bob", name)
    with pytest.raises(InvalidRequest, match="cannot be read"):
        store.folder("ann", digest_of(b"hello"))


def test_what_was_not_used_for_longest_goes_and_what_a_job_needs_stays(tmp_path: Path) -> None:
    root = tmp_path / "pieces"
    store = PieceStore(root, cap_bytes=400)
    needed, old, newer = b"n" * 100, b"o" * 100, b"w" * 100
    folder = encode_folder(Folder((Entry("x", size=100, pieces=(digest_of(needed),)),)))
    name, *_ = digests = store.put("ann", [folder, needed, old, newer], none_in_use)
    for position, digest in enumerate(digests):
        age(root, digest, 2 * YOUNG_S - position)
    assert len(folder) < 100
    store.put("ann", [b"z" * 100], lambda: {name})
    assert (
        store.missing("ann", digests)
        == [digest_of(old), digest_of(newer)][: len(store.missing("ann", digests))]
    )
    assert store.folder("ann", name).size == 100
    with pytest.raises(Conflict, match="all of it is in use"):
        store.put("ann", [b"q" * 300], lambda: {name})


def test_what_is_laid_into_the_tray_is_taken_and_what_is_no_piece_is_not(tmp_path: Path) -> None:
    store = PieceStore(tmp_path / "pieces")
    good, false = digest_of(b"hello"), digest_of(b"something else")
    folder, link, empty = (f"{number}" * 64 for number in (1, 2, 3))
    for name, content in ((good, b"hello"), (false, b"damaged"), (empty, b"")):
        (store.tray / name).write_bytes(content)
    (store.tray / folder).mkdir()
    (store.tray / link).symlink_to(store.tray / good)
    wanted = [good, false, folder, link, empty, "4" * 64]
    laid = store.laid(wanted)
    assert laid == wanted[:-1]
    store.take_laid("ann", [*laid, "../pieces"], none_in_use)
    assert store.missing("ann", wanted) == wanted[2:]
    assert store.read("ann", good) == b"hello"
    # What it is named is left to the first node to find out; when it asks again it is missing.
    assert store.read("ann", false) == b"damaged"
    assert store.missing("ann", [false]) == []
    assert store.read("ann", false) is None
    assert store.missing("ann", [false]) == [false]
    assert store.missing("bob", [good]) == [good]
    assert not PieceStore(tmp_path / "pieces").laid(wanted)


def test_the_tray_is_no_way_around_the_cap(tmp_path: Path) -> None:
    store = PieceStore(tmp_path / "pieces", cap_bytes=10)
    digest = digest_of(b"z" * 20)
    (store.tray / digest).write_bytes(b"z" * 20)
    with pytest.raises(Conflict, match="all of it is in use"):
        store.take_laid("ann", [digest], none_in_use)
    assert store.missing("ann", [digest]) == [digest]


def test_one_user_fills_their_share_and_others_go_on(tmp_path: Path) -> None:
    root = tmp_path / "pieces"
    options = {"cap_bytes": 1000, "share_bytes": 300, "is_exempt": "root".__eq__}
    store = PieceStore(root, **options)
    sent = store.put("mallory", [b"a" * 100, b"b" * 100, b"c" * 100], none_in_use)
    with pytest.raises(Conflict) as refused:
        store.put("mallory", [b"d" * 100], none_in_use)
    assert (refused.value.code, refused.value.message) == (
        "share-used",
        (
            "You have 300 bytes of folders here, and 300 are your share: wait until jobs with --sync or "
            "--in are over, "
            "send less (.mgpuignore), or ask an administrator (limits.user_folders_bytes)."
        ),
    )
    assert store.put("mallory", [b"a" * 100], none_in_use) == sent[:1]
    store.put("ann", [b"e" * 300], none_in_use)
    store.put("root", [b"f" * 400], none_in_use)

    again = PieceStore(root, **options)  # counted anew from the files
    with pytest.raises(Conflict, match="your share"):
        again.put("mallory", [b"d"], none_in_use)
    again.forget("mallory", sent[:1], set())
    age(root, sent[1], 2 * YOUNG_S)
    again.put(
        "mallory", [b"d" * 200], none_in_use
    )  # what was forgotten, and what was not used for long, makes room
    assert again.missing("mallory", sent) == sent[:2]
    assert again.missing("ann", [digest_of(b"e" * 300)]) == []


def test_a_damaged_piece_that_goes_gives_its_room_back(tmp_path: Path) -> None:
    store = PieceStore(tmp_path / "pieces", share_bytes=100)
    (digest,) = store.put("ann", [b"a" * 100], none_in_use)
    (path,) = (tmp_path / "pieces").glob(f"*/*/{digest}")
    path.write_bytes(b"b" * 100)
    assert (store.read("ann", digest), store.read("ann", digest)) == (b"b" * 100, None)
    assert store.put("ann", [b"c" * 100], none_in_use) == [digest_of(b"c" * 100)]
