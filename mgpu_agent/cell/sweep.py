"""Gives a cell of a sweep its values as variables: `SWEEP_lr=0.1` in the environment becomes `lr = 0.1`.
Standard library only.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType

PREFIX = "SWEEP_"


def give(module: ModuleType) -> None:
    """Set the variables; numbers become numbers, anything else is text."""
    for name, text in os.environ.items():
        if name.startswith(PREFIX):
            module.__dict__[name[len(PREFIX) :]] = value_of(text)


def value_of(text: str) -> object:
    """Return a number, True, False or None where one is written, else the text."""
    if text in ("True", "False", "None"):
        return {"True": True, "False": False, "None": None}[text]
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
