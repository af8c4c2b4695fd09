"""What is shipped of the JupyterLab extension, looked at without Node; `make ui-check` builds it and
compares.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.ui import assets


def test_what_is_shipped_says_which_sources_it_is_of() -> None:
    assert re.fullmatch("[0-9a-f]{64}\n", (assets.SHIPPED / assets.STAMP).read_text())


@pytest.mark.parametrize("changed", ["src/index.ts", "package.json", "style/base.css"])
def test_a_changed_source_is_noticed(changed: str, tmp_path: Path) -> None:
    sources, built = tmp_path / "sources", tmp_path / "built"
    built.mkdir()
    for name in ("src/index.ts", "style/base.css", *(name for name in assets.BUILT_FROM if "." in name[1:])):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text("before")
    before = assets.is_current(built, sources)
    (built / assets.STAMP).write_text(assets.digest(sources) + "\n")
    stamped = assets.is_current(built, sources)
    (sources / changed).write_text("after")
    assert (before, stamped, assets.is_current(built, sources)) == (False, True, False)


def test_the_bundle_is_small() -> None:
    assert 10_000 < assets.size(assets.SHIPPED) < assets.MAX_BYTES


def test_the_shipped_package_loads_what_is_there() -> None:
    package = json.loads((assets.SHIPPED / "package.json").read_text())
    assert (assets.SHIPPED / package["jupyterlab"]["_build"]["load"]).is_file()
    assert (assets.SHIPPED / "schemas" / package["name"] / "core.json").is_file()


def test_nothing_names_a_registry_or_a_place_of_this_machine() -> None:
    lock = (assets.SOURCES / "yarn.lock").read_text()
    assert re.findall(r"https?://[^\s\"]+", lock) == []
    home = str(assets.ROOT).encode()
    assert [name for name, data in assets.contents(assets.SHIPPED).items() if home in data] == []


def test_sources_are_strict() -> None:
    """No `any`, no markup from text, one fetch."""
    found = []
    for path in sorted((assets.SOURCES / "src").rglob("*.ts*")):
        text = path.read_text()
        name = str(path.relative_to(assets.SOURCES / "src"))
        if (
            re.search(r":\s*any\b|as any\b|<any>", text)
            or "dangerouslySetInnerHTML" in text
            or "console.log" in text
        ):
            found.append(name)
        if "innerHTML" in text and name != "parts/tile.tsx":  # its patterns are constants
            found.append(name)
        if re.search(r"(?<!state\.)\bfetch\(", text) or "XMLHttpRequest" in text:
            found.append(name)
        if text.count("\n") > 450 and not name.endswith(".gen.ts"):
            found.append(name)
    assert found == []
