"""What the documents list is what there is."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from mgpu_jupyter.client.flags import ALL
from mgpu_jupyter.model.job import FINAL_STATES, JobState
from mgpu_jupyter.notebook.parsers import PARSERS
from mgpu_jupyter.scheduler.transitions import TRANSITIONS
from tests.architecture import contents

ROOT = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "SECURITY.md", "ARCHITECTURE.md", "DECISIONS.md", "CONTRIBUTING.md", "CHANGELOG.md")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def _text(name: str) -> str:
    return (ROOT / name).read_text()


def test_readme_can_be_read_at_once() -> None:
    assert len(_text("README.md").encode()) <= 9_000


@pytest.mark.parametrize("script", PROJECT["project"]["scripts"])
def test_a_page_says_what_each_program_is_for(script: str) -> None:
    assert re.search(rf"\b{script}\b", _text("mgpu_jupyter/docs/howto/terminal.md"))


def test_the_page_for_notebooks_names_every_magic() -> None:
    text = _text("mgpu_jupyter/docs/notebook.md")
    assert [magic for magic in ("%mgpu_srun", *PARSERS) if f"`%{magic}" not in text] == []


def test_the_page_for_requests_names_no_flag_that_there_is_not() -> None:
    lines = _text("mgpu_jupyter/docs/howto/ask-for-gpus.md").splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("|")]
    named = set(re.findall(r"`(--[a-z][a-z-]*)", "\n".join(cells)))
    assert named - {name for flag in ALL for name in flag.names} == set()
    assert len(named) > 40


def test_documents_mention_every_make_target() -> None:
    targets = re.findall(r"^([a-z-]+):.*## ", _text("Makefile"), re.MULTILINE)
    documents = _text("README.md") + _text("CONTRIBUTING.md")
    assert [target for target in targets if f"make {target}" not in documents and target != "help"] == []


def state_diagram() -> str:
    """Draw the table of transitions in the order of the states."""
    lines = ["stateDiagram-v2", "    [*] --> queued"]
    for state in JobState:
        lines += [
            f"    {state} --> {after}" for after in JobState if after in TRANSITIONS[state] and after != state
        ]
    lines += [f"    {state} --> [*]" for state in JobState if state in FINAL_STATES]
    return "\n".join(lines)


def test_state_diagram_is_the_table_in_the_code() -> None:
    """On failure, paste the left side into ARCHITECTURE.md."""
    drawn = re.search(r"```mermaid\n(stateDiagram.*?)\n```", _text("ARCHITECTURE.md"), re.DOTALL)
    assert drawn
    assert state_diagram() == drawn.group(1)


def test_lists_are_made_from_what_they_list() -> None:
    """Packages by their docstrings, decisions by their titles. On failure: make fmt."""
    assert {path.name: path.read_text() for path in contents.documents()} == {
        path.name: text for path, text in contents.documents().items()
    }


def test_decisions_are_numbered_in_order() -> None:
    numbers = [number for number, _ in contents.decisions(_text("DECISIONS.md"))]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 70


def test_architecture_can_be_read_in_one_sitting() -> None:
    assert len(_text("ARCHITECTURE.md").encode()) < 14_000


@pytest.mark.parametrize("name", ["ARCHITECTURE.md", "mgpu_jupyter/docs/internals.md"])
def test_files_that_are_named_exist(name: str) -> None:
    paths = {
        str(path.relative_to(ROOT))
        for folder in ("mgpu_agent", "mgpu_jupyter")
        for path in (ROOT / folder).rglob("*.py")
    }
    named = re.findall(r"`([\w/]+\.py)`", _text(name))
    assert len(named) > 5
    assert [one for one in named if not any(f"/{path}".endswith(f"/{one}") for path in paths)] == []


def test_links_between_documents_lead_somewhere() -> None:
    pages = [ROOT / name for name in DOCUMENTS] + sorted((ROOT / "mgpu_jupyter/docs").rglob("*.md"))
    broken = [
        f"{page.name}: {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert broken == []


def test_changelog_has_an_unreleased_part() -> None:
    assert "\n## [Unreleased]\n" in _text("CHANGELOG.md")


def test_notebooks_are_stripped() -> None:
    for path in (ROOT / "notebooks").glob("*.ipynb"):
        cells = json.loads(path.read_text())["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        assert [(cell["execution_count"], cell["outputs"]) for cell in code] == [(None, [])] * len(code)
