"""Runs a job in front of someone: submit, show what comes, and on an interrupt cancel and see it end.

Owns the order of things; what it looks like is the viewer's.
"""

from __future__ import annotations

import time
from typing import Protocol

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client, new_key
from mgpu_jupyter.client.follow import Follow
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.model.job import JobSpec


class Viewer(Protocol):
    """Shows a running job to someone."""

    def submitted(self, job: Job) -> None:
        """Take note that the job is saved."""

    def changed(self, job: models.Job) -> None:
        """Show the job's new state."""

    def output(self, frame: models.OutputFrame) -> None:
        """Show what a rank printed."""

    def gap(self, frame: models.GapFrame) -> None:
        """Say that output is missing."""

    def interrupted(self, job: Job) -> None:
        """Say that the job is being cancelled."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended for the one who watched."""

    job: models.Job
    interrupted: bool = False


def run(client: Client, spec: JobSpec, viewer: Viewer) -> Outcome:
    """Submit `spec` and show it to its end; an interrupt cancels it, a second one stops watching."""
    key = new_key()
    try:
        job = client.submit_spec(spec, key=key)
    except KeyboardInterrupt:
        client.withdraw(spec, key)
        raise
    viewer.submitted(job)
    return watch(client, job, viewer)


def watch(client: Client, job: Job, viewer: Viewer) -> Outcome:
    """Show a job to its end; an interrupt cancels it, a second one stops watching."""
    frames = job.follow()
    try:
        return Outcome(job=show(frames, viewer))
    except KeyboardInterrupt:
        viewer.interrupted(job)
        return Outcome(job=cancel_and_see(client, job, frames, viewer), interrupted=True)
    except BrokenPipeError:  # nobody reads any more
        job.cancel()
        raise
    finally:
        frames.close()


def show(frames: Follow, viewer: Viewer) -> models.Job:
    """Show all frames and return the job as it ended."""
    for frame in frames:
        match frame:
            case models.OutputFrame():
                viewer.output(frame)
            case models.JobFrame():
                viewer.changed(frame.job)
            case models.GapFrame():
                viewer.gap(frame)
            case models.EndFrame():
                viewer.changed(frame.job)
                return frame.job
            case models.PingFrame():
                pass
    raise AssertionError("a stream ends with its end frame")


def cancel_and_see(client: Client, job: Job, frames: Follow, viewer: Viewer) -> models.Job:
    """Cancel the job and show the rest, as long as a kill may take."""
    frames.close()
    job.cancel()
    frames.deadline = time.monotonic() + client.timeouts.cancel_wait_s
    try:
        return show(frames, viewer)
    except TimeoutError:
        return job.refresh()
    except MgpuError:
        if job.snapshot is not None:
            return job.snapshot
        raise
