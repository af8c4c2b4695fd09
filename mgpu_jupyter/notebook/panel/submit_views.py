"""The views of the submit form: kinds of GPUs, the picker, the answer of the dry run, and the line. Pure."""

from __future__ import annotations

from collections import Counter

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.client.words import lowered, moment
from mgpu_jupyter.model.explanations import Explanation, Offer
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.notebook.panel.explained import first_line, on
from mgpu_jupyter.notebook.panel.form import CELL_MAGIC, MAGIC, Form, magic
from mgpu_jupyter.notebook.panel.gpu_views import free_of
from mgpu_jupyter.notebook.panel.marks import ROW_TILES, esc, glyph, wall
from mgpu_jupyter.notebook.panel.seen import Seen

SHOWN_ROWS = 6
COPY = "Click the text to select it, copy it, and put it into a cell."


def magic_html(form: Form) -> str:
    """Return the line below the form; where it cannot be written into a cell, it is for copying."""
    name = MAGIC if form.code is None else CELL_MAGIC
    copy = f'<p class="quiet mgpu-copy">{COPY}</p>'
    return f'<div class="mgpu-line"><b>{name}</b>{esc(magic(form).removeprefix(name))}</div>{copy}'


def free_html(seen: Seen, form: Form) -> str:
    """Return what is free and how to ask for it."""
    most = max(map(free_of, seen.nodes.values()), default=0)
    how = "" if form.picks else " Click a free GPU to ask for exactly that one."
    return (
        f'<p class="quiet n">Free now: {seen.free} of {seen.all_gpus}, at most {most} on one node.{how}</p>'
    )


def types_of(seen: Seen) -> list[tuple[str, int]]:
    """Return the kinds of GPUs, with how many of each are free."""
    free: Counter[str] = Counter()
    for node in seen.nodes.values():
        for gpu in node.gpus:
            free[gpu.name.removeprefix("NVIDIA ")] += (
                gpu.state == "free" and gpu.job_id is None and node.state is NodeState.ONLINE
            )
    return sorted(free.items())


class PickRow(msgspec.Struct, frozen=True):
    """Up to eight GPUs of a node in the picker."""

    node: NodeId
    first: int
    """Number of the first of them among the node's GPUs."""


def pick_rows(seen: Seen, form: Form, told: Explanation | None) -> list[PickRow]:
    """Return the rows of the picker: first where it would be placed, then nodes with most free GPUs of the
    kind.
    """
    wanted = {place.node for place in told.where} if told is not None else set()
    wanted |= {NodeId(pick.node) for pick in form.picks}

    def score(node_id: NodeId) -> tuple[bool, int, str]:
        gpus = [gpu for gpu in seen.nodes[node_id].gpus if form.gpu_type.casefold() in gpu.name.casefold()]
        open_now = seen.nodes[node_id].state is NodeState.ONLINE
        return (
            node_id not in wanted,
            -sum(gpu.state == "free" and gpu.job_id is None for gpu in gpus) * open_now,
            node_id,
        )

    rows: list[PickRow] = []
    for node_id in sorted(seen.nodes, key=score):
        rows += [PickRow(node_id, first) for first in range(0, len(seen.nodes[node_id].gpus), ROW_TILES)]
        if len(rows) >= SHOWN_ROWS:
            break
    return rows[:SHOWN_ROWS]


def pick_html(seen: Seen, row: PickRow, form: Form, told: Explanation | None) -> str:
    """Return a row of the picker: name, and tiles with a tick where the job would be placed."""
    picked = {(pick.node, pick.index) for pick in form.picks}
    if not picked and told is not None and told.verdict == "now":
        picked = {(place.node, index) for place in told.where for index in place.gpus}
    gpus = seen.gpus(row.node)[row.first : row.first + ROW_TILES]
    tiles = [
        msgspec.structs.replace(tile, picked=(row.node, gpu.index) in picked)
        for gpu, tile in zip(gpus, seen.tiles(row.node)[row.first : row.first + ROW_TILES], strict=True)
    ]
    chosen = ", ".join(str(gpu.index) for gpu, tile in zip(gpus, tiles, strict=True) if tile.picked)
    label = f"{row.node}: {f'would take GPU {chosen}' if chosen else 'takes no part'}"
    name = esc(row.node) if row.first == 0 else ""
    return f'<div class="mgpu-pick"><span title="{name}">{name}</span>{wall(tiles, label)}</div>'


def answer_html(told: Explanation | None, problem: str, now: float, *, checking: bool) -> str:
    """Return the answer about the form: an error, or when and where it would start."""
    old = ' class="mgpu-old"' if checking else ""
    if problem:
        head, _, rest = (
            problem.partition(": ")
            if problem.count(": ") == 1 and len(problem.partition(": ")[0]) < 60
            else (problem, "", "")
        )
        body = f"<p>{esc(rest)}</p>" if rest else ""
        return f'<div{old} role="status"><div>{glyph("warning", "warn")} <b>{esc(head)}</b></div>{body}</div>'
    if told is None:
        return '<div class="quiet" role="status">Checking…</div>'
    if told.verdict == "now":
        where_text = f"<p>{esc(on(told.where).strip())}</p>" if told.where else ""
        return (
            f'<div{old} role="status"><div class="big">{glyph("running", "mine")} <b>Starts '
            f"now</b></div>{where_text}</div>"
        )
    sign = glyph("never", "bad") if told.verdict == "never" else glyph("queued")
    head = first_line(told, now).rstrip(".")
    return (
        f'<div{old} role="status"><div class="big">{sign} '
        f"<b>{esc(head)}</b></div><p>{esc(told.text)}</p></div>"
    )


def offer_text(offer: Offer) -> str:
    """Return an offer as a line beside its button."""
    return f"{lowered(offer.text)} would start now{on(offer.where)}."


def size_text(form: Form, told: Explanation, now: float) -> str:
    """Return when another size would start: `2 × 4 would start at 16:52.` Empty when that is unknown."""
    kind = f" {form.gpu_type}" if form.gpu_type else ""
    if told.verdict == "now":
        return f"{form.nodes} × {form.gpus}{kind} would start now."
    if told.verdict == "not_now" and told.expected.at is not None:
        return f"{form.nodes} × {form.gpus}{kind} would start at {moment(told.expected.at, now)}."
    return ""
