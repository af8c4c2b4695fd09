"""Times as Slurm writes them, on a clock that stands still."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.values import begin_time, gpu_ids, node_gpu_ids, size

NOW = datetime(2026, 3, 28, 14, 30, 0)  # a Saturday; clocks in Berlin go forward in the night that follows


@pytest.fixture(params=["UTC", "Europe/Berlin", "America/New_York"])
def zone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", request.param)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.usefixtures("zone")
@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("14:31", datetime(2026, 3, 28, 14, 31)),
        ("14:30:01", datetime(2026, 3, 28, 14, 30, 1)),
        ("14:30", datetime(2026, 3, 29, 14, 30)),
        ("9:05", datetime(2026, 3, 29, 9, 5)),
        ("00:00", datetime(2026, 3, 29)),
        ("midnight", datetime(2026, 3, 29)),
        ("noon", datetime(2026, 3, 29, 12)),
        ("tomorrow", datetime(2026, 3, 29)),
        ("Tomorrow", datetime(2026, 3, 29)),
        ("tomorrowT18:30", datetime(2026, 3, 29, 18, 30)),
        ("tomorrowTnoon", datetime(2026, 3, 29, 12)),
        ("2030-01-31", datetime(2030, 1, 31)),
        ("2030-01-31T08:00", datetime(2030, 1, 31, 8)),
        ("2030-01-31t08:00:59", datetime(2030, 1, 31, 8, 0, 59)),
        ("2020-01-31", datetime(2020, 1, 31)),
    ],
)
def test_times_on_the_clock(text: str, moment: datetime) -> None:
    assert begin_time(text, NOW.timestamp()) == moment.timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("now", 0),
        ("now+30", 30),
        ("now+30seconds", 30),
        ("now+1minute", 60),
        ("now+1hour", 3600),
        ("NOW+2Hours", 7200),
        ("now+1day", 86_400),
        ("now+2weeks", 14 * 86_400),
    ],
)
def test_delays(text: str, seconds: float) -> None:
    assert begin_time(text, 1000.25) == 1000.25 + seconds


def test_a_time_before_1970_is_past_all_the_same() -> None:
    assert begin_time("1960-01-01", NOW.timestamp()) == 0.0


@pytest.mark.parametrize(
    "text",
    [
        *("soon", "now+", "now-5", "now+1fortnight", "25:00", "12:60", "12", "12:0", "tomorrow12:00"),
        *("2030-13-01", "2030-02-30", "31.1.2030", "2030-01-31T", "20300131"),
    ],
)
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        begin_time(text, NOW.timestamp())
    hint = "write it like now+1hour, 18:30, tomorrow or 2030-01-31T08:00"
    assert (caught.value.code, caught.value.message) == ("bad-time", f"--begin {text} is not a time: {hint}.")


@given(st.text(max_size=20) | st.from_regex(r"[0-9n:;, tT+-]{0,20}"))
def test_any_text_is_a_value_or_one_sentence(text: str) -> None:
    for read in (gpu_ids, node_gpu_ids, lambda one: size(one, "--gpu-mem"), lambda one: begin_time(one, 1e9)):
        with suppress(InvalidRequest):
            read(text)
