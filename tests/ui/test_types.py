"""The types that the extension is compiled against are those of this server."""

from __future__ import annotations

import re

from tests.ui.typescript import TARGET, typescript


def test_types_are_current() -> None:
    """On failure: python -m tests.ui.typescript."""
    assert TARGET.read_text(encoding="utf-8") == typescript()


def test_no_type_is_left_open_by_mistake() -> None:
    assert re.findall(r": any\b|any\[\]", typescript()) == []
