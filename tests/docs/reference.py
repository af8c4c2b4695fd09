"""Which pages of the documentation are made from the code, and by what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.architecture import flag_page
from tests.docs import configuration, rest
from tests.docs.commands import commands_page, magics_page

FOLDER = Path(__file__).parents[2] / "mgpu_jupyter" / "docs"
PAGES: dict[str, Callable[[], str]] = {
    "flags.md": flag_page.page,
    "reference/commands.md": commands_page,
    "reference/magics.md": magics_page,
    "reference/rest.md": rest.page,
    "reference/configuration.md": configuration.page,
}
