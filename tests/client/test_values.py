"""Times as Slurm writes them, on a clock that stands still."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
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


ALPHABETS = {
    "--gpu-ids": (gpu_ids, r"[0-9]{1,2}([,-][0-9]{1,3}){0,3}"),
    "--node-gpu-ids": (node_gpu_ids, r"n[1-3]:[0-9]([,-][0-9]){0,2}(;n[1-3]:[0-9]){0,2}"),
    "--gpu-mem": (lambda text: size(text, "--gpu-mem"), r"[0-9]{1,3}(\.[0-9]{1,2})?[KMGTkmgtB]{0,2}"),
    "--begin": (
        lambda text: begin_time(text, NOW.timestamp()),
        r"now\+[0-9]{1,3}(second|minute|hour|day|week|year)?s?|[0-2][0-9]:[0-7][0-9]",
    ),
}


def is_indices(value: object) -> bool:
    """Tell whether these are indices of GPUs."""
    return isinstance(value, tuple) and bool(value) and all(type(one) is int and one >= 0 for one in value)


KINDS = {
    "--gpu-ids": is_indices,
    "--node-gpu-ids": lambda value: (
        bool(value) and all(name == name.strip() != "" and is_indices(ids) for name, ids in value.items())
    ),
    "--gpu-mem": lambda value: type(value) is int and value >= 0,
    "--begin": lambda value: type(value) is float and value >= 0.0,
}


CODES = {
    "--gpu-ids": "bad-gpus",
    "--node-gpu-ids": "bad-gpus",
    "--gpu-mem": "bad-size",
    "--begin": "bad-time",
}


def outcome(read: Callable[[str], object], text: str) -> tuple[InvalidRequest | None, object]:
    """Return the refusal, or the value."""
    try:
        return None, read(text)
    except InvalidRequest as refused:
        return refused, None


@pytest.mark.parametrize("flag", ALPHABETS)
def test_any_text_is_a_value_or_one_sentence_and_there_are_many_of_both(flag: str) -> None:
    read, pattern = ALPHABETS[flag]
    seen = {"value": 0, "sentence": 0}

    @given(st.text(max_size=20) | st.from_regex(pattern, fullmatch=True))
    def check(text: str) -> None:
        refused, value = outcome(read, text)
        if refused is None:
            seen["value"] += 1
            assert KINDS[flag](value), value
        else:
            seen["sentence"] += 1
            assert refused.code == CODES[flag]
            assert refused.message.startswith((f"{flag} {text}", f"{flag} is empty"))
            assert re.search(
                r"(: write |; write ).*, like .*\.\Z|: write it like .*\.\Z|at most .*\.\Z",
                refused.message,
                re.DOTALL,
            )

    check()
    assert min(seen.values()) >= 15, seen
