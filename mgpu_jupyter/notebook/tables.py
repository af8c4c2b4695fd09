"""Jobs and nodes as tables: HTML for notebooks, text elsewhere. All text of users is hostile and is
escaped.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_agent.protocol.text import as_html
from mgpu_jupyter.api import models
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.queue_columns import IN_TABLES
from mgpu_jupyter.client.queue_rows import Listed, Row, RowContext, sections_of
from mgpu_jupyter.client.reasons import as_lines, clock, start_line, where
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.client.words import gpu_count, gpu_name, holder, memory
from mgpu_jupyter.model.explanations import Explanation

NO_NODES = "No machines yet: run `mgpu_node --node-id NAME` on a machine with GPUs."


class Queue:
    """The queue and the nodes: tables under the headings of `mgpu_queue`; elsewhere its text."""

    def __init__(self, jobs: Sequence[models.Job], nodes: Sequence[models.Node], now: float) -> None:
        self.jobs = tuple(jobs)
        self.nodes = tuple(nodes)
        self._now = now

    def __repr__(self) -> str:
        return as_text(self.jobs, self.nodes)

    def _repr_html_(self) -> str:
        """Return the tables as HTML."""
        rows, around = sections_of(self.jobs), Listed(self._now)
        parts = [
            ("Running Jobs", _table(rows.running, around, "No running jobs")),
            ("Queue", _table(rows.waiting, around, "No queued jobs")),
        ]
        if rows.over:
            parts.append(("Finished Jobs", _table(rows.over, around, "")))
        states = Table(
            "",
            ("Node", "State", "Reason"),
            [(node.id, node.state.value, node.reason) for node in self.nodes],
            NO_NODES,
        )
        return "".join(
            f"<h4>{heading}</h4>{table._repr_html_()}"
            for heading, table in (*parts, ("Cluster Status", states))
        )


def _table(rows: Sequence[Row], around: RowContext, empty: str) -> Table:
    headings = [column.label for column in IN_TABLES]
    return Table("", headings, [[column.words(row, around) for column in IN_TABLES] for row in rows], empty)


class Answer:
    """Why a job waits: one sentence, then offers and nodes as tables; elsewhere the text of `mgpu
    explain`.
    """

    def __init__(self, told: Explanation, now: float) -> None:
        self.told = told
        self._now = now

    def __repr__(self) -> str:
        return "\n".join(as_lines(self.told, self._now))

    def _repr_html_(self) -> str:
        """Return the tables as HTML."""
        told = self.told
        start = start_line(told, self._now)
        parts = [f"<div><b>{as_html(told.text)}</b></div>", f"<div>{as_html(start)}</div>" if start else ""]
        offers = Table(
            "In its place, this would start now:" if told.job_id else "This would start now:",
            ("Change", "Flags", "Where"),
            [(offer.text, ", ".join(offer.flags), where(offer.where)) for offer in told.offers],
            "",
        )
        nodes = Table(
            "",
            ("Unit", "Needs", "Nodes", "Why not"),
            [
                (
                    str(unit.first),
                    unit.needs,
                    f"{', '.join(out.nodes)}{' …' if out.count > len(out.nodes) else ''} ({out.count})",
                    out.text,
                )
                for unit in told.units
                for out in unit.excluded
            ],
            "",
        )
        ahead = Table(
            f"{told.ahead_count} ahead of it:",
            ("Job", "User", "GPUs"),
            [(job.job_id, job.user, str(job.gpus)) for job in told.ahead],
            "",
        )
        terms = Table(
            f"Priority {told.priority or 0.0:.2f}, in hours of waiting:",
            ("Term", "Amount", "Points"),
            [
                (term.name, f"{round(term.amount, 3):g}", f"{term.points:+.2f}")
                for term in told.terms
                if term.points
            ],
            "",
        )
        past = Table(
            "What it was told before:",
            ("At", "Answer"),
            [(clock(one.at), one.text) for one in told.history],
            "",
        )
        parts += [table._repr_html_() for table in (offers, nodes, ahead, terms, past) if table.rows]
        return "".join(parts)


def nodes_table(nodes: Sequence[models.Node]) -> Table:
    """Return every GPU of every node, with its holder."""
    gpus = [gpu for node in nodes for gpu in node.gpus]
    free = sum(gpu.state == "free" and gpu.job_id is None for gpu in gpus)
    simulated = " (simulated)" if any(gpu.simulated for gpu in gpus) else ""
    rows = [row for node in nodes for row in _node_rows(node)]
    headings = ("Node", "State", "GPU", "Memory", "Busy", "Held by")
    caption = f"{free} of {gpu_count(len(gpus))} free{simulated}" if gpus else ""
    return Table(caption, headings, rows, NO_NODES)


def _node_rows(node: models.Node) -> list[tuple[str, ...]]:
    state = f"{node.state.value}: {node.reason}" if node.reason else node.state.value
    if not node.gpus:
        return [(node.id, state, node.gpu_note or "no GPU", "", "", "")]
    is_simulated = all(gpu.simulated for gpu in node.gpus)
    rows: list[tuple[str, ...]] = (
        [(node.id, state, node.gpu_note, "", "", "")] if node.gpu_note and not is_simulated else []
    )
    for gpu in node.gpus:
        busy = "" if gpu.utilisation_percent is None else f"{gpu.utilisation_percent:.0f} %"
        used = memory(gpu.memory_used_bytes, gpu.memory_bytes)
        rows.append((node.id, state, f"{gpu.index}: {gpu_name(gpu)}", used, busy, holder(gpu)))
    return rows
