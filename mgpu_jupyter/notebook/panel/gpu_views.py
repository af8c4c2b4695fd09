"""The views of the tab GPUs: the list of nodes with their walls, and one node GPU by GPU. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Literal

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client.queue_rows import title
from mgpu_jupyter.client.words import moment, size
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.notebook.panel.marks import (
    NAMES,
    ROW_TILES,
    WALL_HEIGHT,
    Tile,
    esc,
    glyph,
    one_tile,
    plot,
    wall,
)
from mgpu_jupyter.notebook.panel.seen import Seen

PLOT_SPAN_S = 600.0
ROW_HEIGHT = 26
MOST_LINES = 4
Sort = Literal["name", "free first", "mine first"]
Points = dict[int, tuple[Sequence[float], Sequence[float | None]]]
"""By GPU: times, and busy in percent."""


def nodes_in_order(seen: Seen, sort: Sort, text: str) -> list[NodeId]:
    """Return the nodes that match, in the order that was asked for."""
    words = text.casefold().split()
    found = [node for node in seen.nodes.values() if not words or all(word in _told(node) for word in words)]
    if sort == "name":
        return [node.id for node in sorted(found, key=lambda node: node.id)]
    score = (
        free_of
        if sort == "free first"
        else lambda node: sum(gpu.user == seen.user and gpu.job_id is not None for gpu in node.gpus)
    )
    return [node.id for node in sorted(found, key=lambda node: (-score(node), node.id))]


def _told(node: models.Node) -> str:
    return (
        f"{node.id} {node.state} {node.rack} {node.switch} {' '.join({gpu.name for gpu in node.gpus})}"
    ).casefold()


def free_of(node: models.Node) -> int:
    """Return how many GPUs of a node could be handed out now."""
    if node.state is not NodeState.ONLINE:
        return 0
    return sum(gpu.state == "free" and gpu.job_id is None for gpu in node.gpus)


def lines_of(seen: Seen, nodes: Sequence[NodeId]) -> int:
    """Return how many lines of tiles a node needs at most."""
    return min(
        max((-(-len(seen.wall(node_id)) // ROW_TILES) for node_id in nodes), default=1) or 1, MOST_LINES
    )


def walls_html(seen: Seen, nodes: Sequence[NodeId], lines: int = 1) -> str:
    """Return the walls of some nodes, all of the same height: this many lines of eight GPUs."""
    height = f' style="height:{row_height(lines)}px"' if lines > 1 else ""
    return "".join(f'<div class="mgpu-wr"{height}>{_wall(seen, node_id, lines)}</div>' for node_id in nodes)


def row_height(lines: int) -> int:
    """Return the height of a node in the list."""
    return ROW_HEIGHT + (lines - 1) * WALL_HEIGHT


def _wall(seen: Seen, node_id: NodeId, lines: int) -> str:
    if not seen.tiles(node_id):
        return '<span class="quiet">no GPUs</span>'
    return wall(seen.wall(node_id)[: lines * ROW_TILES], f"{node_id}: {said(seen.tiles(node_id))}")


def said(tiles: Sequence[Tile]) -> str:
    """Return how many tiles are in each state: `4 mine, 4 others’`."""
    counted = Counter(tile.state for tile in tiles)
    return ", ".join(f"{counted[state]} {name}" for state, name in NAMES.items() if counted[state])


def note(seen: Seen, node: models.Node) -> str:
    """Return the state of a node as HTML: `online`, or a glyph and why not."""
    if node.state is NodeState.ONLINE:
        return "online"
    if node.state is NodeState.OFFLINE:
        since = f" since {moment(node.last_seen_at, seen.now)}" if node.last_seen_at else ""
        return f"{glyph('failed', 'bad')} offline{since}"
    if node.state is NodeState.UNHEALTHY:
        return f"{glyph('failed', 'bad')} unhealthy{f': {esc(node.reason)}' if node.reason else ''}"
    if node.state is NodeState.SUSPECT:
        for_s = f" for {seen.now - node.last_seen_at:.0f} s" if node.last_seen_at else ""
        return f"{glyph('warning', 'warn')} not heard{for_s}"
    orders = node.orders
    by = f" by {esc(orders.by)}" if orders.by else ""
    since = f", since {moment(orders.at, seen.now)}" if orders.at else ""
    why = f": “{esc(orders.reason)}”{by}{since}" if orders.reason else ""
    return f"{glyph('warning', 'warn')} {node.state}{why}"


def models_of(node: models.Node) -> str:
    """Return the GPUs of a node in words: `8 × H100 80GB`."""
    counted = Counter(short_name(gpu) for gpu in node.gpus)
    return ", ".join(f"{count} × {name}" for name, count in counted.items()) or "no GPUs"


def short_name(gpu: models.Gpu) -> str:
    """Return a GPU's name without its maker."""
    name = gpu.name.removeprefix("NVIDIA ")
    return f"{name} (simulated)" if gpu.simulated and "simulat" not in name.casefold() else name


def head_html(seen: Seen, node: models.Node) -> str:
    """Return the line over a node's GPUs."""
    where = "".join(
        f", {kind} {name}" for kind, name in (("rack", node.rack), ("switch", node.switch)) if name
    )
    return (
        f'<b>{esc(node.id)}</b> &nbsp;<span class="quiet">{esc(models_of(node))}{esc(where)}, '
        f"{note(seen, node)}</span>"
    )


def node_html(seen: Seen, node_id: NodeId, points: Points, since: float) -> str:
    """Return one node, GPU by GPU."""
    node = seen.nodes[node_id]
    rows = "".join(_gpu_row(seen, node, gpu, points, since) for gpu in seen.gpus(node_id))
    head = (
        '<table class="mgpu-table"><thead><tr><th></th><th>GPU</th><th colspan="2">Busy, 10 min</th>'
        '<th class="right">Memory</th><th class="right">Temp.</th><th>Holder</th></tr></thead>'
    )
    table = (
        f"{head}<tbody>{rows}</tbody></table>"
        if rows
        else f'<p class="quiet">{esc(node.gpu_note or "no GPUs")}</p>'
    )
    return f"{head_html(seen, node)}{table}"


def _gpu_row(seen: Seen, node: models.Node, gpu: models.Gpu, points: Points, since: float) -> str:
    shown = seen.tile(node, gpu)
    times, busy = points.get(gpu.index, ((), ()))
    percent = "" if gpu.utilisation_percent is None else f"{gpu.utilisation_percent:.0f} %"
    used = "" if gpu.memory_used_bytes is None else size(gpu.memory_used_bytes)
    heat = "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} °C"
    summary = f"GPU {gpu.index} busy over 10 minutes, now {percent or 'not known'}"
    drawn = plot(times, busy, span=(since, since + PLOT_SPAN_S), label=summary, mine=shown.state == "mine")
    return (
        f'<tr data-gpu="{gpu.index}" data-state="{shown.state}"><td>{one_tile(shown)}</td>'
        f'<td class="n">{gpu.index}</td><td>{drawn}</td>'
        f'<td class="n right">{percent}</td><td class="n right">{used}</td><td class="n right">{heat}</td>'
        f"<td>{holder_html(seen, gpu, shown)}</td></tr>"
    )


def holder_html(seen: Seen, gpu: models.Gpu, shown: Tile) -> str:
    """Return who has a GPU, or why it is not handed out."""
    reason = f"; {esc(gpu.reason)}" if gpu.reason else ""
    if gpu.job_id is not None:
        job = seen.jobs.get(gpu.job_id)
        name = title(job) if job is not None else gpu.job_id
        who = "me" if gpu.user == seen.user else gpu.user or "somebody"
        return f'<span title="{esc(name)}">{esc(who)}, {esc(name[:40])}</span>{reason}'
    if shown.state == "outside":
        return f"in use outside mgpu; not handed out{reason}"
    if shown.state == "closed" and gpu.state != "settling":
        return "closed: the node takes no jobs"
    state = "the memory of its last job is not back" if gpu.state == "settling" else NAMES[shown.state]
    return f"{state}{reason}"
