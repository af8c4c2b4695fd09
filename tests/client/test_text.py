"""Lines, tails and sentences: pure functions, as tables."""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client import words
from mgpu_jupyter.client.lines import MAX_HELD_CHARS, Decoder, Labeller, Tail
from mgpu_jupyter.model.job import JobState
from tests.client.test_http import a_view


def test_characters_cut_in_two_are_whole_again() -> None:
    decoder = Decoder()
    data = "ä€😀\n".encode()
    pieces = [decoder.feed((0, "stdout"), data[index : index + 1]) for index in range(len(data))]
    assert "".join(pieces) == "ä€😀\n"
    assert decoder.feed(1, b"\xe2\x82") + decoder.flush(1) == "�"
    assert decoder.flush(1) == ""


@pytest.mark.parametrize(
    ("pieces", "expected"),
    [
        (["a\nb\n"], "[0] a\n[0] b\n"),
        (["a", "b\nc"], "[0] ab\n[0] c\n"),
        (["10%\r", "20%\r", "done\n"], "[0] 10%\r[0] 20%\r[0] done\n"),
        (["\r10%", "\r20%", "\n"], "\r[0] 10%\r[0] 20%\n"),
        (["dos\r", "\nnext\r\n"], "[0] dos\r\n[0] next\r\n"),
        (["\n\n"], "[0] \n[0] \n"),
        ([], ""),
    ],
)
def test_labels(pieces: list[str], expected: str) -> None:
    labeller = Labeller("[{}] ")
    assert "".join(labeller.feed(0, piece) for piece in pieces) + labeller.flush(0) == expected


def test_ranks_do_not_mix_within_a_line() -> None:
    labeller = Labeller("{}: ")
    shown = [
        labeller.feed(0, "a"),
        labeller.feed(1, "b"),
        labeller.feed(0, "A\n"),
        labeller.feed(1, "B\n"),
        labeller.flush(0),
    ]
    assert shown == ["", "", "0: aA\n", "1: bB\n", ""]


def test_a_line_without_end_is_shown_anyway() -> None:
    labeller = Labeller("{}: ")
    assert labeller.feed(0, "x" * (MAX_HELD_CHARS + 1)) == "0: " + "x" * (MAX_HELD_CHARS + 1) + "\n"


def test_the_tail_is_what_a_reader_sees() -> None:
    tail = Tail()
    tail.feed(0, "first\n\x1b[31mred\x1b[0m\n10%\r20%\r\nTraceback\n\n  boom\n")
    assert tail.last_lines(0, 4) == ("red", "20%", "Traceback", "  boom")
    assert tail.last_lines(1, 4) == ()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.034, "34 ms"),
        (0.0999, "0.1 s"),
        (3.24, "3.2 s"),
        (9.96, "10 s"),
        (40, "40 s"),
        (59.7, "1 m 00 s"),
        (124, "2 m 04 s"),
        (4320, "1 h 12 m"),
        (273_600, "3 d 4 h"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    assert words.duration(seconds) == text


@pytest.mark.parametrize(
    ("state", "code", "status"),
    [
        (JobState.COMPLETED, 0, 0),
        (JobState.FAILED, 3, 3),
        (JobState.FAILED, -9, 137),
        (JobState.FAILED, None, 1),
        (JobState.CANCELLED, 0, 130),
        (JobState.CANCELLED, 143, 143),
        (JobState.TIMEOUT, 0, 124),
    ],
)
def test_exit_status(state: JobState, code: int | None, status: int) -> None:
    assert words.exit_status(a_view(state, exit_code=code)) == status


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        (
            {
                "state": JobState.FAILED,
                "nodes": ("n1",),
                "reason": "GPU 0 of n1 was lost: gone.",
                "reason_code": "gpu-lost",
                "exit_code": 143,
                "placements": (
                    models.Placement(node=NodeId("n1"), rank=0, gpus=(), gpu_indices=(), signal=15),
                ),
            },
            "Failed on n1, exit code 143: GPU 0 of n1 was lost: gone",
        ),
        (
            {
                "state": JobState.COMPLETED,
                "ended_at": 5.2,
                "placements": (
                    models.Placement(node=NodeId("n1"), rank=0, gpus=(), gpu_indices=(), simulated=True),
                ),
            },
            "Done in 3.2 s, 1 simulated GPU, exit 0",
        ),
        (
            {"state": JobState.COMPLETED, "nodes": ("n1",), "ended_at": 5.2},
            "Done in 3.2 s on n1, 1 GPU, exit 0",
        ),
        ({"state": JobState.CANCELLED, "ended_at": 42.0}, "Cancelled after 40 s"),
        ({"state": JobState.CANCELLED, "started_at": None}, "Cancelled before it started"),
        ({"state": JobState.TIMEOUT, "time_limit_s": 3600.0}, "Time limit 1 h 00 m reached"),
        ({"state": JobState.FAILED, "reason": "No such program: x."}, "Failed: No such program: x"),
    ],
)
def test_endings(changes: dict[str, object], text: str) -> None:
    assert words.ending(a_view(**changes)) == text  # type: ignore[arg-type]


def test_small_words() -> None:
    assert [words.ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 112)] == [
        "1st",
        "2nd",
        "3rd",
        "4th",
        "11th",
        "12th",
        "13th",
        "21st",
        "112th",
    ]
    assert [words.gpu_count(count) for count in (0, 1, 2)] == ["no GPU", "1 GPU", "2 GPUs"]
    assert words.memory(57_100 << 20, 80 << 30) == "55.8 of 80 GiB"
    assert words.memory(None, 24_564 << 20) == "24 GiB"
    assert words.names(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"
    assert (
        words.waiting(a_view(JobState.QUEUED, place=2, reason="waits"))
        == "mgpu AAAA1111 waiting, 2nd in queue: waits"
    )
    assert words.names(["a\x1b[2Jb\nc"]) == "a\ufffd[2Jb c"


@pytest.mark.parametrize(
    ("indices", "shown"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 1, 2], "0-2"),
        ([1, 2, 3, 7], "1-3,7"),
        ([0, 2, 4, 6], "0,2,4,6"),
        ([0, 2, 4, 6, 8, 9], "0,2,4,…,8-9"),
    ],
)
def test_numbers_are_ranges(indices: list[int], shown: str) -> None:
    assert words.numbers(indices) == shown
