"""What ranks display, in the cell that runs them: in its place, replaced by its own rank alone, cleared when
that is asked for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from mgpu_jupyter.api.frames import OutputFrame
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import stream
from mgpu_jupyter.notebook.notes import RichNotes
from mgpu_jupyter.notebook.stream import CellViewer
from tests.notebook.panel_world import job

Seen = list[tuple[Any, ...]]
Make = Callable[[int], CellViewer]
KEY = "k3y"


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """What came to the cell, in order: texts by `display`, their ids, and whether they replace."""
    found: Seen = []

    def display(data: dict[str, str], **options: Any) -> None:
        if "mgpu" not in options.get("metadata", {}):
            found.append((data["text/plain"], options.get("display_id"), bool(options.get("update"))))

    monkeypatch.setattr(stream, "display", display)
    monkeypatch.setattr(stream, "clear_output", lambda *_: found.append(("clear",)))
    monkeypatch.setattr("mgpu_jupyter.notebook.screen.display", lambda *_args, **_options: None)
    return found


def viewer(ranks: int) -> CellViewer:
    made = CellViewer(RichNotes(), ranks, kernel=object())
    made.keyed(KEY)
    made.changed(job("AAAA1111", JobState.RUNNING, nodes=("n1",), gpus=1, attempt=1))
    return made


def shown(made: CellViewer, kind: str, text: str = "", name: str = "", rank: int = 0, **more: bool) -> None:
    """Have a rank display, update or clear something."""
    body = json.dumps({"kind": kind, "data": {"text/plain": text}, "metadata": more, "id": name})
    sequence = f"\x1b_mgpu;{KEY};{body}\x1b\\{text}\n\x1b_mgpu;{KEY};\x1b\\"
    made.output(OutputFrame(rank=rank, stream="stdout", offset=0, data=sequence.encode()))


def test_displays_appear_and_are_updated_by_their_names(seen: Seen) -> None:
    made = viewer(1)
    shown(made, "display", "plain")
    shown(made, "display", "first", "x")
    shown(made, "update", "second", "x")
    shown(made, "update", "nobody's", "y")
    assert seen == [
        ("plain", None, False),
        ("first", "mgpu-AAAA1111-1-0-x", False),
        ("second", "mgpu-AAAA1111-1-0-x", True),
    ]


def test_a_clear_takes_all_of_a_single_rank_away_and_what_is_gone_is_not_updated(
    seen: Seen, capsys: pytest.CaptureFixture[str]
) -> None:
    made = viewer(1)
    shown(made, "display", "first", "x")
    shown(made, "clear")
    shown(made, "update", "second", "x")
    shown(made, "clear", wait=True)
    assert seen == [("first", "mgpu-AAAA1111-1-0-x", False), ("clear",)]
    shown(made, "display", "third", "x")
    assert seen[2:] == [("clear",), ("third", "mgpu-AAAA1111-1-0-x", False)], (
        "what waits is due with the next"
    )
    shown(made, "clear", wait=True)
    made.output(OutputFrame(rank=0, stream="stdout", offset=0, data=b"text\n"))
    assert seen[4:] == [("clear",)]
    assert capsys.readouterr().out == "text\n"


@pytest.mark.parametrize("wait", [False, True])
def test_of_several_ranks_each_replaces_its_own_last_display_alone(seen: Seen, wait: bool) -> None:
    made = viewer(2)
    shown(made, "display", "of 0", rank=0)
    shown(made, "display", "of 1", rank=1)
    ids = [one[1] for one in seen]
    assert (len(set(ids)), None in ids) == (2, False)
    shown(made, "clear", rank=1, wait=wait)
    shown(made, "display", "of 1 again", rank=1)
    shown(made, "display", "one more of 1", rank=1)
    assert [one[:1] + one[2:] for one in seen] == [
        ("of 0", False),
        ("of 1", False),
        ("of 1 again", True),
        ("one more of 1", False),
    ]
    assert seen[2][1] == ids[1]


def test_a_new_attempt_and_a_new_key_are_others(seen: Seen) -> None:
    made = viewer(1)
    shown(made, "display", "first", "x")
    made.changed(job("AAAA1111", JobState.RUNNING, nodes=("n1",), gpus=1, attempt=2))
    shown(made, "update", "of the new attempt", "x")
    made.keyed("other")
    shown(made, "display", "with the old key", "x")
    assert seen == [("first", "mgpu-AAAA1111-1-0-x", False)]
