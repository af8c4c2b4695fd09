"""Finds the notebooks that come with mgpu: in a clone at its top, else in the package. Runs nothing."""

from __future__ import annotations

import shutil
from pathlib import Path

from mgpu_agent.protocol.errors import NotFound

_PACKAGED = Path(__file__).with_name("notebooks")  # the wheel has them here, see pyproject.toml
_IN_CLONE = Path(__file__).parents[2] / "notebooks"
DEFAULT = "quickstart"


def names() -> list[str]:
    """Return the names of the notebooks."""
    return sorted(path.stem for path in _folder().glob("*.ipynb"))


def notebook(name: str, copies: Path) -> Path:
    """Return a notebook that can be changed: the clone's own, or a kept copy of the installed one."""
    source = _folder() / f"{name}.ipynb"
    if name not in names():
        raise NotFound("no-notebook", f"There is no notebook {name}: it is one of {', '.join(names())}.")
    if source.parent == _IN_CLONE:
        return source
    copies.mkdir(parents=True, exist_ok=True)
    copy = copies / source.name
    if not copy.exists():
        shutil.copyfile(source, copy)
    return copy


def _folder() -> Path:
    return _PACKAGED if _PACKAGED.is_dir() else _IN_CLONE
