"""The list of a folder: what it may say, and what is refused wherever it comes from."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import (
    MAX_ENTRIES,
    PIECE_BYTES,
    VALUES_PIECE_BYTES,
    Entry,
    Folder,
    check_folder,
    check_room,
    check_sizes,
    decode_folder,
    digest_of,
    encode_folder,
    is_digest,
    values_of,
)

ONE = digest_of(b"one")
TWO = digest_of(b"two")
FOLDER = Folder(
    (
        Entry("src", "directory", 0o755),
        Entry("src/a.py", "file", 0o755, 5, PIECE_BYTES + 3, (ONE, TWO)),
        Entry("b", "file", 0o600, 6, 3, (TWO,)),
        Entry("empty"),
        Entry("src/link", "link", 0o777, target="../b"),
    )
)


def test_a_folder_comes_back_as_it_was_and_is_named_by_its_content() -> None:
    assert decode_folder(encode_folder(FOLDER)) == FOLDER
    assert list(FOLDER.pieces) == [ONE, TWO]
    assert FOLDER.size == PIECE_BYTES + 6
    assert is_digest(digest_of(encode_folder(FOLDER)))


@pytest.mark.parametrize("text", ["", "0" * 63, "0" * 65, "G" * 64, "A" * 64])
def test_what_is_no_digest(text: str) -> None:
    assert not is_digest(text)


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry(""), "no path"),
        (Entry("/etc/passwd"), "no path"),
        (Entry("../x"), "no path"),
        (Entry(".."), "no path"),
        (Entry("."), "no path"),
        (Entry("a//b"), "no path"),
        (Entry("a\0b"), "no path"),
        (Entry("x" * 5000), "no path"),
        (Entry("nowhere/x"), "in no directory"),
        (Entry("b/x"), "in no directory"),
        (Entry("src/link/x"), "in no directory"),
        (Entry("b"), "twice"),
        (Entry("x", mode=0o4755), "mode"),
        (Entry("x", "link", target="/etc"), "leads out"),
        (Entry("x", "link", target=".."), "leads out"),
        (Entry("x", "link", target="src/../../y"), "leads out"),
        (Entry("x", "link"), "leads out"),
        (Entry("x", "link", target="a\0"), "leads out"),
        (Entry("x", "directory", size=1, pieces=(ONE,)), "no file"),
        (Entry("x", size=1), "other content"),
        (Entry("x", size=1, pieces=("nonsense",)), "other content"),
    ],
)
def test_nothing_is_outside_of_a_folder(entry: Entry, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        decode_folder(encode_folder(Folder((*FOLDER.entries, entry))))


def test_nonsense_and_too_much_are_refused() -> None:
    with pytest.raises(InvalidRequest, match="cannot be read"):
        decode_folder(b"\xc1")
    with pytest.raises(InvalidRequest, match="may have"):
        check_folder(Folder(tuple(Entry(str(number)) for number in range(MAX_ENTRIES + 1))))


def test_variables_are_one_file_with_larger_pieces() -> None:
    entry = Entry("values", "values", 0o600, 0, VALUES_PIECE_BYTES + 1, ("0" * 64, "1" * 64))
    assert values_of(decode_folder(encode_folder(Folder((entry,))))) == entry
    for folder in (Folder(()), Folder((entry, Entry("b", "values"))), Folder((Entry("a", "file"),))):
        with pytest.raises(InvalidRequest, match="inputs names variables that were sent"):
            values_of(folder)
    with pytest.raises(InvalidRequest, match="other content than its size says"):
        decode_folder(encode_folder(Folder((Entry("values", "values", 0o600, 0, 5, ("0" * 64, "1" * 64)),))))


def test_a_folder_counts_as_large_as_it_is_when_laid_out() -> None:
    bomb = Folder(
        tuple(Entry(f"f{number}", size=120 * PIECE_BYTES, pieces=(ONE,) * 120) for number in range(1_000))
    )
    assert bomb.size == 120_000 * PIECE_BYTES
    check_room(bomb, bomb.size)
    check_room(bomb, 0)
    with pytest.raises(
        InvalidRequest,
        match=r"has 125829120000 bytes when it is laid out, and 1000 are allowed: leave files out",
    ):
        check_room(bomb, 1_000)


def test_no_file_makes_up_for_another_with_less_than_nothing() -> None:
    with pytest.raises(InvalidRequest, match="'b' has other content than its size says"):
        check_folder(Folder((Entry("a", size=3, pieces=(ONE,)), Entry("b", size=-3))))


@pytest.mark.parametrize(
    ("size", "pieces", "is_right"),
    [
        (0, (), True),
        (3, (TWO,), True),
        (4, (TWO,), False),
        (2, (TWO,), False),
        (PIECE_BYTES + 3, (ONE, TWO), True),
        (PIECE_BYTES + 3, (TWO, TWO), False),
        (PIECE_BYTES + 4, (ONE, TWO), False),
        (2 * PIECE_BYTES, (ONE, ONE), True),
    ],
)
def test_files_have_the_sizes_of_their_pieces(size: int, pieces: tuple[str, ...], is_right: bool) -> None:
    folder = Folder((Entry("a", size=size, pieces=pieces),))
    check_folder(folder)
    with (
        nullcontext()
        if is_right
        else pytest.raises(InvalidRequest, match="'a' has other content than its size says")
    ):
        check_sizes(folder, {ONE: PIECE_BYTES, TWO: 3})
