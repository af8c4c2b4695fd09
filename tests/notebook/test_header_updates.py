"""A header that lives: when it is shown, and what its buttons do."""

from __future__ import annotations

import time
from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.notebook.header_text import (
    Facts,
    Waits,
)
from mgpu_jupyter.notebook.header_updates import HeaderUpdates
from tests.notebook.test_header import a_job
from tests.notebook.test_header_words import WAITS


class Shown:
    """A header that notes what it is told."""

    def __init__(self) -> None:
        self.facts: list[Facts] = []
        self.told: list[str] = []

    def show(self, facts: Facts) -> None:
        self.facts.append(facts)

    def settle(self) -> None:
        self.told.append("settle")

    def widgets(self, job: models.Job) -> int:
        return 2

    def again(self) -> None:
        self.told.append("again")

    def end(self) -> None:
        self.told.append("end")

    def remove(self) -> None:
        self.told.append("remove")


def updates(**options: Any) -> tuple[HeaderUpdates, Shown]:
    shown = Shown()
    made: dict[str, Any] = {"is_rich": True, "lines_of": lambda rank, count: (f"{rank} {count}",)}
    return HeaderUpdates(lambda _: shown, **(made | options)), shown


def test_a_header_is_shown_as_the_job_changes_and_about_once_a_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    one, shown = updates(stop="Stop cancels", run_again="x")
    assert not one.bring_up_to_date()
    one.trouble = "Lost."
    one.changed(replace(WAITS, place=3, reason="Busy."))
    facts = shown.facts[-1]
    assert (facts.waits, facts.widgets, facts.stop, facts.run_again, facts.trouble) == (
        Waits(place=3, reason="Busy."),
        2,
        "Stop cancels",
        "x",
        "",
    )
    assert not one.bring_up_to_date()
    now[0] += 5
    assert one.bring_up_to_date()
    assert len(shown.facts) == 2
    one.changed(a_job(JobState.COMPLETED))
    now[0] += 5
    assert not one.bring_up_to_date()
    one.close()
    assert shown.told == ["settle"] * 4 + ["end"]
    other, gone = updates()
    other.changed(WAITS)
    other.close()
    assert gone.told == ["end", "remove"]


def test_buttons_cancel_and_ask_why() -> None:
    mock = MockTransport(lambda _: Play(waits=True, reason="Busy."))
    client = Client(transport=mock)
    one, shown = updates()
    one.why()
    one.cancel()
    assert one.cancelling
    one.cancelling = False
    one.job = client.submit_spec(JobSpec(command=("x",)))
    one.changed(WAITS)
    one.why()
    assert one.bring_up_to_date()
    assert shown.facts[-1].explained != ()
    assert not shown.facts[-1].cancelling
    one.why()
    assert one.bring_up_to_date()
    assert shown.facts[-1].explained == ()
    one.cancel()
    assert one.cancelling
    assert mock.jobs["MOCK0000"].cancelled.is_set()
    for act, message in ((one.why, "Down."), (one.cancel, "Down too.")):
        mock.failures[:] = [MgpuError("x", message)]
        act()
        assert one.trouble == message
    assert not one.cancelling


def test_offers_are_asked_for_once_after_a_long_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    mock = MockTransport(lambda _: Play(waits=True, reason="Busy."))
    client = Client(transport=mock)
    one, shown = updates()
    one.job = client.submit_spec(JobSpec(command=("x",)))
    one.changed(WAITS)
    assert shown.facts[-1].offers == ()
    now[0] += 3600
    for _ in range(2):
        one.show()
    assert [offer.text for offer in shown.facts[-1].offers] == ["1 GPU instead of 2"]
    assert [request.path for request in mock.requests[1:]] == ["jobs/MOCK0000/explain"]
    plain, told = updates(is_rich=False)
    plain.job = one.job
    plain.changed(WAITS)
    now[0] += 3600
    plain.show()
    assert told.facts[-1].offers == ()
