"""`mgpu_queue`: jobs and nodes. Pipes get the headings and lines of the earlier tool, terminals the same headings above tables."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import json_text, printable, tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.show import clear, columns, on_terminal
from mgpu_jupyter.cli.where import add_place, point_at
from mgpu_jupyter.client.choice import add_selection
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.reasons import starts_of

JSON_FIELDS = (
    *("id", "state", "user", "name", "command", "nodes", "gpus", "exit_code", "attempt"),
    *("submitted_at", "started_at", "ended_at", "reason", "expected_start_at"),
)
FORMAT_FIELDS = (*JSON_FIELDS, "priority", "place", "partition", "account", "qos", "array_id", "array_index", "time_limit_s")
WATCH_S = 2.0


def parser(prog: str) -> Parser:
    """Return the flags."""
    examples = [
        f"{prog} --start",
        f"{prog} --all --json",
        f"{prog} -u ann --format id,state,gpus,reason",
        f'{prog} --format "{{id}} {{nodes}}"',
    ]
    usage = f"{prog} [--all] [-u USER] [--start] [--json | --format FIELDS] [--watch]"
    result = Parser(prog, usage, "Show running and waiting jobs, and the nodes.", examples=examples)
    add_selection(result)
    result.add_argument("--start", action="store_true", help="say when waiting jobs are expected to start")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    result.add_argument("--format", metavar="FIELDS", help=f"only these columns, or a pattern with {{field}}: {', '.join(FORMAT_FIELDS)}")
    result.add_argument("--watch", action="store_true", help=f"show it again every {WATCH_S:.0f} s until Ctrl-C")
    add_place(result)
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Show the queue once, or again and again."""
    for other, given in (("--watch", values.watch), ("--format", values.format is not None)):
        if values.json and given:
            raise InvalidRequest("contradiction", f"--json and {other} exclude each other: leave one out.")
    rows = None if values.format is None else rows_of(values.format)
    point_at(values.host, values.port)
    with make_client() as client:
        while True:
            jobs = [job.snapshot for job in client.jobs(state=None if values.all else "active", user=values.user) if job.snapshot]
            if values.json:
                tell(as_json(jobs))
                return 0
            if values.watch:
                clear()
            if rows is not None:
                tell(*rows(jobs).split("\n"), flush=True)
            else:
                _show(jobs, client.nodes(), starts_of(client, jobs, time.time()) if values.start else {})
            if not values.watch:
                return 0
            time.sleep(WATCH_S)


def _show(jobs: Sequence[models.Job], nodes: Sequence[models.Node], starts: Mapping[str, str]) -> None:
    if on_terminal():
        from mgpu_jupyter.cli.tables import show_queue

        show_queue(jobs, nodes, starts)
    else:
        tell(*as_text(jobs, nodes, starts).split("\n"), flush=True)


def as_json(jobs: Sequence[models.Job]) -> str:
    """Return the document of `--json`."""
    documents = []
    for job in jobs:
        fields = JSON_FIELDS if job.array_id is None else (*JSON_FIELDS, "array_id", "array_index")
        documents.append({field: getattr(job, field) for field in fields})
    return json_text({"jobs": documents})


def rows_of(pattern: str) -> Callable[[Sequence[models.Job]], str]:
    """Return what makes lines of jobs: columns for `id,state`, the filled pattern for `{id} {state}`."""
    if "{" in pattern:
        fields, filled = _fields_in(pattern), True
    else:
        fields, filled = [name.strip() for name in pattern.split(",") if name.strip()], False
    unknown = [name for name in fields if name not in FORMAT_FIELDS]
    if unknown or not fields:
        what = f"there is no field {unknown[0]}" if unknown else "it names no field"
        raise InvalidRequest("bad-format", f"--format {pattern}: {what}; the fields are {', '.join(FORMAT_FIELDS)}.")

    def lines(jobs: Sequence[models.Job]) -> str:
        cells = [[_cell(getattr(job, name)) for name in fields] for job in jobs]
        if filled:
            return "\n".join(pattern.format(**dict(zip(fields, row, strict=True))) for row in cells)
        return columns([[name.upper() for name in fields], *cells])

    return lines


def _fields_in(pattern: str) -> list[str]:
    from string import Formatter

    try:
        parsed = list(Formatter().parse(pattern))
    except ValueError as error:
        raise InvalidRequest("bad-format", f"--format {pattern}: {error}; write it like {{id}} {{state}}.") from None
    if any(spec or conversion for _, _, spec, conversion in parsed):
        raise InvalidRequest("bad-format", f"--format {pattern}: write plain fields, like {{id}} {{state}}.")
    return [name for _, name, _, _ in parsed if name is not None]


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, tuple):
        return printable(",".join(map(str, value))) or "-"
    return f"{value:.0f}" if isinstance(value, float) else printable(str(value))
