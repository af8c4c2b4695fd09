"""What `mgpu hold`, `release`, `requeue` and `update` have in common: ids of jobs or arrays, one line for each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from mgpu_jupyter.api import models
from mgpu_jupyter.client.choice import order
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.job import Job

Order = Callable[[Job], models.OrderAnswer]


def orders_parser(name: str, what: str, flags: str = "") -> Parser:
    """Return a parser for ids and nothing else; a command adds its own flags."""
    parser = Parser(f"mgpu {name}", f"mgpu {name} JOB…{flags}", what)
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs, or of arrays")
    return parser


def give_all(client: Client, job_ids: Sequence[str], give: Order, done: str) -> int:
    """Give the order for each id; return 1 if one was refused."""
    results = [order(client, job_id.upper(), give, done) for job_id in job_ids]
    for taken, text in results:
        print(text, file=sys.stdout if taken else sys.stderr)
    return 0 if all(taken for taken, _ in results) else 1


def run_plain(parser: Parser, argv: Sequence[str], make_client: Callable[[], Client], give: Order, done: str) -> int:
    """Run a command that has no flags of its own."""
    values = parser.read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    with make_client() as client:
        return give_all(client, values.jobs, give, done)
