"""`mgpu_queue`: jobs and nodes. Pipes get the earlier tool's headings and lines, terminals get tables."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.command import Command, MakeClient, add_json, add_place, point_at
from mgpu_jupyter.cli.show import clear, columns, on_terminal, queue_json
from mgpu_jupyter.client import squeue
from mgpu_jupyter.client.choice import add_selection, selected
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.parser import Help, Parser
from mgpu_jupyter.client.queue_columns import FORMAT_FIELDS
from mgpu_jupyter.client.reasons import starts_of

WATCH_S = 2.0


class _Parser(Parser):
    """Accepts `-S -M`, as squeue does: the next word is its value, even with a dash."""

    def read(self, words: Sequence[str]) -> argparse.Namespace | Help:
        """Return the values of `words`, or the help text."""
        joined: list[str] = []
        for word in words:
            if joined and joined[-1] in ("-S", "--sort"):
                joined[-1] = f"--sort={word}"
            else:
                joined.append(word)
        return super().read(joined)


def parser(prog: str) -> Parser:
    """Return the flags."""
    examples = [
        f"{prog} --start",
        f"{prog} --all --json",
        f"{prog} -u ann --format id,state,gpus,reason",
        f'{prog} --format "{{id}} {{nodes}}"',
        f'{prog} --me -t PD,R -S -M -o "%.18i %.9P %.8j %.2t %.10M %R"',
    ]
    usage = f"{prog} [--all] [-u USER] [-j ID,…] [-t STATES] [--start] [--json | -l | -o FORMAT] [--watch]"
    result = _Parser(
        prog,
        usage,
        "Show running and waiting jobs, and the nodes.",
        examples=examples,
        more="-h is --help here; squeue's -h is --noheader.\n",
    )
    add_selection(result)
    result.add_argument("--start", action="store_true", help="say when waiting jobs are expected to start")
    add_json(result)
    result.add_argument(
        "--format",
        "-o",
        metavar="FIELDS",
        help=f"only these columns, or a pattern with {{field}}: {', '.join(FORMAT_FIELDS)}; or a format of "
        "squeue, like %%.18i %%.2t %%R",
    )
    result.add_argument(
        "-l", "--long", action="store_true", help="one line for each job, as squeue -l has them"
    )
    result.add_argument("--noheader", action="store_true", help="one line for each job, without the heading")
    result.add_argument(
        "-S", "--sort", metavar="FIELDS", help="one line for each job, by these letters of squeue, like u,-M"
    )
    result.add_argument(
        "--watch", action="store_true", help=f"show it again every {WATCH_S:.0f} s until Ctrl-C"
    )
    add_place(result)
    return result


def run(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Show the queue once, or repeatedly."""
    for other, given in (
        ("--watch", values.watch),
        ("--format", values.format is not None),
        ("--long", values.long),
    ):
        if values.json and given:
            raise InvalidRequest("contradiction", f"--json and {other} exclude each other: leave one out.")
    if values.long and values.format is not None:
        raise InvalidRequest("contradiction", "--long and --format exclude each other: leave one out.")
    lines = None if values.json else _lines(values)
    ordered = squeue.sorter(values.sort, time.time) if values.sort is not None else list
    point_at(values.host, values.port)
    with make_client() as client:
        while True:
            jobs = ordered(selected(client, values))
            if values.json:
                tell(queue_json(jobs))
                return 0
            if values.watch:
                clear()
            if lines is not None:
                tell(*lines(jobs), flush=True)
            else:
                _show(jobs, client.nodes(), starts_of(client, jobs, time.time()) if values.start else {})
            if not values.watch:
                return 0
            time.sleep(WATCH_S)


def _lines(values: argparse.Namespace) -> Callable[[Sequence[models.Job]], list[str]] | None:
    """Return the function that formats jobs as lines, where that is asked for."""
    pattern = values.format
    if pattern is None and (values.long or values.noheader or values.sort is not None):
        pattern = squeue.LONG if values.long else squeue.USUAL
    if pattern is None:
        return None
    if "%" in pattern and "{" not in pattern:
        return squeue.rows_of(pattern, time.time, header=not values.noheader)
    return rows_of(pattern, header=not values.noheader)


def _show(jobs: Sequence[models.Job], nodes: Sequence[models.Node], starts: Mapping[str, str]) -> None:
    if on_terminal():
        from mgpu_jupyter.cli.tables import show_queue

        show_queue(jobs, nodes, starts)
    else:
        tell(*as_text(jobs, nodes, starts).split("\n"), flush=True)


def rows_of(pattern: str, *, header: bool = True) -> Callable[[Sequence[models.Job]], list[str]]:
    """Return a function that formats jobs: columns for `id,state`, the filled pattern for `{id} {state}`."""
    if "{" in pattern:
        fields, filled = _fields_in(pattern), True
    else:
        fields, filled = [name.strip() for name in pattern.split(",") if name.strip()], False
    unknown = [name for name in fields if name not in FORMAT_FIELDS]
    if unknown or not fields:
        what = f"there is no field {unknown[0]}" if unknown else "it names no field"
        raise InvalidRequest(
            "bad-format", f"--format {pattern}: {what}; the fields are {', '.join(FORMAT_FIELDS)}."
        )

    def lines(jobs: Sequence[models.Job]) -> list[str]:
        cells = [[_cell(getattr(job, name)) for name in fields] for job in jobs]
        if filled:
            told = "\n".join(pattern.format(**dict(zip(fields, row, strict=True))) for row in cells)
            return told.split("\n")
        table = columns([[name.upper() for name in fields], *cells]).split("\n")
        return table if header else table[1:]

    return lines


def _fields_in(pattern: str) -> list[str]:
    from string import Formatter

    try:
        parsed = list(Formatter().parse(pattern))
    except ValueError as error:
        raise InvalidRequest(
            "bad-format", f"--format {pattern}: {error}; write it like {{id}} {{state}}."
        ) from None
    if any(spec or conversion for _, _, spec, conversion in parsed):
        raise InvalidRequest("bad-format", f"--format {pattern}: write plain fields, like {{id}} {{state}}.")
    return [name for _, name, _, _ in parsed if name is not None]


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, tuple):
        return printable(",".join(map(str, value))) or "-"
    return f"{value:.0f}" if isinstance(value, float) else printable(str(value))


COMMANDS = {"queue": Command(parser, run)}
