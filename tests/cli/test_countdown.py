"""Seconds until the next try are one line that is redrawn on a terminal, elsewhere one sentence."""

from __future__ import annotations

import sys

import pytest

from mgpu_jupyter.cli.console import ShellViewer, note
from mgpu_jupyter.model.job import JobState
from tests.cli.test_cli import Captured
from tests.cli.test_queue import a_job

REASONS = [f"Tries again in {left} s after: No disk." for left in (3, 2, 1, 0, 6, 5)]


def watched() -> None:
    viewer = ShellViewer(0, 1)
    for reason in REASONS:
        viewer.changed(a_job("WAIT0001", JobState.QUEUED, reason=reason, reason_code="delayed"))
    viewer.changed(a_job("WAIT0001", JobState.QUEUED, reason="Waits for 2 GPUs.", reason_code="busy"))
    note("over")


def test_elsewhere_it_is_one_sentence_for_each_try(capsys: Captured) -> None:
    watched()
    assert capsys.readouterr().err.splitlines() == [
        "Waiting for job to start...",
        f"mgpu WAIT0001 waiting: {REASONS[0]}",
        f"mgpu WAIT0001 waiting: {REASONS[4]}",
        "mgpu WAIT0001 waiting: Waits for 2 GPUs.",
        "over",
    ]


def test_on_a_terminal_it_is_one_line(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    watched()
    told = capsys.readouterr().err
    redrawn = "".join(f"\r\x1b[Kmgpu WAIT0001 waiting: {reason}" for reason in REASONS)
    assert told == (
        f"Waiting for job to start...\r\n{redrawn}\r\nmgpu WAIT0001 waiting: Waits for 2 GPUs.\r\nover\r\n"
    )
