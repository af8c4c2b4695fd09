"""What several ranks say alike is shown once."""

from __future__ import annotations

import pytest

from mgpu_jupyter.client import repeats
from mgpu_jupyter.client.lines import Labeller
from mgpu_jupyter.client.repeats import Repeats


def test_what_all_say_is_shown_once_and_what_differs_is_shown() -> None:
    known = Repeats()
    labels = Labeller("[{}] ", known.is_new)
    shown = [labels.feed(rank, text) for rank, text in ((0, "start\nloss 1\n"), (1, "start\nloss 2\n"), (1, "start\n"), (0, "start\n"))]
    assert shown == ["[0] start\n[0] loss 1\n", "[1] loss 2\n", "[1] start\n", ""]
    assert known.summary(4) == "2 lines of ranks 0-1 repeat what another said; ranks 2-3 said nothing."


def test_a_line_that_never_ended_is_folded_too() -> None:
    known = Repeats()
    labels = Labeller("[{}] ", known.is_new)
    for rank in range(2):
        labels.feed(rank, "50 %")
    assert [labels.flush(rank) for rank in range(2)] == ["[0] 50 %\n", ""]
    assert known.summary(2) == "1 line of rank 1 repeats what another said."


def test_with_nothing_to_fold_nothing_is_said() -> None:
    known = Repeats()
    assert known.summary(2) == ""
    assert [known.is_new(rank, f"I am {rank}") for rank in range(2)] == [True, True]
    assert known.summary(2) == ""


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeats, "MAX_LINES", 2)
    known = Repeats()
    assert [known.is_new(rank, line) for line in "abc" for rank in range(2)] == [True, False, True, False, True, True]
