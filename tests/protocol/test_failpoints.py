"""Failpoints: what the variable means, that they are off by default, and that the list of names is what the
programs have.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from mgpu_agent.protocol import failpoints
from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.failpoints import AGENT, KEEPER, MASTER, NAMES, VARIABLE, arm, damage, reach

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _off() -> Iterator[None]:
    yield
    arm(None)


def _places(folder: str, leaving_out: str = "?") -> Counter[str]:
    files = [path for path in (ROOT / folder).rglob("*.py") if leaving_out not in path.parts]
    return Counter(
        name for path in files for name in re.findall(r'\b(?:reach|damage)\("([^"]+)"[,)]', path.read_text())
    )


def test_every_name_is_reached_at_exactly_one_place_of_its_program() -> None:
    assert _places("mgpu_jupyter") == dict.fromkeys(MASTER, 1)
    assert _places("mgpu_agent", leaving_out="keeper") == dict.fromkeys(AGENT, 1)
    assert _places("mgpu_agent/keeper") == dict.fromkeys(KEEPER, 1)
    assert len(NAMES) == len(MASTER) + len(AGENT) + len(KEEPER)


def test_off_nothing_happens() -> None:
    for name in NAMES:
        reach(name)


def test_off_it_costs_one_call_and_calls_nothing() -> None:
    called: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call"):
            called.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        reach("link.send.before")
    finally:
        sys.setprofile(before)

    own = sys._getframe().f_code.co_name
    assert [name for name in called if name != own] == ["reach"]


def test_error_at_the_second_time_only() -> None:
    arm("store.batch=error:2")
    reach("store.batch")
    with pytest.raises(OSError, match=r"Failpoint store\.batch"):
        reach("store.batch")
    reach("store.batch")
    reach("store.commit.before")


def test_error_every_time() -> None:
    arm(" logs.sync=error , master.bye=error:1 ,")
    for _ in range(2):
        with pytest.raises(OSError, match=r"Failpoint logs\.sync"):
            reach("logs.sync")


def test_sleep(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(failpoints.time, "sleep", slept.append)
    arm("agent.send.after=sleep:0.25")
    reach("agent.send.after")
    assert slept == [0.25]


def test_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(failpoints.os, "kill", lambda *what: sent.append(what))
    arm("keeper.end=kill:3")
    for _ in range(4):
        reach("keeper.end")
    assert sent == [(os.getpid(), signal.SIGKILL)]


@pytest.mark.parametrize(
    ("text", "code"), [("store.batch=kill", -signal.SIGKILL), ("store.batch=kill:2", 0), (None, 0)]
)
def test_a_program_reads_its_environment(text: str | None, code: int) -> None:
    env = {name: value for name, value in os.environ.items() if name != VARIABLE} | (
        {VARIABLE: text} if text else {}
    )
    program = "from mgpu_agent.protocol.failpoints import reach; reach('store.batch')"
    assert (
        subprocess.run([sys.executable, "-c", program], env=env, cwd=ROOT, timeout=30, check=False).returncode
        == code
    )


@pytest.mark.parametrize(
    "text",
    [
        "store.unknown=kill",
        "store.batch",
        "store.batch=explode",
        "store.batch=kill:x",
        "store.batch=sleep:-1",
    ],
)
def test_what_means_nothing_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="MGPU_FAILPOINTS has"):
        arm(text)


def test_data_is_damaged_where_and_when_a_test_wants_it() -> None:
    assert damage("agent.result", b"abc") == b"abc"
    arm("agent.result=damage:2")
    assert [damage("agent.result", b"abc") for _ in range(3)] == [
        b"abc",
        bytes([ord("a") ^ 0xFF]) + b"bc",
        b"abc",
    ]
    arm("agent.result=damage")
    assert damage("agent.result", b"") == b""
    assert damage("agent.output", b"abc") == b"abc"
    reach("agent.output")
