"""`mgpu_cancel`: cancels jobs by id, or all of one's own, by user or by name."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.cli.where import add_place, point_at
from mgpu_jupyter.client.choice import cancel, cancel_parser, chosen
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = cancel_parser(prog)
    result.add_argument("--json", action="store_true", help="print one JSON document")
    add_place(result)
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Cancel what is named; return 1 if one could not be cancelled."""
    if not (values.jobs or values.all or values.user or values.name):
        tell("Usage: mgpu_cancel <job_id>, or one of --all, -u USER and --name NAME", file=sys.stderr)
        return 1
    point_at(values.host, values.port)
    with make_client() as client:
        ids = chosen(client, values)
        if not ids and not values.json:
            tell("No job to cancel: nothing that runs or waits matches.", file=sys.stderr)
        results = [(job_id, *cancel(client, job_id)) for job_id in ids]
    if values.json:
        document({"jobs": [{"job_id": job_id, "done": done, "message": text} for job_id, done, text in results]})
    else:
        for _, _, text in results:
            tell(text)
    return 0 if all(done for _, done, _ in results) else 1
