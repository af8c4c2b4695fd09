"""Pieces of folders that a node keeps: up to the cap, the longest unused go first, none that is not whole."""

from __future__ import annotations

import os
from pathlib import Path

from mgpu_agent.process.piece_cache import PieceCache
from mgpu_agent.protocol.folders import digest_of


def kept(cache: PieceCache, data: bytes, directory: Path, used_at: float) -> str:
    """Keep a piece that was used last at this time."""
    digest = digest_of(data)
    cache.keep(digest, memoryview(data))
    os.utime(directory / digest[:2] / digest, (used_at, used_at))
    return digest


def test_what_fits_stays_to_the_last_byte_and_one_more_makes_room_for_a_tenth(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path / "pieces", 30)
    pieces = [bytes([number]) * 10 for number in range(4)]
    digests = [
        kept(cache, data, tmp_path / "pieces", 1000.0 + number) for number, data in enumerate(pieces[:3])
    ]
    assert [cache.read(digest) for digest in digests] == pieces[:3], "30 bytes are allowed"
    for number, digest in enumerate(digests):
        os.utime(tmp_path / "pieces" / digest[:2] / digest, (2000.0 - number, 2000.0 - number))
    digests.append(kept(cache, pieces[3], tmp_path / "pieces", 3000.0))
    assert [cache.touch(digest) for digest in digests] == [True, False, False, True]

    again = PieceCache(tmp_path / "pieces", 30)
    digests.append(kept(again, b"new", tmp_path / "pieces", 4000.0))
    assert [again.touch(digest) for digest in digests] == [True, False, False, True, True], (
        "20 and 3 bytes fit"
    )


def test_a_piece_that_was_changed_is_deleted_and_not_given_out(tmp_path: Path) -> None:
    cache = PieceCache(tmp_path / "pieces")
    digest = kept(cache, b"whole", tmp_path / "pieces", 1000.0)
    path = tmp_path / "pieces" / digest[:2] / digest
    path.write_bytes(b"other")
    assert (cache.read(digest), path.exists(), cache.touch(digest)) == (None, False, False)
