"""The types that the extension is compiled against are those of this server."""

from __future__ import annotations

import re
from pathlib import Path

from mgpu_jupyter.api.typescript import main, typescript

TYPES = Path(__file__).parents[2] / "labextension/src/api/types.gen.ts"


def test_types_are_current() -> None:
    """On failure: make ui."""
    assert TYPES.read_text(encoding="utf-8") == typescript()


def test_the_file_is_written_where_it_is_wanted(tmp_path: Path) -> None:
    main(tmp_path / "types.ts")
    assert (tmp_path / "types.ts").read_text(encoding="utf-8") == typescript()


def test_no_type_is_left_open_by_mistake() -> None:
    assert re.findall(r": any\b|any\[\]", typescript()) == []
