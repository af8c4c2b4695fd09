"""Small drawings as SVG text: glyphs, GPU tiles, walls of tiles, plots. Pure; every incoming text is escaped
here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from mgpu_agent.protocol.text import as_html

TILE_WIDTH, TILE_HEIGHT, STRIP_HEIGHT = 14, 16, 2
PITCH = TILE_WIDTH + 2
ROW_TILES = 8
WALL_WIDTH = ROW_TILES * PITCH
WALL_HEIGHT = TILE_HEIGHT + 1 + STRIP_HEIGHT + 1
GAP_FACTOR = 3  # a plot has a gap where this many steps are missing

TileState = Literal["free", "mine", "others", "outside", "unhealthy", "closed"]
NAMES: dict[TileState, str] = {
    "free": "free",
    "mine": "mine",
    "others": "others’",
    "outside": "outside",
    "unhealthy": "unhealthy",
    "closed": "closed",
}
_LEVELLED = ("mine", "others", "outside")


class Tile(msgspec.Struct, frozen=True):
    """What a tile shows."""

    state: TileState
    busy: float | None = None
    """Percent."""
    memory: float | None = None
    """Share in use, 0 to 1."""
    simulated: bool = False
    picked: bool = False
    parts: tuple[Tile, ...] = ()
    """MIG instances of this GPU, drawn as fields of one tile."""


def esc(text: object) -> str:
    """Return any text so that HTML only shows it; invisible characters become spaces."""
    return as_html(text, lines=True)


def middle(name: str, length: int) -> str:
    """Return a name cut in its middle: `train-…-v17`."""
    if len(name) <= length:
        return name
    end = (length - 1) // 3
    return f"{name[: length - 1 - end]}…{name[-end:] if end else ''}"


_GLYPHS = {
    "queued": '<circle cx="8" cy="8" r="5.5"/><path d="M8 4.8V8l2.2 1.6"/>',
    "starting": '<circle cx="8" cy="8" r="5.5" stroke-dasharray="2 1.6"/><path d="M6.6 5.6 10.6 8l-4 2.4z" '
    'class="f"/>',
    "running": '<path d="M4.5 3 13 8l-8.5 5z" class="f"/>',
    "stopping": '<path d="M4.5 3 13 8l-8.5 5z"/>',
    "completed": '<path d="m3 8.5 3.4 3.4L13 4.6"/>',
    "failed": '<path d="m4 4 8 8m0-8-8 8"/>',
    "timeout": '<path d="M4 2.5h8M4 13.5h8M5 2.5c0 3.5 6 7.5 6 11m0-11c0 3.5-6 7.5-6 11"/>',
    "cancelled": '<circle cx="8" cy="8" r="5.5"/><path d="m4.2 11.8 7.6-7.6"/>',
    "never": '<circle cx="8" cy="8" r="5.5"/><path d="m4.2 11.8 7.6-7.6"/>',
    "held": '<path d="M5.5 3.5v9m5-9v9"/>',
    "warning": '<path d="M8 2.5 14 13H2zM8 6.5v3m0 1.2v.8"/>',
}
_SAID = {"never": "can never start", "held": "held", "warning": "warning"}


def glyph(kind: str, tone: str = "") -> str:
    """Return the glyph of a state; `tone` is a class: mine, bad, warn."""
    label = esc(_SAID.get(kind, kind))
    return (
        f'<svg class="mgpu-glyph {tone}" width="14" height="14" viewBox="0 0 16 16" role="img" '
        f'aria-label="{label}">{_GLYPHS[kind]}</svg>'
    )


def tile(shown: Tile, x: int = 0, y: int = 0) -> str:
    """Return one tile as a group: border and pale fill, the level from below, the strip of memory; for MIG
    instances a field each.
    """
    if not shown.parts:
        return _field(shown, x, y, TILE_WIDTH)
    edges = [round(TILE_WIDTH * number / len(shown.parts)) for number in range(len(shown.parts) + 1)]
    return "".join(
        _field(part, x + edges[number], y, edges[number + 1] - edges[number])
        for number, part in enumerate(shown.parts)
    )


def _field(shown: Tile, x: float, y: int, width: int) -> str:
    inner, middle_x = TILE_HEIGHT - 2, x + width / 2
    classes = f"mgpu-t {shown.state}{' sim' if shown.simulated else ''}{' pick' if shown.picked else ''}"
    parts = [
        (
            f'<rect class="b" x="{x + 0.5}" y="{y + 0.5}" width="{max(width - 1, 1)}" '
            f'height="{TILE_HEIGHT - 1}" rx="1.5"/>'
        )
    ]
    if shown.picked:
        parts.append(f'<path class="k" d="m{middle_x - 3:g} {y + 8.5} 2.4 2.4 4-5"/>')
    elif shown.state in _LEVELLED:
        level = round(inner * min(max(shown.busy or 0.0, 0.0), 100.0) / 100)
        if level:
            parts.append(
                f'<rect class="l" x="{x + 1}" y="{y + 1 + inner - level}" width="{max(width - 2, 1)}" '
                f'height="{level}"/>'
            )
    elif shown.state == "unhealthy":
        arm = min(3, width // 2)
        parts.append(f'<path class="k" d="m{middle_x - arm:g} {y + 5} {2 * arm} 6m0-6-{2 * arm} 6"/>')
    elif shown.state == "closed":
        dash = min(5.0, width * 0.6)
        parts.append(f'<path class="k" d="M{middle_x - dash / 2:g} {y + 8}h{dash:g}"/>')
    parts.append(
        f'<rect class="s" x="{x}" y="{y + TILE_HEIGHT + 1}" width="{width}" height="{STRIP_HEIGHT}"/>'
    )
    used = round(width * min(max(shown.memory or 0.0, 0.0), 1.0))
    if used:
        parts.append(
            f'<rect class="u" x="{x}" y="{y + TILE_HEIGHT + 1}" width="{used}" height="{STRIP_HEIGHT}"/>'
        )
    return f'<g class="{classes}">{"".join(parts)}</g>'


def wall(tiles: Sequence[Tile], label: str) -> str:
    """Return the GPUs of a node, eight in a row."""
    rows = max(1, -(-len(tiles) // ROW_TILES))
    drawn = "".join(
        tile(one, number % ROW_TILES * PITCH, number // ROW_TILES * WALL_HEIGHT)
        for number, one in enumerate(tiles)
    )
    return (
        f'<svg class="mgpu-wall" width="{WALL_WIDTH}" height="{rows * WALL_HEIGHT}" role="img" '
        f'aria-label="{esc(label)}">{drawn}</svg>'
    )


def one_tile(shown: Tile, label: str = "") -> str:
    """Return a tile alone; without a label it is decoration."""
    named = f'role="img" aria-label="{esc(label)}"' if label else 'aria-hidden="true"'
    return f'<svg class="mgpu-wall" width="{TILE_WIDTH}" height="{WALL_HEIGHT}" {named}>{tile(shown)}</svg>'


def plot(
    times: Sequence[float],
    values: Sequence[float | None],
    *,
    span: tuple[float, float],
    label: str,
    mine: bool,
    step_s: float = 2.0,
    width: int = 104,
    height: int = 18,
    top: float = 100.0,
) -> str:
    """Return a line over time with its area; gaps stay gaps. At most one point for each pixel."""
    start, end = span
    scale = (width - 2) / max(end - start, 1e-9)
    runs: list[list[tuple[int, float]]] = []
    last_at: float | None = None
    for at, value in zip(times, values, strict=False):
        if value is None or at < start or at > end:
            continue
        x = 1 + int((at - start) * scale)
        y = round(height - 1 - (height - 3) * min(max(value, 0.0), top) / top, 1)
        if last_at is None or at - last_at > GAP_FACTOR * max(step_s, 2.0):
            runs.append([])
        if runs[-1] and runs[-1][-1][0] == x:
            runs[-1][-1] = (x, y)
        else:
            runs[-1].append((x, y))
        last_at = at
    drawn = "".join(_run(points, height) for points in runs)
    kind = "mine" if mine else "others"
    base = f'<path class="z" d="M0 {height - 0.5}H{width}"/>'
    return (
        f'<svg class="mgpu-plot {kind}" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'preserveAspectRatio="none" '
        f'role="img" aria-label="{esc(label)}">{base}{drawn}</svg>'
    )


def _run(points: Sequence[tuple[int, float]], height: int) -> str:
    if len(points) == 1:
        points = [points[0], (points[0][0] + 1, points[0][1])]
    line = "L".join(f"{x} {y:g}" for x, y in points)
    return (
        f'<path class="a" d="M{points[0][0]} {height}L{line}L{points[-1][0]} {height}z"/><path class="n" '
        f'd="M{line}"/>'
    )


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the known values."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
