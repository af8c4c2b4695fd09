"""The pages that are made from the code are what the code says, and say what everything means."""

from __future__ import annotations

import re

import pytest

from mgpu_jupyter.api.route import PREFIX, Kind
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.notebook.parsers import PARSERS
from tests.docs.reference import FOLDER, PAGES


def shown(name: str) -> str:
    return (FOLDER / name).read_text()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert shown(name) == PAGES[name](), "make fmt writes it anew"


def test_every_route_has_its_line_and_its_part() -> None:
    text = shown("reference/rest.md")
    listed = set(re.findall(r"^\| \[`(GET|POST|PUT|PATCH|DELETE|WS) ([\w./{}-]+)`\]", text, re.MULTILINE))
    real = {("WS" if route.kind is Kind.WEBSOCKET else route.method, route.path) for route in ROUTES}
    assert listed == real
    assert set(re.findall(r"^### ([a-z]\w+)$", text, re.MULTILINE)) == {route.operation for route in ROUTES}
    assert f"/{PREFIX}" in text


def test_every_magic_has_its_part() -> None:
    assert re.findall(r"^## %(\w+)$", shown("reference/magics.md"), re.MULTILINE) == list(PARSERS)


@pytest.mark.parametrize(
    "name", ["reference/configuration.md", "reference/commands.md", "reference/magics.md"]
)
def test_whatever_can_be_set_says_what_it_means(name: str) -> None:
    rows = [line for line in shown(name).splitlines() if line.startswith("| `")]
    assert len(rows) > 10
    assert [row for row in rows if row.endswith("|  |")] == []
