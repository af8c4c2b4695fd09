"""What a job finds on this node: versions of Python, torch and the GPU driver, so that nodes of one job can be compared.

Nothing is started for it: an interpreter is a user's program, and runs only as a part of that user's job.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from mgpu_agent.protocol.meeting import Fingerprint
from mgpu_agent.protocol.model import LaunchSpec
from mgpu_agent.run_as.file_requests import Versions

_DRIVER = "/proc/driver/nvidia/version"
Look = Callable[[LaunchSpec], Versions | None]
"""Reads off files, as the user of a launch, what its processes will find; None when that takes too long."""


def fingerprint_of(spec: LaunchSpec, look: Look) -> Fingerprint:
    """Return what the processes of a launch will find."""
    found = look(spec) or Versions()
    return Fingerprint(python=found.python, torch=found.torch, driver=_driver())


def _driver() -> str:
    try:
        with open(_DRIVER, encoding="utf-8", errors="replace") as file:
            found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", file.readline())
    except OSError:
        return ""
    return found.group(1) if found else ""
