"""Runs a job for a watching user: submits it, shows what comes, and on an interrupt cancels it and shows its
end.

Owns the order of steps; the viewer decides how they look.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Protocol

import msgspec

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import EndFrame, GapFrame, JobFrame, JobStreamFrame, OutputFrame, PingFrame
from mgpu_jupyter.client.client import Client, new_key
from mgpu_jupyter.client.follow import Follow, Pump
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.model.job import JobSpec


class Viewer:
    """Shows a running job to a user. This one shows nothing: subclasses override what they show."""

    pace_s = 0.0
    """The longest time without a `tick`; 0 for no ticks."""

    def submitted(self, job: Job) -> None:
        """Note that the job is saved."""

    def changed(self, job: models.Job) -> None:
        """Show the job's new state."""

    def output(self, frame: OutputFrame) -> None:
        """Show output of a rank."""

    def gap(self, frame: GapFrame) -> None:
        """Show that output is missing."""

    def interrupted(self, job: Job) -> None:
        """Show that the job is being cancelled."""

    def tick(self) -> None:
        """Update the display, because nothing came for a while."""

    def keyed(self, key: str) -> None:
        """Take the key of this job's displays; empty when it is another's, or displays nothing."""


class Beside(Protocol):
    """What is sent to the job while it is watched."""

    def has_left(self) -> bool:
        """Tell, after an interrupt, whether the user left a job that goes on; may take a moment."""

    def begin(self, job: Job) -> None:
        """Start with a job that is saved."""

    def end(self) -> None:
        """Stop; always called, and before anything else is shown."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The result for the watching user."""

    job: models.Job
    interrupted: bool = False
    detached: bool = False
    """Whether the user left a job that goes on."""


def run(client: Client, spec: JobSpec, viewer: Viewer, beside: Beside | None = None) -> Outcome:
    """Submit `spec` and show it to its end; an interrupt cancels it, a second one stops watching."""
    key = new_key()
    try:
        job = client.submit_spec(spec, key=key)
    except KeyboardInterrupt:
        client.withdraw(spec, key)
        raise
    return watch(client, job, viewer, beside, is_new=True)


def watch(
    client: Client, job: Job, viewer: Viewer, beside: Beside | None = None, *, is_new: bool = False
) -> Outcome:
    """Show a job to its end; an interrupt cancels it, a second one stops watching."""
    frames: Follow | Pump[JobStreamFrame] | None = None
    try:
        # An interrupt may come before anything is shown: the job exists already, and must not go on unseen.
        if is_new:
            viewer.submitted(job)
        frames = frames_for(job, viewer)
        if beside is not None:
            beside.begin(job)
        return Outcome(job=show(frames, viewer))
    except KeyboardInterrupt:
        if beside is not None:
            beside.end()
            if beside.has_left():
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
    """Show a job that was submitted before, from its first byte; an interrupt leaves it running."""
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


def frames_for(job: Job, viewer: Viewer, rank: int | None = None) -> Follow | Pump[JobStreamFrame]:
    """Return the frames of a job, at the pace that a ticking viewer needs."""
    frames = job.follow(rank=rank)
    return Pump(frames, viewer.pace_s) if viewer.pace_s else frames


def show(frames: Iterable[JobStreamFrame | None], viewer: Viewer) -> models.Job:
    """Show all frames and return the ended job."""
    for frame in frames:
        match frame:
            case None:
                viewer.tick()
            case OutputFrame():
                viewer.output(frame)
            case JobFrame():
                viewer.keyed(frame.display_key)
                viewer.changed(frame.job)
            case GapFrame():
                viewer.gap(frame)
            case EndFrame():
                viewer.changed(frame.job)
                return frame.job
            case PingFrame():
                pass
    raise AssertionError("a stream ends with its end frame")


def cancel_and_see(
    client: Client, job: Job, frames: Follow | Pump[JobStreamFrame], viewer: Viewer
) -> models.Job:
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
