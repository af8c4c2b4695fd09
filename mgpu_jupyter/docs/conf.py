"""Configures Sphinx for `make docs`. Contains nothing about mgpu that is not on a page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]

ROOT = Path(__file__).parents[2]
OF_THE_ROOT = ("ARCHITECTURE", "CONTRIBUTING", "DECISIONS", "CHANGELOG", "SECURITY")

project = "mgpu"
author = "The mgpu developers"
version = re.findall(r'__version__ = "([^"]+)"', (ROOT / "mgpu_agent" / "__init__.py").read_text())[0]
extensions = ["myst_parser"]
exclude_patterns = ["conf.py"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4
html_theme = "pydata_sphinx_theme"
html_title = f"mgpu {version}"
html_theme_options = {"show_prev_next": False, "navigation_with_keys": False}
html_show_sourcelink = False
html_show_sphinx = False
html_show_copyright = False
nitpicky = True


def lead_into_the_site(_app: Any, docname: str, source: list[str]) -> None:
    """Show documents of the repository's root as pages here, and rewrite links to them.

    On the repository's own pages the same links lead to the files.
    """
    up = "../" * docname.count("/")
    folder, _, name = docname.rpartition("/")
    if folder == "project" and name != "index":
        source[0] = (ROOT / f"{name.upper()}.md").read_text().replace("](mgpu_jupyter/docs/", f"]({up}")
    named = rf"\]\((?:\.\./)*({'|'.join(OF_THE_ROOT)})\.md"
    source[0] = re.sub(named, lambda found: f"]({up}project/{found[1].lower()}.md", source[0])


def setup(app: Any) -> None:
    """Register the hook; called by Sphinx."""
    app.connect("source-read", lead_into_the_site)
    app.add_lexer("mermaid", TextLexer)
