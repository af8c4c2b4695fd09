"""`--signal`: what it means and what it does not."""

from __future__ import annotations

import signal

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import Warning_, check, parse_signal
from tests.builders import a_spec


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("", None),
        ("USR1@60", Warning_(signal.SIGUSR1, 60.0)),
        ("sigusr2@5", Warning_(signal.SIGUSR2, 5.0)),
        ("15@0", Warning_(signal.SIGTERM, 0.0)),
        ("INT", Warning_(signal.SIGINT, 60.0)),
    ],
)
def test_a_signal_by_name_or_number(text: str, meaning: Warning_ | None) -> None:
    assert parse_signal(text) == meaning


@pytest.mark.parametrize(
    "text", ["B:USR1@60", "USR9@60", "USR1@soon", "@60", "999@1", "KILL@5", "USR1@60@60"]
)
def test_others_are_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^--signal .*\.$"):
        parse_signal(text)


def test_one_terminal_is_for_one_process() -> None:
    assert check(a_spec(pty=True)).pty
    assert check(a_spec(pty=True, mpi=True, nodes=2)).pty
    for spec in (a_spec(pty=True, nodes=2), a_spec(pty=True, array="1-2")):
        with pytest.raises(InvalidRequest, match="--pty"):
            check(spec)


def test_processes_are_started_in_one_way() -> None:
    with pytest.raises(InvalidRequest, match="--mpi and --distributed"):
        check(a_spec(mpi=True, distributed=True, nodes=2))
