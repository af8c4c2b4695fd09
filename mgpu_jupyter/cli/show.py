"""How commands show things: JSON documents, help in pages, and whether stdout is a terminal.

Imports rich only when a table is drawn, so that `mgpu_srun` starts at once.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mgpu_agent.protocol.text import json_text, pad, tell, width

if TYPE_CHECKING:
    from rich.console import RenderableType
from mgpu_jupyter.api import models
from mgpu_jupyter.client.queue_columns import JSON_FIELDS

PAGER = "less -FRX"
CLEAR = "\x1b[H\x1b[2J"


def document(value: object) -> None:
    """Print one JSON document."""
    tell(json_text(value))


def clear() -> None:
    """Clear the screen, where there is one."""
    if sys.stdout.isatty():
        sys.stdout.write(CLEAR)


def on_terminal() -> bool:
    """Tell whether stdout is a terminal; pipes and files get plain text that scripts can rely on."""
    return sys.stdout.isatty() and os.environ.get("TERM", "") != "dumb"


def draw(*parts: RenderableType) -> None:
    """Print what rich draws; it respects NO_COLOR itself."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False, soft_wrap=False)
    for part in parts:
        console.print(part)


def show_help(text: str) -> int:
    """Print a help text, page by page where it is longer than the terminal; return the exit code."""
    rows = shutil.get_terminal_size().lines
    if not on_terminal() or text.count("\n") < rows or not _page(text):
        tell(*text.removesuffix("\n").split("\n"))
    return 0


def _page(text: str) -> bool:
    """Pass the text to the user's pager; tell whether there was one."""
    words = shlex.split(os.environ.get("PAGER") or PAGER)
    if not words or shutil.which(words[0]) is None:
        return False
    try:
        subprocess.run(words, input=text.encode(), check=False)
    except OSError:
        return False
    return True


def columns(rows: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """Return rows with aligned columns."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        gap.join(pad(cell, columns) for cell, columns in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )


def queue_json(jobs: Sequence[models.Job]) -> str:
    """Return the queue as the document of `--json`."""
    documents = []
    for job in jobs:
        fields = JSON_FIELDS if job.array_id is None else (*JSON_FIELDS, "array_id", "array_index")
        documents.append({field: getattr(job, field) for field in fields})
    return json_text({"jobs": documents})
