"""Queue and nodes for people at a terminal: tables in colour, by rich. Not used for pipes."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from mgpu_agent.protocol.text import printable, width
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.show import draw
from mgpu_jupyter.client.queue_columns import COLUMNS, IN_TABLES, ON_OWN_LINE, Words
from mgpu_jupyter.client.queue_rows import Listed, Row, RowContext, sections_of
from mgpu_jupyter.client.words import gpu_name, holder, memory, middle

NARROW = ("id", "state", "user", "size", "when", "name", "command")
"""Columns in a terminal without room for all of them; the rest is on a line of its own below."""
FOLDED = 20
"""A longer id, of an array, continues below."""
SHARES = {"user": 0.12, "name": 0.2}
"""The largest part of the line that a name may take."""
LEAST_COMMAND = 8
GAP = 2
COLOURS = {
    "running": "green",
    "completed": "green",
    "online": "green",
    "starting": "cyan",
    "queued": "yellow",
    "suspect": "yellow",
    "draining": "yellow",
    "maintenance": "yellow",
    "stopping": "magenta",
    "failed": "red",
    "timeout": "red",
    "unhealthy": "red",
    "offline": "red",
    "cancelled": "dim",
}


def show_queue(jobs: Sequence[models.Job], nodes: Sequence[models.Node], starts: Mapping[str, str]) -> None:
    """Show jobs and nodes under the headings of the plain text."""
    rows, around = sections_of(jobs), Listed(time.time(), starts)
    _part("--- Running Jobs ---", _jobs(rows.running, around), "No running jobs")
    _part("--- Queue ---", _jobs(rows.waiting, around), "No queued jobs")
    if rows.over:
        _part("--- Finished Jobs ---", _jobs(rows.over, around), "")
    _part("--- Cluster Status ---", _nodes_in_short(nodes), "No node information available")


def show_nodes(nodes: Sequence[models.Node]) -> None:
    """Show every node and each of its GPUs."""
    for node in nodes:
        draw(Text.assemble(_text(node.id, "bold"), "  ", _state(node.state), _text(f"  {_about(node)}")))
        for text in node.warnings:
            draw(_text(f"  WARNING: {text}", "yellow"))
        table = _table("GPU", "name", "memory", "busy", "held by")
        for gpu in node.gpus:
            busy = "-" if gpu.utilisation_percent is None else f"{gpu.utilisation_percent:.0f} %"
            used = memory(gpu.memory_used_bytes, gpu.memory_bytes)
            _row(table, str(gpu.index), gpu_name(gpu), used, busy, holder(gpu))
        if node.gpus:
            draw(table)


def _jobs(rows: Sequence[Row], around: RowContext) -> Table | list[Text] | None:
    """Return the whole table where it fits, else lines that lose nothing important."""
    room = Console().width
    whole = _whole(rows, around)
    if not rows or Console().measure(whole, options=Console(width=10_000).options).maximum <= room:
        return whole if rows else None
    return _narrow(rows, around, room)


def _whole(rows: Sequence[Row], around: RowContext) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for column in IN_TABLES:
        table.add_column(column.label, overflow="ellipsis", no_wrap=column.wraps != "wrap")
    for row in rows:
        cells = [column.words(row, around) for column in IN_TABLES]
        _row(
            table,
            *(
                _state(text) if column.name == "state" else text
                for column, text in zip(IN_TABLES, cells, strict=True)
            ),
        )
    return table


def _narrow(rows: Sequence[Row], around: RowContext, room: int) -> list[Text]:
    """Return two lines for each job: its columns, names and command cut in the middle; then where it runs, or
    in full why it does not.
    """
    named = {column.name: column for column in COLUMNS}
    cells = [[printable(named[name].words(row, around)) for name in NARROW] for row in rows]
    labels = [named[name].label if name != "when" else "Time" for name in NARROW]
    widths = [max(map(width, column)) for column in zip(labels, *cells, strict=True)]
    widths[0] = min(widths[0], FOLDED)
    for at, name in enumerate(NARROW):
        if name in SHARES:
            widths[at] = min(widths[at], max(int(room * SHARES[name]), len(labels[at])))
    left = room - sum(widths[:-1]) - GAP * (len(NARROW) - 1)
    widths[-1] = min(widths[-1], left) if left >= LEAST_COMMAND else 0
    lines = [_line(labels, widths, "dim")]
    for row, found in zip(rows, cells, strict=True):
        first, *rest = _pieces(found[0], FOLDED)
        lines += [_line([first, *found[1:]], widths, ""), *(Text(piece) for piece in rest)]
        lines += _below(ON_OWN_LINE, row, around, room)
    return lines


def _line(cells: Sequence[str], widths: Sequence[int], style: str) -> Text:
    line = Text(style=style)
    for at, (cell, room) in enumerate(zip(cells, widths, strict=True)):
        if room:
            shown = middle(cell, room)
            is_state = NARROW[at] == "state" and not style
            line.append(shown, COLOURS.get(cell, "") if is_state else "")
            line.append(" " * (room - width(shown) + GAP))
    line.rstrip()
    return line


def _below(words: Words, row: Row, around: RowContext, room: int) -> list[Text]:
    """Return the lines below a row, as many as it needs."""
    text = _text(words(row, around))
    wrapped = text.wrap(Console(width=room), room - 2 * GAP, overflow="fold") if text else ()
    return [Text.assemble(" " * 2 * GAP, line) for line in wrapped]


def _pieces(text: str, room: int) -> list[str]:
    return [text[at : at + room] for at in range(0, max(len(text), 1), room)]


def _nodes_in_short(nodes: Sequence[models.Node]) -> Table | None:
    table = _table("node", "state", "GPUs", "free", "reason")
    for node in nodes:
        free = sum(gpu.state == "free" and gpu.job_id is None for gpu in node.gpus)
        _row(table, node.id, _state(node.state), str(len(node.gpus)), str(free), node.reason)
    return table if nodes else None


def _part(heading: str, shown: Table | list[Text] | None, otherwise: str) -> None:
    draw(Text(heading, "bold"))
    if shown is None:
        draw(Text(otherwise, "dim"))
    else:
        draw(*(shown if isinstance(shown, list) else [shown]))


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in names:
        if name in ("GPUs", "GPU", "state", "node", "free", "busy", "memory"):
            table.add_column(name, no_wrap=True)
        else:
            table.add_column(name, overflow="ellipsis")
    return table


def _row(table: Table, *cells: str | Text) -> None:
    """Add a row; text of others is never markup."""
    table.add_row(*(_text(cell) if isinstance(cell, str) else cell for cell in cells))


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def _state(state: str) -> Text:
    return _text(str(state), COLOURS.get(str(state), ""))


def _about(node: models.Node) -> str:
    cpus = (
        f"{node.cpus} CPUs"
        if node.cpu_percent is None
        else f"{node.cpus} CPUs, {node.cpu_percent:.0f} % busy"
    )
    return printable(
        " | ".join(
            filter(
                None,
                (
                    f"host {node.host}",
                    node.address,
                    f"rack {node.rack}" if node.rack else "",
                    f"switch {node.switch}" if node.switch else "",
                    cpus,
                    node.gpu_note,
                    node.reason,
                ),
            )
        )
    )
