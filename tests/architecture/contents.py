"""Lists in documents that are made from what they list: packages in ARCHITECTURE.md, the index of
DECISIONS.md.

Usage: python -m tests.architecture.contents [--map]. Writes both, as `make fmt` does; with `--map` prints
every module with the first sentence of its docstring, as `make map` does. `test_documents.py` compares.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("mgpu_agent", "mgpu_jupyter")
START, END = "<!-- made by make fmt -->\n", "<!-- end -->\n"


def first_sentence(path: Path) -> str:
    """Return what a module says of itself first."""
    text = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0].replace("\n", " ")
    return re.split(r"(?<=\w[.)])\s+(?=[A-Z`])", text)[0].rstrip(".")


def modules(*, packages: bool) -> Iterator[tuple[str, Path]]:
    """Yield packages, or modules, by the path that people know them by."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if (path.name == "__init__.py") is packages:
                yield str((path.parent if packages else path).relative_to(ROOT)), path


def package_table() -> str:
    """Return the packages as a table."""
    rows = [
        f"| `{name}` | {first_sentence(path)} |\n" for name, path in modules(packages=True) if "/" in name
    ]
    return "".join(["| package | is |\n| --- | --- |\n", *rows])


def decisions(text: str) -> list[tuple[int, str]]:
    """Return number and title of each decision, in the order of the document."""
    return [(int(number), title) for number, title in re.findall(r"^## (\d+)\. (.+)$", text, re.MULTILINE)]


def decision_index(text: str) -> str:
    """Return the titles as a list of links, with the anchors that GitHub gives headings."""
    lines = []
    for number, title in decisions(text):
        anchor = re.sub(r"[^\w\- ]", "", f"{number}. {title}".lower()).replace(" ", "-")
        lines.append(f"- {number}. [{title}](#{anchor})\n")
    return "".join(lines)


def with_list(text: str, made: str) -> str:
    """Return a document with this list in its place."""
    before, mark, rest = text.partition(START)
    _, end, after = rest.partition(END)
    if not (mark and end):
        raise ValueError("the document has no place for the list")
    return f"{before}{START}\n{made}\n{END}{after}"


def documents() -> dict[Path, str]:
    """Return the documents as they should be."""
    architecture, record = ROOT / "ARCHITECTURE.md", ROOT / "DECISIONS.md"
    text = record.read_text()
    return {
        architecture: with_list(architecture.read_text(), package_table()),
        record: with_list(text, decision_index(text)),
    }


if __name__ == "__main__":
    if sys.argv[1:] == ["--map"]:
        for name, path in modules(packages=False):
            print(f"{name:<48} {first_sentence(path)}")
    else:
        for path, text in documents().items():
            path.write_text(text)
