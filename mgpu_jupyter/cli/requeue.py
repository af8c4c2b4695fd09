"""`mgpu requeue`: ends what runs of jobs and lets them wait again."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_jupyter.cli.orders import give_all, orders_parser
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    return orders_parser(prog, "End what runs of jobs; they wait again in their old place.")


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Give the order for each job; return 1 if one was refused."""
    with make_client() as client:
        return give_all(client, values, Job.requeue, "queued again")
