"""What the documents list is what there is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from mgpu_jupyter.api.routes import PREFIX, ROUTES, Kind
from mgpu_jupyter.client.flags import ALL
from mgpu_jupyter.model.job import FINAL_STATES, JobState
from mgpu_jupyter.scheduler.transitions import TRANSITIONS
from tests.architecture.flag_page import page

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "SECURITY.md", "ARCHITECTURE.md", "DECISIONS.md", "CONTRIBUTING.md", "CHANGELOG.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _text(name: str) -> str:
    return (ROOT / name).read_text()


def test_readme_lists_every_route() -> None:
    listed = set(re.findall(r"^\| `(GET|POST|PUT|PATCH|DELETE|WS) ([\w./{}-]+)", _text("README.md"), re.MULTILINE))
    real = {("WS" if route.kind is Kind.WEBSOCKET else route.method, route.path) for route in ROUTES}
    assert listed == real
    assert f"/{PREFIX}" in _text("README.md")


@pytest.mark.parametrize("script", PROJECT["project"]["scripts"])
def test_readme_mentions_every_program(script: str) -> None:
    assert re.search(rf"\b{script}\b", _text("README.md"))


def test_readme_mentions_every_magic() -> None:
    text = _text("README.md")
    assert [
        magic for magic in ("%mgpu_srun", "%%mgpu_srun", "%mgpu_queue", "%mgpu_nodes", "%mgpu_cancel", "%mgpu_explain") if magic not in text
    ] == []


def test_the_page_of_flags_is_their_table() -> None:
    assert _text("mgpu_jupyter/docs/flags.md") == page(), "write it anew: .venv/bin/python -m tests.architecture.flag_page"


def test_readme_names_no_flag_that_there_is_not() -> None:
    shown = _text("README.md").partition("The flags that matter most")[2].partition("## In a terminal")[0]
    named = set(re.findall(r"`(--[a-z][a-z-]*)", "\n".join(line.split("|")[1] for line in shown.split("\n") if line.startswith("|"))))
    assert named - {name for flag in ALL for name in flag.names} == set()
    assert len(named) > 40


def test_readme_mentions_every_make_target() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", _text("Makefile"), re.MULTILINE)
    documents = _text("README.md") + _text("CONTRIBUTING.md")
    assert [target for target in targets if f"make {target}" not in documents and target != "help"] == []


def state_diagram() -> str:
    """Draw the table of transitions in the order of the states."""
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for state in JobState:
        lines += [f"    {state} --> {after}" for after in JobState if after in TRANSITIONS[state] and after != state]
    lines += [f"    {state} --> [*]" for state in JobState if state in FINAL_STATES]
    return "\n".join(lines)


def test_state_diagram_is_the_table_in_the_code() -> None:
    """On failure, paste the left side into ARCHITECTURE.md."""
    drawn = re.search(r"```mermaid\n(stateDiagram.*?)\n```", _text("ARCHITECTURE.md"), re.DOTALL)
    assert drawn
    assert state_diagram() == drawn.group(1)


def test_architecture_names_every_module() -> None:
    text = _text("ARCHITECTURE.md")
    modules = [
        path.relative_to(ROOT)
        for package in ("mgpu_agent", "mgpu_jupyter")
        for path in sorted((ROOT / package).rglob("*.py"))
        if path.name not in ("__init__.py", "__main__.py")
    ]
    assert [str(module) for module in modules if not re.search(rf"[`/ ]{re.escape(module.name)}\b", text)] == []
    names = {module.name for module in modules}
    assert [name for name in re.findall(r"[`/](\w+\.py)`", text) if name not in names] == []


def test_links_between_documents_lead_somewhere() -> None:
    broken = [
        f"{name}: {target}"
        for name in DOCUMENTS
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", _text(name))
        if not target.startswith("http") and not (ROOT / target).exists()
    ]
    assert broken == []


def test_changelog_has_an_unreleased_part() -> None:
    assert "\n## [Unreleased]\n" in _text("CHANGELOG.md")


def test_notebooks_are_stripped() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [(cell["execution_count"], cell["outputs"]) for cell in code] == [(None, [])] * len(code)
