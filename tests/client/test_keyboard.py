"""Stdin as a source of input: a file goes from where it was handed over, once more from there after a break,
and nothing is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.client.keyboard import Stdin

CONTENT = bytes(range(256))


@pytest.fixture
def descriptor(tmp_path: Path) -> Iterator[int]:
    """A file as `mgpu_srun … < file` has it."""
    path = tmp_path / "file"
    path.write_bytes(CONTENT)
    opened = os.open(path, os.O_RDONLY)
    yield opened
    os.close(opened)


@pytest.mark.parametrize("begun", [0, 1, 7])
def test_a_file_is_read_from_where_it_stands_to_its_end_and_again_from_there(
    descriptor: int, begun: int
) -> None:
    os.read(descriptor, begun)  # by whoever had it before
    source = Stdin(descriptor)
    assert [source.read(100) for _ in range(4)] == [
        CONTENT[begun:][:100],
        CONTENT[begun:][100:200],
        CONTENT[begun:][200:],
        b"",
    ]
    assert source.rewind()
    assert source.read(1000) == CONTENT[begun:]


def test_a_pipe_is_read_to_its_end_and_cannot_be_read_again() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"abc")
    os.close(writing)
    source = Stdin(reading)
    assert [source.read(2), source.read(2), source.read(2)] == [b"ab", b"c", b""]
    assert not source.rewind()
    os.close(reading)


def test_without_any_stdin_there_is_just_nothing() -> None:
    reading, writing = os.pipe()
    os.close(writing)
    os.close(reading)
    source = Stdin(reading)
    assert source.read(10) == b""
    os.close(source.fileno())


@pytest.mark.parametrize(
    ("typed", "passed_on", "is_left"),
    [
        (b"~.", None, True),
        (b"ls\r~.more", b"ls\r", True),
        (b"ls\n~.", b"ls\n", True),
        (b"~~.", b"~.", False),
        (b"~x", b"~x", False),
        (b"a~.", b"a~.", False),
        (b"~", None, False),
    ],
)
def test_an_escape_counts_at_the_beginning_of_a_line_alone(
    typed: bytes, passed_on: bytes | None, is_left: bool
) -> None:
    reading, writing = os.pipe()
    os.write(writing, typed)
    os.close(writing)
    left: list[bool] = []
    source = Stdin(reading, on_detach=lambda: left.append(True))
    assert (source.read(100), left) == (passed_on, [True] * is_left)
    os.close(reading)
