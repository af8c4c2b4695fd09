"""Errors: what is told of one that is not mgpu's own."""

from __future__ import annotations

import errno
import os

import pytest

from mgpu_agent.protocol.errors import reason_of


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/spool/x"), "No space left on device"),
        (OSError("the line is cut"), "the line is cut"),
        (ValueError("not a number"), "not a number"),
    ],
)
def test_the_reason_is_what_the_system_says_without_numbers_and_paths(error: Exception, reason: str) -> None:
    assert reason_of(error) == reason
