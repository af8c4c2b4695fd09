"""`mgpu explain`: why a job waits, what would start it now, and what it was told before."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.reasons import as_lines


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Explain one job."""
    parser = Parser("mgpu explain", "mgpu explain JOB [--json]", "Say why a job waits, and what would start it now.")
    parser.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    values = parser.read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    if not values.job:
        raise InvalidRequest("usage", "Name the job, as in `mgpu explain R4T8W2ZB`.")
    with make_client() as client:
        told = client.explain(values.job)
    print(msgspec.json.encode(told).decode() if values.json else "\n".join(as_lines(told, time.time())))
    return 0
