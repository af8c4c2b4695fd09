"""`mgpu_srun`: runs a job in the foreground. stdout and stderr are the job's own; notes go to stderr."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import json_text, printable, tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.command import Command, MakeClient, point_at, wipe_from_ps
from mgpu_jupyter.cli.console import ShellConsole, ShellViewer, note, report, say_how_to_leave
from mgpu_jupyter.cli.show import document, show_help
from mgpu_jupyter.client import watch, words
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.keyboard import terminal_size
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.reasons import WOULD_WAIT_EXIT, as_lines
from mgpu_jupyter.client.request import parse, srun_parser
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.launchers import tasks_of

RESULTS_S = 10.0
TERMINAL_VARIABLES = ("TERM", "COLORTERM")


def parser(prog: str) -> Parser:
    """Return the flags."""
    return srun_parser(prog)


def main(argv: Sequence[str], make_client: MakeClient) -> int:
    """Run one job; return its exit code."""
    request = parse(argv, environ=os.environ)
    if isinstance(request, Help):
        return show_help(request.text)
    point_at(request.master_host, request.master_port, prefix="--master-")
    wipe_from_ps(f"{name}={value}" for name, value in request.spec.env.items())
    with make_client() as client:
        client.caller.on_trouble = note
        if request.dry_run:
            return _dry_run(client.dry_run_spec(request.spec), as_json=request.json)
        if request.background:
            return _submit_only(client.submit_spec(request.spec), request.spec.priority, as_json=request.json)
        spec = for_terminal(request.spec, os.environ)
        console = ShellConsole(pty=spec.pty)
        viewer = ShellViewer(spec.priority, ranks=tasks_of(spec), console=console, label=request.label)
        if spec.pty:
            say_how_to_leave()
        outcome = watch.run(client, spec, viewer, console)
        viewer.close()
        status = report(outcome)
        if os.isatty(2) and not spec.pty and outcome.job.state.is_final:
            note(summary_line(client, outcome.job, has_results=bool(spec.results)))
        return status


def summary_line(client: Client, job: models.Job, *, has_results: bool) -> str:
    """Return a summary for a person at a terminal: state, time, and the files that the job left."""
    text = f"mgpu {job.id}: {words.ending(job)}"
    if has_results:
        try:
            files = client.job(job.id).wait_for_results(RESULTS_S).files
        except (MgpuError, TimeoutError):
            return f"{text} · results: mgpu results {job.id}"
        text += f" · {len(files)} result{'' if len(files) == 1 else 's'}: mgpu results {job.id}"
    return printable(text)


def for_terminal(spec: JobSpec, environ: Mapping[str, str]) -> JobSpec:
    """Return the request of a watching user: with their stdin, and with `--pty` a terminal like theirs."""
    if not spec.pty:
        return replace(spec, stdin=True)
    env = {name: environ[name] for name in TERMINAL_VARIABLES if environ.get(name)} | spec.env
    return replace(spec, stdin=True, env=env, terminal=terminal_size() or spec.terminal)


def _dry_run(told: explanations.Explanation, *, as_json: bool) -> int:
    tell(*([json_text(told)] if as_json else as_lines(told, time.time())))
    return 0 if told.verdict == "now" else WOULD_WAIT_EXIT


def _submit_only(job: Job, priority: int, *, as_json: bool) -> int:
    if isinstance(job, JobArray):
        return _submit_array(job, priority, as_json=as_json)
    if as_json:
        try:
            state = job.state
        except MgpuError:  # it is saved anyway
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


COMMANDS = {"srun": Command(parser, main=main)}
