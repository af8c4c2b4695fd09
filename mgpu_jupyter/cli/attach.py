"""`mgpu attach`: a job in front of the shell again, its terminal included: its output from the start, then live. Leaving lets it go on."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli.console import Console, say_how_to_leave
from mgpu_jupyter.cli.notes import note
from mgpu_jupyter.cli.srun import INTERRUPT_EXIT, ShellViewer, report
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client import watch
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import rank_count
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Show a job's output from its start and go on live; what is typed goes to it. Ctrl-C (in a terminal: Enter ~ .) lets go of it."
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
        info = job.info
        console = Console(pty=info.pty, only_typed=True)
        ranks = 1 if values.rank is not None else max(rank_count(info), info.nodes_wanted)
        viewer = ShellViewer(info.priority, ranks=ranks, console=console)
        if info.pty and not info.state.is_final:
            say_how_to_leave()
        outcome = watch.attach(job, viewer, console, values.rank)
        viewer.close()
        if outcome.detached and not console.detached:
            note(f"Job {job.id} goes on: `mgpu attach {job.id}` shows it again, `mgpu_cancel {job.id}` ends it.")
            return INTERRUPT_EXIT
        return report(outcome)
