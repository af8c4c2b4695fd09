"""`mgpu_srun`: runs a job in front of the shell. stdout and stderr are the job's own; notes go to stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import BinaryIO

from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import json_text, printable, tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.console import Console, say_how_to_leave
from mgpu_jupyter.cli.notes import note
from mgpu_jupyter.cli.show import document, show_help
from mgpu_jupyter.cli.where import point_at
from mgpu_jupyter.cli.wipe import wipe_from_ps
from mgpu_jupyter.client import watch, words
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.displays import Stripper
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.keyboard import terminal_size
from mgpu_jupyter.client.lines import Decoder, Labeller
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.reasons import WOULD_WAIT_EXIT, as_lines
from mgpu_jupyter.client.request import parse, srun_parser
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.tasks import tasks_of

INTERRUPT_EXIT = 130  # 128 + SIGINT
RESULTS_S = 10.0
TERMINAL_VARIABLES = ("TERM", "COLORTERM")


def parser(prog: str) -> Parser:
    """Return the flags."""
    return srun_parser(prog)


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Run one job; return its exit code."""
    request = parse(argv, environ=os.environ)
    if isinstance(request, Help):
        return show_help(request.text)
    point_at(request.master_host, request.master_port)
    wipe_from_ps(f"{name}={value}" for name, value in request.spec.env.items())
    with make_client() as client:
        client.caller.on_trouble = note
        if request.dry_run:
            return _dry_run(client.dry_run_spec(request.spec), as_json=request.json)
        if request.background:
            return _submit_only(client.submit_spec(request.spec), request.spec.priority, as_json=request.json)
        spec = for_terminal(request.spec, os.environ)
        console = Console(pty=spec.pty)
        viewer = ShellViewer(spec.priority, ranks=tasks_of(spec), console=console)
        if spec.pty:
            say_how_to_leave()
        outcome = watch.run(client, spec, viewer, console)
        viewer.close()
        status = report(outcome)
        if os.isatty(2) and not spec.pty and outcome.job.state.is_final:
            note(summary_line(client, outcome.job, has_results=bool(spec.results)))
        return status


def summary_line(client: Client, job: models.Job, *, has_results: bool) -> str:
    """Return how a job went, for a person at a terminal: state, time, and the files that it left."""
    text = f"mgpu {job.id}: {words.ending(job)}"
    if has_results:
        try:
            files = client.job(job.id).wait_for_results(RESULTS_S).files
        except (MgpuError, TimeoutError):
            return f"{text} · results: mgpu results {job.id}"
        text += f" · {len(files)} result{'' if len(files) == 1 else 's'}: mgpu results {job.id}"
    return printable(text)


def for_terminal(spec: JobSpec, environ: Mapping[str, str]) -> JobSpec:
    """Return the request of somebody who watches: its stdin is theirs, and with `--pty` its terminal is like theirs."""
    if not spec.pty:
        return replace(spec, stdin=True)
    env = {name: environ[name] for name in TERMINAL_VARIABLES if environ.get(name)} | spec.env
    return replace(spec, stdin=True, env=env, terminal=terminal_size() or spec.terminal)


class ShellViewer:
    """Writes bytes as they come; lines of several ranks carry their rank."""

    def __init__(self, priority: int, ranks: int, err: BinaryIO | None = None, console: Console | None = None) -> None:
        self._console = console
        self._priority = priority
        self._out = sys.stdout.buffer
        self._err = err or sys.stderr.buffer
        self._labels = Labeller("{}: ") if ranks > 1 else None
        self._decoder = Decoder()
        self._sources: dict[tuple[int, str], Stripper] = {}
        self._said = ""
        self._waited = False
        self._attempt = 0
        self._notes: set[str] = set()

    def submitted(self, job: Job) -> None:
        """Print the line that scripts look for."""
        note(f"Job submitted. ID: {job.id} (priority={self._priority})")

    def changed(self, job: models.Job) -> None:
        """Print why it waits, when that changes, and what the nodes have to say."""
        if self._console is not None:
            self._console.changed(job)
        if job.state is JobState.QUEUED:
            if not self._waited:
                self._waited = True
                note("Waiting for job to start...")
            if job.reason and job.reason != self._said:
                self._said = job.reason
                note(words.waiting(job))
        if job.attempt > self._attempt > 0:
            note(f"mgpu {job.id} runs again (attempt {job.attempt}).")
        self._attempt = max(self._attempt, job.attempt)
        told = [f"{placement.node}: {placement.note}" for placement in job.placements if placement.note]
        for text in (f"mgpu {one}" for one in (*told, *job.warnings)):
            if text not in self._notes:
                self._notes.add(text)
                note(text)

    def output(self, frame: models.OutputFrame) -> None:
        """Write what a rank printed."""
        source = (frame.rank, frame.stream)
        data = self._sources.setdefault(source, Stripper()).feed(frame.data)
        if self._labels is None:
            self._write(frame.stream, data)
            return
        self._write(frame.stream, self._labels.feed(frame.rank, self._decoder.feed(source, data), frame.stream).encode())

    def gap(self, frame: models.GapFrame) -> None:
        """Say that output is missing."""
        note(f"mgpu rank {frame.rank}: {frame.message}")

    def interrupted(self, job: Job) -> None:  # noqa: ARG002 - the line names no job
        """Print the line that scripts look for."""
        note("User interrupted. Canceling job...")

    def close(self) -> None:
        """Write what is still held."""
        for (rank, stream), stripper in self._sources.items():
            data = stripper.flush()
            if self._labels is None:
                self._write(stream, data)
                continue
            text = self._decoder.feed((rank, stream), data) + self._decoder.flush((rank, stream))
            self._write(stream, (self._labels.feed(rank, text, stream) + self._labels.flush(rank, stream)).encode())

    def _write(self, stream: str, data: bytes) -> None:
        target = self._err if stream == "stderr" else self._out
        if data:
            target.write(data)
            target.flush()


def _dry_run(told: explanations.Explanation, *, as_json: bool) -> int:
    tell(*([json_text(told)] if as_json else as_lines(told, time.time())))
    return 0 if told.verdict == "now" else WOULD_WAIT_EXIT


def _submit_only(job: Job, priority: int, *, as_json: bool) -> int:
    if isinstance(job, JobArray):
        return _submit_array(job, priority, as_json=as_json)
    if as_json:
        try:
            state = job.state
        except MgpuError:  # it is saved all the same
            state = JobState.QUEUED
        document({"job_id": job.id, "state": state})
        return 0
    tell(f"Job submitted. ID: {job.id} (priority={priority})")
    tell("Job queued. Use mgpu_queue to check status.")
    return 0


def _submit_array(array: JobArray, priority: int, *, as_json: bool) -> int:
    if as_json:
        ids = [job.id for job in array.jobs]
        document({"job_id": ids[0], "state": JobState.QUEUED, "array_id": array.id, "job_ids": ids})
        return 0
    tell(f"Job submitted. ID: {array.id} (array of {len(array.jobs)} jobs, priority={priority})")
    tell("Jobs queued. Use mgpu_queue to check status.")
    return 0


def report(outcome: watch.Outcome) -> int:
    """Say how a job ended; return the exit code for the shell."""
    job = outcome.job
    if outcome.detached:
        note(f"mgpu {job.id} goes on: come back with `mgpu attach {job.id}`.")
        return 0
    if outcome.interrupted:
        if not job.state.is_final:
            note(f"Job {job.id} is still stopping: see mgpu_queue.")
        elif job.state is JobState.CANCELLED:
            note(f"Job {job.id} canceled successfully.")
        else:
            note(f"Job {job.id} had ended already ({job.state}).")
        return INTERRUPT_EXIT
    status = words.exit_status(job)
    if job.state is JobState.FAILED and job.reason:
        note(f"mgpu {job.id}: {printable(job.reason)}")
        if job.failure is not None and len(job.placements) > 1 and job.failure.last_lines:
            note(f"The last lines of rank {job.failure.rank}:")
            for line in job.failure.last_lines:
                note(f"    {printable(line)}")
    if job.state is JobState.COMPLETED or (job.state is JobState.FAILED and job.exit_code is not None):
        note(f"Job {job.id} completed with exit code {status}")
    else:
        note(f"Job {job.id}: {words.ending(job)}.")
    return status
