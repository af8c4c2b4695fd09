"""`mgpu_queue`: jobs and nodes, with the headings and lines that scripts written for the earlier tool look for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import models
from mgpu_jupyter.client.choice import add_selection
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.reasons import starts_of

JSON_FIELDS = (
    *("id", "state", "user", "name", "command", "nodes", "gpus", "exit_code", "attempt"),
    *("submitted_at", "started_at", "ended_at", "reason", "expected_start_at"),
)
WATCH_S = 2.0
CLEAR = "\x1b[H\x1b[2J"


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Show the queue once, or again and again."""
    values = parser("mgpu_queue").read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    if values.json and values.watch:
        raise InvalidRequest("contradiction", "--json and --watch exclude each other: leave one out.")
    with make_client() as client:
        while True:
            jobs = [job.snapshot for job in client.jobs(state=None if values.all else "active", user=values.user) if job.snapshot]
            if values.json:
                print(as_json(jobs))
                return 0
            starts = starts_of(client, jobs, time.time()) if values.start else {}
            text = as_text(jobs, client.nodes(), starts)
            print((CLEAR if values.watch and sys.stdout.isatty() else "") + text, flush=True)
            if not values.watch:
                return 0
            time.sleep(WATCH_S)


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(prog, f"{prog} [--all] [-u USER] [--start] [--json | --watch]", "Show running and waiting jobs, and the nodes.")
    add_selection(result)
    result.add_argument("--start", action="store_true", help="say when waiting jobs are expected to start")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    result.add_argument("--watch", action="store_true", help=f"show it again every {WATCH_S:.0f} s until Ctrl-C")
    return result


def as_json(jobs: Sequence[models.Job]) -> str:
    """Return the document of `--json`."""
    documents = []
    for job in jobs:
        fields = JSON_FIELDS if job.array_id is None else (*JSON_FIELDS, "array_id", "array_index")
        documents.append({field: getattr(job, field) for field in fields})
    return msgspec.json.encode({"jobs": documents}).decode()
