"""Keys, drags and the pointer as lines of text: what a panel makes of them."""

from __future__ import annotations

from mgpu_jupyter.notebook.panel.orders import Order, priority_there, read_order
from mgpu_jupyter.notebook.panel.rows import Row
from tests.notebook.panel_world import job


def test_what_a_drag_asks_for() -> None:
    rows = [
        Row(name, job(name, priority=priority)) for name, priority in {"A": 9, "B": 5, "C": 5, "D": 1}.items()
    ]

    def there(line: str) -> int | None:
        order = read_order(f"1 move {line}")
        assert order is not None
        return priority_there(rows, order)

    assert [there("D before B"), there("D after A"), there("D before A"), there("C before B")] == [
        6,
        6,
        10,
        6,
    ]
    assert [there("A after B"), there("A before C"), there("B after D"), there("B after C")] == [4, 4, 0, 4]
    assert [
        there("A before A"),
        there("A before B"),
        there("B after A"),
        there("X before B"),
        there("A before X"),
    ] == [None] * 5


def test_lines_that_are_no_orders() -> None:
    assert read_order("7 up R4T8W2ZB") == Order("up", "R4T8W2ZB")
    assert read_order("8 go") == Order("go")
    assert [read_order(line) for line in ("", "up", "1 up", "1 eat X", "1 move A before", "1 why A B")] == [
        None
    ] * 6
