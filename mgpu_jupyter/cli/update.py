"""`mgpu update`: gives jobs another priority or time limit."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.cli.orders import give_all, orders_parser
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    flags = " [--priority N] [--time HH:MM:SS]"
    result = orders_parser(prog, "Give jobs another priority or time limit.", flags, " --priority 10")
    result.add_argument("--priority", type=kinds.priority, metavar="N", help="while it waits; higher goes first")
    result.add_argument("--time", "-t", type=kinds.slurm_time, metavar="HH:MM:SS", help="time limit; also D-HH:MM:SS, MM:SS or minutes")
    result.add_argument("--time-limit", type=kinds.seconds, metavar="S", help="time limit in seconds")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Change each job; return 1 if one was refused."""
    limit = values.time if values.time_limit is None else values.time_limit
    if values.priority is None and limit is None:
        raise InvalidRequest("nothing-to-change", "Say what is to change: --priority N or --time HH:MM:SS.")
    with make_client() as client:
        return give_all(client, values, lambda job: job.update(priority=values.priority, time_limit=limit), "changed")
