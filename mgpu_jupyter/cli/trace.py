"""`mgpu trace` and `debug_job_tracking`: where a job ran and when, and whether that is what was assigned."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.trace_lines import MISMATCH, as_lines

ALWAYS_VERIFIES = "debug_job_tracking"
MISMATCH_EXIT = 1


def parser(prog: str) -> Parser:
    """Return the flags; the program of the earlier tools always verifies."""
    about = "Show the whole way of a job: when, where, by which process, and what it waited for."
    result = Parser(prog, f"{prog} JOB [--verify] [--json]", about, examples=[f"{prog} R4T8W2ZB", f"{prog} --verify R4T8W2ZB"])
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument(
        "--verify",
        action="store_true",
        default=prog == ALWAYS_VERIFIES,
        help="compare what was assigned with what is there now; exit 1 if it differs",
    )
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Show the way of one job; verified, exit 1 on a mismatch."""
    if not values.job:
        raise InvalidRequest("usage", "Name the job, as in `mgpu trace R4T8W2ZB`.")
    with make_client() as client:
        told = client.trace(values.job, verify=values.verify)
    if values.json:
        document(told)
    else:
        tell(*as_lines(told))
    if told.ok:
        return 0
    wrong = len(told.mismatches) + sum(not check.ok for check in told.checks)
    tell(f"{MISMATCH}: job {told.job_id} ran otherwise than was assigned, in {wrong} ways; see above.", file=sys.stderr)
    return MISMATCH_EXIT if values.verify else 0
