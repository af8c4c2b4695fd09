"""What people at a terminal see of queue and nodes: tables in colour, by rich. Pipes never come here."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.cli.show import draw
from mgpu_jupyter.client.listing import queue_order, run_order
from mgpu_jupyter.client.words import duration, ending, gpu_name, holder, memory

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
    """Show jobs and nodes under the headings that the plain text has."""
    now = time.time()
    running, queued, over = run_order(jobs), queue_order(jobs), [job for job in jobs if job.state.is_final]
    _part("--- Running Jobs ---", _jobs(running, "time", lambda job: duration(now - (job.started_at or now))), "No running jobs")
    _part("--- Queue ---", _jobs(queued, "waits for", lambda job: _why(job, starts)), "No queued jobs")
    if over:
        _part("--- Finished Jobs ---", _jobs(over, "end", ending), "")
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


def _jobs(jobs: Sequence[models.Job], last: str, tell: Callable[[models.Job], str]) -> Table | None:
    table = _table("ID", "user", "name", "GPUs", "nodes", "state", last, "command")
    for job in jobs:
        cells = (job.id, job.user, job.name, str(job.gpus), ", ".join(job.nodes))
        _row(table, *cells, _state(job.state), tell(job), job.command)
    return table if jobs else None


def _nodes_in_short(nodes: Sequence[models.Node]) -> Table | None:
    table = _table("node", "state", "GPUs", "free", "reason")
    for node in nodes:
        free = sum(gpu.state == "free" and gpu.job_id is None for gpu in node.gpus)
        _row(table, node.id, _state(node.state), str(len(node.gpus)), str(free), node.reason)
    return table if nodes else None


def _part(heading: str, table: Table | None, otherwise: str) -> None:
    draw(Text(heading, "bold"))
    draw(Text(otherwise, "dim") if table is None else table)


def _table(*names: str) -> Table:
    table = Table(box=None, header_style="dim", pad_edge=False)
    for name in names:
        if name in ("ID", "GPUs", "GPU", "state", "node", "free", "busy", "memory"):
            table.add_column(name, no_wrap=True)
        else:
            table.add_column(name, overflow="ellipsis", no_wrap=name in ("command", "user", "name"))
    return table


def _row(table: Table, *cells: str | Text) -> None:
    """Add a row; what others wrote is text and nothing else."""
    table.add_row(*(_text(cell) if isinstance(cell, str) else cell for cell in cells))


def _text(text: str, style: str = "") -> Text:
    return Text(printable(text), style)


def _state(state: str) -> Text:
    return _text(str(state), COLOURS.get(str(state), ""))


def _about(node: models.Node) -> str:
    cpus = f"{node.cpus} CPUs" if node.cpu_percent is None else f"{node.cpus} CPUs, {node.cpu_percent:.0f} % busy"
    return printable(" | ".join(filter(None, (f"host {node.host}", node.address, cpus, node.gpu_note, node.reason))))


def _why(job: models.Job, starts: Mapping[str, str]) -> str:
    start = starts.get(job.id, "")
    return f"{job.reason or 'it is the next to be looked at'}{f'; start: {start}' if start else ''}"
