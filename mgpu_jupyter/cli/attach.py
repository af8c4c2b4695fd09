"""`mgpu attach`: a job in front of the shell again: its output from the start, then live. Ctrl-C lets go of it, the job goes on."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli.srun import ShellViewer, note, report
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client import watch
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import rank_count
from mgpu_jupyter.client.parser import Parser

INTERRUPT_EXIT = 130  # 128 + SIGINT


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Show a job's output from its start and go on live; exits as the job does. Ctrl-C lets go of it, the job goes on."
    result = Parser(prog, f"{prog} JOB [--rank R]", about, examples=[f"{prog} R4T8W2ZB"])
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument("--rank", type=kinds.count("--rank"), metavar="R", help="only this rank")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Show the job to its end; return its exit code."""
    if not values.job:
        raise InvalidRequest("usage", "Name the job, as in `mgpu attach R4T8W2ZB`.")
    with make_client() as client:
        client.caller.on_trouble = note
        job = client.job(values.job)
        viewer = ShellViewer(job.info.priority, ranks=1 if values.rank is not None else max(rank_count(job.info), job.info.nodes_wanted))
        with job.follow(rank=values.rank) as frames:
            try:
                ended = watch.show(frames, viewer)
            except KeyboardInterrupt:
                note(f"Job {job.id} goes on: `mgpu attach {job.id}` shows it again, `mgpu_cancel {job.id}` ends it.")
                return INTERRUPT_EXIT
        viewer.close()
        return report(watch.Outcome(job=ended))
