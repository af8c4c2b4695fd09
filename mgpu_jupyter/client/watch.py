"""Runs a job in front of someone: submit, show what comes, and on an interrupt cancel and see it end.

Owns the order of things; what it looks like is the viewer's.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client, new_key
from mgpu_jupyter.client.follow import Follow
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.pump import Pump
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


class Ticking(Viewer, Protocol):
    """A viewer that also shows how time goes by, and what ranks display."""

    pace_s: float
    """How long it may be left alone."""

    def tick(self) -> None:
        """Bring what is shown up to date; nothing came for a while."""

    def keyed(self, key: str) -> None:
        """Take the key of what this job displays; empty when it is another's, or displays nothing."""


class Beside(Protocol):
    """What goes to the job while it is watched."""

    @property
    def detached(self) -> bool:
        """Whether the user left; the job goes on. Asked after an interrupt."""

    def begin(self, job: Job) -> None:
        """Start with a job that is saved."""

    def end(self) -> None:
        """Stop; called however it ends, and before anything else is said."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How it ended for the one who watched."""

    job: models.Job
    interrupted: bool = False
    detached: bool = False
    """The user left a job that goes on."""


def run(client: Client, spec: JobSpec, viewer: Viewer, beside: Beside | None = None) -> Outcome:
    """Submit `spec` and show it to its end; an interrupt cancels it, a second one stops watching."""
    key = new_key()
    try:
        job = client.submit_spec(spec, key=key)
    except KeyboardInterrupt:
        client.withdraw(spec, key)
        raise
    return watch(client, job, viewer, beside, is_new=True)


def watch(client: Client, job: Job, viewer: Viewer, beside: Beside | None = None, *, is_new: bool = False) -> Outcome:
    """Show a job to its end; an interrupt cancels it, a second one stops watching."""
    frames: Follow | Pump | None = None
    try:
        # An interrupt may come before anything is shown: the job is there already, and must not go on unseen.
        if is_new:
            viewer.submitted(job)
        frames = frames_for(job, viewer)
        if beside is not None:
            beside.begin(job)
        return Outcome(job=show(frames, viewer))
    except KeyboardInterrupt:
        if beside is not None:
            beside.end()
            if beside.detached:
                return Outcome(job=job.info, detached=True)
        viewer.interrupted(job)
        frames = frames or frames_for(job, viewer)
        return Outcome(job=cancel_and_see(client, job, frames, viewer), interrupted=True)
    except BrokenPipeError:  # nobody reads any more
        job.cancel()
        raise
    finally:
        if beside is not None:
            beside.end()
        if frames is not None:
            frames.close()


def attach(job: Job, viewer: Viewer, beside: Beside, rank: int | None = None) -> Outcome:
    """Show a job that was submitted before, from its first byte to its end; an interrupt leaves it, and it goes on."""
    frames = frames_for(job, viewer, rank)
    try:
        beside.begin(job)
        return Outcome(job=show(frames, viewer))
    except KeyboardInterrupt:
        beside.end()
        return Outcome(job=job.info, detached=True)
    finally:
        beside.end()
        frames.close()


def frames_for(job: Job, viewer: Viewer, rank: int | None = None) -> Follow | Pump:
    """Return the frames of a job, at the pace that a ticking viewer wants."""
    frames = job.follow(rank=rank)
    pace_s: float = getattr(viewer, "pace_s", 0.0)
    return Pump(frames, pace_s) if pace_s else frames


def show(frames: Iterable[models.JobStreamFrame | None], viewer: Viewer) -> models.Job:
    """Show all frames and return the job as it ended."""
    tick = getattr(viewer, "tick", None)
    keyed = getattr(viewer, "keyed", None)
    for frame in frames:
        match frame:
            case None:
                if tick is not None:
                    tick()
            case models.OutputFrame():
                viewer.output(frame)
            case models.JobFrame():
                if keyed is not None:
                    keyed(frame.display_key)
                viewer.changed(frame.job)
            case models.GapFrame():
                viewer.gap(frame)
            case models.EndFrame():
                viewer.changed(frame.job)
                return frame.job
            case models.PingFrame():
                pass
    raise AssertionError("a stream ends with its end frame")


def cancel_and_see(client: Client, job: Job, frames: Follow | Pump, viewer: Viewer) -> models.Job:
    """Cancel the job and show the rest, as long as a kill may take."""
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
