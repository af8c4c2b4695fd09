"""`mgpu_flush`: cancels everything that runs or waits, as the earlier tool did; who is no administrator, everything of their own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.cli.where import add_place, point_at
from mgpu_jupyter.client.choice import cancel
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Cancel everything that runs or waits; who is no administrator, everything of their own."
    result = Parser(prog, f"{prog} [--json]", about, examples=[prog])
    result.add_argument("--json", action="store_true", help="print one JSON document")
    add_place(result)
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Cancel all; return 1 if one could not be cancelled."""
    point_at(values.host, values.port)
    with make_client() as client:
        me = client.cluster()
        ids = [job.id for job in client.jobs(state="active", user=None if me.admin else me.user)]
        results = [(job_id, *cancel(client, job_id)) for job_id in ids]
    # What ended by itself meanwhile is as gone as what was cancelled.
    failed = [text for _, done, text in results if not done and "ended already" not in text]
    if values.json:
        document({"flushed": len(ids) - len(failed), "job_ids": ids})
    else:
        tell(f"Flushed {len(ids) - len(failed)} jobs")
        for text in failed:
            tell(text, file=sys.stderr)
    return 1 if failed else 0
