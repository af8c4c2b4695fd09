"""What `mgpu hold`, `release`, `requeue` and `update` have in common: ids of jobs or arrays, one line for each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from mgpu_agent.protocol.text import tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.choice import order
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Parser

Order = Callable[[Job], models.OrderAnswer]


def orders_parser(prog: str, what: str, flags: str = "", example: str = "") -> Parser:
    """Return a parser for ids and nothing else; a command adds its own flags."""
    examples = [f"{prog} R4T8W2ZB{example}", f"{prog} R4T8W2ZB K2M9QX4D{example}"]
    parser = Parser(prog, f"{prog} JOB…{flags} [--json]", what, examples=examples)
    parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs, or of arrays")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    return parser


def give_all(client: Client, values: argparse.Namespace, give: Order, done: str) -> int:
    """Give the order for each id; return 1 if one was refused."""
    results = [(job_id.upper(), *order(client, job_id.upper(), give, done)) for job_id in values.jobs]
    if values.json:
        document({"jobs": [{"job_id": job_id, "done": taken, "message": text} for job_id, taken, text in results]})
    else:
        for _, taken, text in results:
            tell(text, file=sys.stdout if taken else sys.stderr)
    return 0 if all(taken for _, taken, _ in results) else 1
