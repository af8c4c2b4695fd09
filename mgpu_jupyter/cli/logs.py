"""`mgpu logs`: what a job printed, so far or as it comes. Both of its streams go to stdout, as they stand in the record."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli.srun import ShellViewer
from mgpu_jupyter.client import watch
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import rank_count
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    examples = [f"{prog} R4T8W2ZB", f"{prog} R4T8W2ZB --rank 1 -f"]
    result = Parser(prog, f"{prog} JOB [--rank R] [-f]", "Show what a job printed.", examples=examples)
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument("--rank", metavar="R", help="only this rank")
    result.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Show the output of one job."""
    if not values.job:
        raise InvalidRequest("usage", "Name the job, as in `mgpu logs R4T8W2ZB`.")
    if values.rank is not None and not values.rank.isdecimal():
        raise InvalidRequest("bad-number", f"--rank {values.rank}: write a whole number.")
    rank = None if values.rank is None else int(values.rank)
    with make_client() as client:
        job = client.job(values.job)
        ranks = 1 if rank is not None else rank_count(job.info)
        if values.follow:
            viewer = ShellViewer(0, ranks, err=sys.stdout.buffer)
            with job.follow(rank=rank) as frames:
                watch.show(frames, viewer)
            viewer.close()
        elif ranks > 1:
            sys.stdout.write(job.output())
        else:
            sys.stdout.buffer.write(job.output_bytes(rank or 0))
            sys.stdout.buffer.flush()
    return 0
