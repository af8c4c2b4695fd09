"""`mgpu release`: lets held jobs start."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mgpu_jupyter.cli.orders import orders_parser, run_plain
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Give the order for each job; return 1 if one was refused."""
    parser = orders_parser("release", "Let held jobs start.")
    return run_plain(parser, argv, make_client, Job.release, "released")
