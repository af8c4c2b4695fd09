"""`mgpu summary`: a job on one page."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.summary import as_lines


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Say what a job asked for, had and used: times, nodes, GPUs, exit codes, memory and load."
    result = Parser(prog, f"{prog} JOB [--json]", about, examples=[f"{prog} R4T8W2ZB"])
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Sum one job up."""
    if not values.job:
        raise InvalidRequest("usage", "Name the job, as in `mgpu summary R4T8W2ZB`.")
    with make_client() as client:
        told = client.job(values.job).summary()
    if values.json:
        document(told)
    else:
        tell(*as_lines(told))
    return 0
