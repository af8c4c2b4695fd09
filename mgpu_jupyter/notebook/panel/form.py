"""The submit form as values: what is filled in becomes the line of a magic, and that line is read by the magics' own reader.

So the form, the line that it writes into a cell and what is submitted cannot differ. Asks nobody.
"""

from __future__ import annotations

import os
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.explanations import Explanation, Offer
from mgpu_jupyter.client.flags import parse
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.reasons import where
from mgpu_jupyter.model.job import JobSpec, NodeState
from mgpu_jupyter.notebook.line import split_line, variables
from mgpu_jupyter.notebook.panel.explained import first_line, on
from mgpu_jupyter.notebook.panel.marks import ROW_TILES, esc, glyph, wall
from mgpu_jupyter.notebook.panel.rows import lowered
from mgpu_jupyter.notebook.panel.seen import Picked, Seen

MAGIC = "%mgpu_srun"
ANY_TYPE = ""
SHOWN_ROWS = 6
PLACEHOLDER = "python train.py"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """What is filled in."""

    nodes: int = 1
    gpus: int = 1
    """On each node."""
    gpu_type: str = ANY_TYPE
    time_limit: str = ""
    name: str = ""
    command: str = ""
    flags: str = ""
    """More flags of `mgpu_srun`, as they are typed."""
    picks: tuple[Picked, ...] = ()
    """Exactly these GPUs; then numbers and type say nothing."""


def arguments(form: Form) -> str:
    """Return what stands after the magic's name."""
    words: list[str] = []
    if form.picks:
        by_node: dict[str, list[int]] = {}
        for pick in sorted(form.picks, key=lambda pick: (pick.node, pick.index)):
            by_node.setdefault(pick.node, []).append(pick.index)
        named = ";".join(f"{node}:{','.join(map(str, indices))}" for node, indices in by_node.items())
        words += ["--node-gpu-ids", shlex.quote(named)]
    else:
        words += ["--gpus", str(form.gpus)] if form.nodes == 1 else ["--nodes", str(form.nodes), "--gpus-per-node", str(form.gpus)]
        if form.gpu_type:
            words += ["--gpu-type", shlex.quote(form.gpu_type)]
    if form.time_limit.strip():
        words += ["-t", shlex.quote(form.time_limit.strip())]
    if form.name.strip():
        name = form.name.strip()
        words += [f"--name={shlex.quote(name)}"] if name.startswith("-") else ["--name", shlex.quote(name)]
    if form.flags.strip():
        words.append(form.flags.strip())
    return " ".join([*words, "--", form.command.strip() or PLACEHOLDER])


def magic(form: Form) -> str:
    """Return the line for a cell."""
    return f"{MAGIC} {arguments(form)}"


def magic_html(form: Form) -> str:
    """Return the line as it is shown below the form."""
    return f'<div class="mgpu-line"><b>{MAGIC}</b> {esc(arguments(form))}</div>'


def spec_of(form: Form, namespace: Mapping[str, object], *, to_submit: bool) -> JobSpec:
    """Return the request; before a command is there, only a dry run can be made of it."""
    if to_submit and not form.command.strip():
        raise InvalidRequest("no-command", "Write the command that is to run, like python train.py.")
    found = parse(
        split_line(arguments(form), variables(namespace, os.environ)), cell=None, environ=os.environ, prog=MAGIC, in_notebook=True
    )
    if isinstance(found, Help):
        raise InvalidRequest("usage", "More flags: take --help out.")
    return found.spec


def types_of(seen: Seen) -> list[tuple[str, int]]:
    """Return the kinds of GPUs, with how many of each are free."""
    free: Counter[str] = Counter()
    for node in seen.nodes.values():
        for gpu in node.gpus:
            free[gpu.name.removeprefix("NVIDIA ")] += gpu.state == "free" and gpu.job_id is None and node.state is NodeState.ONLINE
    return sorted(free.items())


class PickRow(msgspec.Struct, frozen=True):
    """Up to eight GPUs of a node in the picker."""

    node: NodeId
    first: int
    """Number of the first of them among the node's GPUs."""


def pick_rows(seen: Seen, form: Form, told: Explanation | None) -> list[PickRow]:
    """Return the rows of the picker: where it would go first, then nodes with most free GPUs of the kind."""
    wanted = {place.node for place in told.where} if told is not None else set()
    wanted |= {NodeId(pick.node) for pick in form.picks}

    def score(node_id: NodeId) -> tuple[bool, int, str]:
        gpus = [gpu for gpu in seen.nodes[node_id].gpus if form.gpu_type.casefold() in gpu.name.casefold()]
        open_now = seen.nodes[node_id].state is NodeState.ONLINE
        return node_id not in wanted, -sum(gpu.state == "free" and gpu.job_id is None for gpu in gpus) * open_now, node_id

    rows: list[PickRow] = []
    for node_id in sorted(seen.nodes, key=score):
        rows += [PickRow(node_id, first) for first in range(0, len(seen.nodes[node_id].gpus), ROW_TILES)]
        if len(rows) >= SHOWN_ROWS:
            break
    return rows[:SHOWN_ROWS]


def pick_html(seen: Seen, row: PickRow, form: Form, told: Explanation | None) -> str:
    """Return a row of the picker: name, and tiles with a tick where the job would go."""
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
    """Return what would become of the form: an error, or when and where it would start."""
    old = ' class="mgpu-old"' if checking else ""
    if problem:
        head, _, rest = problem.partition(": ") if problem.count(": ") == 1 and len(problem.partition(": ")[0]) < 60 else (problem, "", "")
        body = f"<p>{esc(rest)}</p>" if rest else ""
        return f'<div{old} role="status"><div>{glyph("warning", "warn")} <b>{esc(head)}</b></div>{body}</div>'
    if told is None:
        return '<div class="quiet" role="status">Checking…</div>'
    if told.verdict == "now":
        where_text = f"<p>on {esc(where(told.where))}</p>" if told.where else ""
        return f'<div{old} role="status"><div class="big">{glyph("running", "mine")} <b>Starts now</b></div>{where_text}</div>'
    sign = glyph("never", "bad") if told.verdict == "never" else glyph("queued")
    head = first_line(told, now).rstrip(".")
    return f'<div{old} role="status"><div class="big">{sign} <b>{esc(head)}</b></div><p>{esc(told.text)}</p></div>'


def offer_text(offer: Offer) -> str:
    """Return an offer as a line beside its button."""
    return f"{lowered(offer.text)} would start now{on(offer.where)}"


def with_offer(form: Form, offer: Offer) -> Form | None:
    """Return the form with an offer taken, or None when the form has no field for it."""
    fields: dict[str, object] = {}
    for key, value in offer.patch.items():
        match key:
            case "gpus" if value is not None and form.nodes == 1:
                fields["gpus"] = int(value)
            case "gpus_per_node" if value is not None:
                fields["gpus"] = int(value)
            case "nodes":
                fields["nodes"] = 1 if value is None else int(value)
            case "gpu_type":
                fields["gpu_type"] = value or ANY_TYPE
            case "time_limit_s":
                fields["time_limit"] = "" if value is None else hours(float(value))
            case "gpu_ids" | "node_gpu_ids" if not value:
                fields["picks"] = ()
            case _:
                return None
    return msgspec.structs.replace(form, **fields)


def hours(seconds: float) -> str:
    """Return seconds as HH:MM:SS."""
    whole = int(seconds)
    return f"{whole // 3600:02}:{whole % 3600 // 60:02}:{whole % 60:02}"


def toggled(picks: Sequence[Picked], pick: Picked) -> tuple[Picked, ...]:
    """Return the picks with one more, or without it when it was among them."""
    return tuple(one for one in picks if one != pick) if pick in picks else (*picks, pick)
