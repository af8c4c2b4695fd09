"""Tiles, walls and plots of the panel: each shape with its numbers."""

from __future__ import annotations

import pytest

from mgpu_jupyter.notebook.panel.marks import Tile, glyph, one_tile, plot, tile, wall
from tests.notebook.visible import visible


def drawn(shown: Tile, x: int = 0, y: int = 0) -> list[str]:
    """Return the shapes of a tile, each with its numbers."""
    return [part.strip('/"><g ') for part in tile(shown, x, y).replace("</g>", "").split("><")]


BORDER = 'rect class="b" x="0.5" y="0.5" width="13" height="15" rx="1.5'
STRIP = 'rect class="s" x="0" y="17" width="14" height="2'


@pytest.mark.parametrize(
    ("shown", "parts"),
    [
        (Tile("free"), ['class="mgpu-t free', BORDER, STRIP]),
        (
            Tile("mine", busy=50.0, memory=0.5, simulated=True),
            [
                'class="mgpu-t mine sim',
                BORDER,
                'rect class="l" x="1" y="8" width="12" height="7',
                STRIP,
                'rect class="u" x="0" y="17" width="7" height="2',
            ],
        ),
        (
            Tile("others", busy=150.0, memory=2.0),
            [
                'class="mgpu-t others',
                BORDER,
                'rect class="l" x="1" y="1" width="12" height="14',
                STRIP,
                'rect class="u" x="0" y="17" width="14" height="2',
            ],
        ),
        (Tile("outside", busy=-5.0, memory=-1.0), ['class="mgpu-t outside', BORDER, STRIP]),
        (Tile("free", busy=50.0), ['class="mgpu-t free', BORDER, STRIP]),
        (
            Tile("mine", busy=50.0, picked=True),
            ['class="mgpu-t mine pick', BORDER, 'path class="k" d="m4 8.5 2.4 2.4 4-5', STRIP],
        ),
        (
            Tile("unhealthy"),
            ['class="mgpu-t unhealthy', BORDER, 'path class="k" d="m4 5 6 6m0-6-6 6', STRIP],
        ),
        (Tile("closed"), ['class="mgpu-t closed', BORDER, 'path class="k" d="M4.5 8h5', STRIP]),
    ],
)
def test_a_tile(shown: Tile, parts: list[str]) -> None:
    assert drawn(shown) == parts


def test_a_tile_in_its_place_and_one_of_parts() -> None:
    assert drawn(Tile("mine", busy=100.0, memory=1.0), 16, 20)[1:] == [
        'rect class="b" x="16.5" y="20.5" width="13" height="15" rx="1.5',
        'rect class="l" x="17" y="21" width="12" height="14',
        'rect class="s" x="16" y="37" width="14" height="2',
        'rect class="u" x="16" y="37" width="14" height="2',
    ]
    three = tile(Tile("free", parts=(Tile("closed"), Tile("unhealthy"), Tile("free", picked=True))), 2, 0)
    assert three.count("<g ") == 3
    fields = [part.partition('rx="')[0] for part in three.split('<rect class="b" ')[1:]]
    assert fields == [
        'x="2.5" y="0.5" width="4" height="15" ',
        'x="7.5" y="0.5" width="3" height="15" ',
        'x="11.5" y="0.5" width="4" height="15" ',
    ]
    assert [part.partition('"')[0] for part in three.split('<path class="k" d="')[1:]] == [
        "M3 8h3",
        "m7 5 4 6m0-6-4 6",
        "m10.5 8.5 2.4 2.4 4-5",
    ]


def test_a_wall_and_one_tile() -> None:
    page = wall([Tile("free")] * 9, "n1 <b>")
    assert page.startswith(
        '<svg class="mgpu-wall" width="128" height="40" role="img" aria-label="n1 &lt;b&gt;">'
    )
    assert [part.partition('"')[0] for part in page.split('class="s" x="')[1:]] == [
        *("0", "16", "32", "48", "64", "80", "96", "112", "0")
    ]
    assert page.count('y="37"') == 1
    assert wall([], "none").startswith('<svg class="mgpu-wall" width="128" height="20" ')
    assert one_tile(Tile("free")).startswith(
        '<svg class="mgpu-wall" width="14" height="20" aria-hidden="true">'
    )
    assert one_tile(Tile("free"), "GPU 0").startswith(
        '<svg class="mgpu-wall" width="14" height="20" role="img" aria-label="GPU 0">'
    )
    assert visible(glyph("never") + glyph("running", "mine") + glyph("held")) == [
        *("(can never start)", "(running)", "(held)")
    ]
    assert 'class="mgpu-glyph mine"' in glyph("running", "mine")


@pytest.mark.parametrize(
    ("times", "values", "lines"),
    [
        ((), (), []),
        ((0, 5, 10), (0.0, 50.0, 100.0), ["1 17L6 9.5L11 2"]),
        ((50,), (50.0,), ["52 9.5L53 9.5"]),
        ((0, 6, 12.1), (0.0, 0.0, 0.0), ["1 17L7 17", "13 17L14 17"]),
        ((0, 2, 4), (0.0, None, 100.0), ["1 17L5 2"]),
        ((-1, 0, 100, 101), (50.0, 0.0, 0.0, 50.0), ["1 17L2 17", "103 17L104 17"]),
        ((0, 0.2, 2), (0.0, 100.0, 0.0), ["1 2L3 17"]),
        ((0, 2), (-50.0, 500.0), ["1 17L3 2"]),
    ],
)
def test_a_plot(times: tuple[float, ...], values: tuple[float | None, ...], lines: list[str]) -> None:
    page = plot(times, values, span=(0, 100), label="busy", mine=True, width=104)
    assert [part.partition('"')[0] for part in page.split('class="n" d="M')[1:]] == lines
    areas = [part.partition('"')[0] for part in page.split('class="a" d="')[1:]]
    assert areas == [
        f"M{line.split(' ')[0]} 18L{line}L{line.rpartition('L')[2].split(' ')[0]} 18z" for line in lines
    ]
    assert page.startswith(
        '<svg class="mgpu-plot mine" width="104" height="18" viewBox="0 0 104 18" preserveAspectRatio="none" '
        'role="img" aria-label="busy"><path class="z" d="M0 17.5H104"/>'
    )


def test_plots_of_steps_that_are_longer_have_larger_gaps() -> None:
    times, values = (0, 30, 61), (0.0, 0.0, 0.0)
    page = plot(times, values, span=(0, 100), label="", mine=False, step_s=10.0)
    assert [part.partition('"')[0] for part in page.split('class="n" d="M')[1:]] == [
        "1 17L31 17",
        "63 17L64 17",
    ]
    assert 'class="mgpu-plot others"' in page
