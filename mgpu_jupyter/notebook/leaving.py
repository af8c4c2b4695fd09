"""Tells a kernel that is about to end from a user who pressed stop: both interrupt the running cell, only the
second is meant to cancel the job.

Jupyter interrupts a kernel before it shuts it down or restarts it, and its request for that follows at once,
on another thread.
"""

from __future__ import annotations

import time

from mgpu_jupyter.client.job import Job

NOTICE_S = 0.5
"""How long after an interrupt a kernel learns that it is to end; cancelling a job waits this long."""
PAUSE_S = 0.01


class Leaving:
    """The `Beside` of a cell that watches a job: sends no input, and ending the kernel leaves the job
    running.
    """

    def __init__(self, shell: object) -> None:
        self._shell = shell

    def has_left(self) -> bool:
        """Tell, after an interrupt, whether the kernel is about to end."""
        if getattr(self._shell, "kernel", None) is None:
            return False
        deadline = time.monotonic() + NOTICE_S
        while not getattr(self._shell, "exit_now", False):
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_S)
        return True

    def begin(self, job: Job) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""
