"""The log in the panel: of a huge one the last part and all of that, found by a few requests; then what
comes.
"""

from __future__ import annotations

import threading
from itertools import groupby

import pytest

from mgpu_jupyter.api.frames import OutputFrame
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.notebook.panel.log_reader import MAX_RANKS, TAIL_BYTES, LogReader

PIECE = 60_000


def written(size: int, rank: int = 0) -> bytes:
    """Return so many bytes, of which no two parts are alike."""
    return b"".join(b"%d:%09d\n" % (rank, number) for number in range(size // 12 + 1))[:size]


def read(play: Play, **spec: object) -> tuple[dict[int, bytes], bool, list[str], MockTransport]:
    """Return what a reader hands on by rank, whether it began at the beginning, how it ended, and the
    server.
    """
    transport = MockTransport(lambda _: play)
    client = Client(transport=transport)
    job = client.submit(["train"], **spec)  # type: ignore[arg-type]
    frames: list[OutputFrame] = []
    starts: list[bool] = []
    ends: list[str] = []
    over = threading.Event()
    del transport.requests[:]
    LogReader(
        client, job.refresh(), starts.append, frames.append, lambda told: (ends.append(told), over.set())[1]
    )
    assert over.wait(60)
    frames.sort(key=lambda frame: (frame.rank, frame.offset))
    by_rank = {
        rank: b"".join(frame.data for frame in own) for rank, own in groupby(frames, lambda frame: frame.rank)
    }
    (whole,) = starts
    return by_rank, whole, ends, transport


def asked_sizes(transport: MockTransport) -> list[Request]:
    """Return the requests for parts of the output, other than the stream."""
    return [
        request
        for request in transport.requests
        if request.path.endswith("/output") and "follow" not in request.query
    ]


def say(size: int, rank: int = 0) -> tuple[Say, ...]:
    data = written(size, rank)
    return tuple(Say(data[start : start + PIECE], rank=rank) for start in range(0, size, PIECE))


@pytest.mark.parametrize("size", [0, 1, TAIL_BYTES - 1, TAIL_BYTES])
def test_a_log_that_is_not_long_is_read_whole(size: int) -> None:
    read_, whole, ends, _ = read(Play(output=say(size)))
    assert (read_.get(0, b""), whole, ends) == (written(size), True, [""])


@pytest.mark.parametrize("parts", [1, 2, 3, 4, 7, 40])
@pytest.mark.parametrize("more", [1, TAIL_BYTES // 2])
def test_of_a_huge_log_the_last_part_is_read_and_all_of_it(parts: int, more: int) -> None:
    size = parts * TAIL_BYTES + more
    read_, whole, ends, transport = read(Play(output=say(size)))
    assert written(size).endswith(read_[0])
    assert TAIL_BYTES <= len(read_[0]) <= 2 * TAIL_BYTES
    assert (whole, ends) == (len(read_[0]) == size, [""])
    asked = asked_sizes(transport)
    assert len(asked) <= 2 + 2 * parts.bit_length(), "a few small requests, not one for each part"
    assert {request.query["limit"] for request in asked} == {"1"}


def test_each_rank_has_its_own_end() -> None:
    sizes = {0: 10, 1: 5 * TAIL_BYTES + 3, 2: 2 * TAIL_BYTES + 1}
    play = Play(output=tuple(one for rank, size in sizes.items() for one in say(size, rank)))
    read_, whole, _, _ = read(play, nodes=3)
    assert not whole
    assert {rank: written(sizes[rank], rank).endswith(data) for rank, data in read_.items()} == dict.fromkeys(
        sizes, True
    )
    assert len(read_[0]) == 10
    assert all(TAIL_BYTES <= len(read_[rank]) <= 2 * TAIL_BYTES for rank in (1, 2))


def test_of_very_many_ranks_not_each_is_asked_for_its_size() -> None:
    _, _, _, transport = read(Play(output=say(1)), nodes=MAX_RANKS + 5)
    asked = asked_sizes(transport)
    assert [request.query["rank"] for request in asked] == [str(rank) for rank in range(MAX_RANKS)]
