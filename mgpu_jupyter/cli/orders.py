"""`mgpu hold`, `release`, `requeue` and `update`: what is to become of jobs or arrays that are there, one line for each."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.choice import order
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Parser

Order = Callable[[Job], models.OrderAnswer]


class OrderCommand(NamedTuple):
    """A command that gives each job that is named the same order."""

    what: str
    done: str
    """What became of a job that took it."""
    order_of: Callable[[argparse.Namespace], Order]
    usage: str = ""
    example: str = ""
    add_flags: Callable[[Parser], None] = lambda _: None

    def parser(self, prog: str) -> Parser:
        """Return the flags."""
        examples = [f"{prog} R4T8W2ZB{self.example}", f"{prog} R4T8W2ZB K2M9QX4D{self.example}"]
        parser = Parser(prog, f"{prog} JOB…{self.usage} [--json]", self.what, examples=examples)
        parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs, or of arrays")
        parser.add_argument("--json", action="store_true", help="print one JSON document")
        self.add_flags(parser)
        return parser

    def run(self, values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
        """Give the order for each id; return 1 if one was refused."""
        give = self.order_of(values)
        with make_client() as client:
            results = [(job_id.upper(), *order(client, job_id.upper(), give, self.done)) for job_id in values.jobs]
        if values.json:
            document({"jobs": [{"job_id": job_id, "done": taken, "message": text} for job_id, taken, text in results]})
        else:
            for _, taken, text in results:
                tell(text, file=sys.stdout if taken else sys.stderr)
        return 0 if all(taken for _, taken, _ in results) else 1


def _update_flags(parser: Parser) -> None:
    parser.add_argument("--priority", type=kinds.priority, metavar="N", help="while it waits; higher goes first")
    parser.add_argument("--time", "-t", type=kinds.slurm_time, metavar="HH:MM:SS", help="time limit; also D-HH:MM:SS, MM:SS or minutes")
    parser.add_argument("--time-limit", type=kinds.seconds, metavar="S", help="time limit in seconds")


def _update(values: argparse.Namespace) -> Order:
    limit = values.time if values.time_limit is None else values.time_limit
    if values.priority is None and limit is None:
        raise InvalidRequest("nothing-to-change", "Say what is to change: --priority N or --time HH:MM:SS.")
    return lambda job: job.update(priority=values.priority, time_limit=limit)


COMMANDS = {
    "hold": OrderCommand("Keep waiting jobs from starting until they are released.", "held", lambda _: Job.hold),
    "release": OrderCommand("Let held jobs start.", "released", lambda _: Job.release),
    "requeue": OrderCommand("End what runs of jobs; they wait again in their old place.", "queued again", lambda _: Job.requeue),
    "update": OrderCommand(
        "Give jobs another priority or time limit.",
        "changed",
        _update,
        usage=" [--priority N] [--time HH:MM:SS]",
        example=" --priority 10",
        add_flags=_update_flags,
    ),
}
