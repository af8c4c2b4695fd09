"""What is shipped of the JupyterLab extension, looked at without Node; `make ui-check` builds it again and compares."""

from __future__ import annotations

import json
import re

from tests.ui import assets


def test_assets_were_built_from_these_sources() -> None:
    """On failure: make ui."""
    assert (assets.ASSETS / assets.STAMP).read_text().strip() == assets.digest()


def test_the_bundle_is_small() -> None:
    assert 10_000 < assets.size() < assets.MAX_BYTES


def test_the_shipped_package_loads_what_is_there() -> None:
    package = json.loads((assets.ASSETS / "package.json").read_text())
    assert (assets.ASSETS / package["jupyterlab"]["_build"]["load"]).is_file()
    assert (assets.ASSETS / "schemas" / package["name"] / "core.json").is_file()


def test_nothing_names_a_registry_or_a_place_of_this_machine() -> None:
    lock = (assets.SOURCES / "yarn.lock").read_text()
    assert re.findall(r"https?://[^\s\"]+", lock) == []
    home = str(assets.ROOT).encode()
    assert [name for name, data in assets.contents(assets.ASSETS).items() if home in data] == []


def test_sources_are_strict() -> None:
    """No `any`, no markup from text, one fetch."""
    found = []
    for path in sorted((assets.SOURCES / "src").rglob("*.ts*")):
        text = path.read_text()
        name = str(path.relative_to(assets.SOURCES / "src"))
        if re.search(r":\s*any\b|as any\b|<any>", text) or "dangerouslySetInnerHTML" in text or "console.log" in text:
            found.append(name)
        if "innerHTML" in text and name != "parts/tile.tsx":  # its patterns are constants
            found.append(name)
        if re.search(r"(?<!state\.)\bfetch\(", text) or "XMLHttpRequest" in text:
            found.append(name)
        if text.count("\n") > 450 and not name.endswith(".gen.ts"):
            found.append(name)
    assert found == []
