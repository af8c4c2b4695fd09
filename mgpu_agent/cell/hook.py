"""Waits for a cell to import IPython's display functions or Matplotlib, and only then loads `display.py`,
which connects them to the notebook.

Costs an entry in `sys.meta_path`. Standard library only: it runs with the interpreter of the job.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any

BACKEND = "mgpu_figures"
"""The name of Matplotlib's backend; no file has it."""


class ImportHook:
    """A finder that finds no module itself, and acts when one of three is imported."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load
        self._looking: set[str] = set()
        self._after = {"IPython.core.display_functions": "patch_display", "matplotlib": "patch_matplotlib"}

    def find_spec(self, name: str, *_where: object) -> ModuleSpec | None:
        """Return the spec of the other finders, with a loader that adds our step."""
        if name == BACKEND:
            from importlib.machinery import ModuleSpec

            return ModuleSpec(name, _Backend(self._load))  # type: ignore[arg-type]
        if name not in self._after or name in self._looking:
            return None
        self._looking.add(name)
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
        finally:
            self._looking.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._load, self._after[name])  # type: ignore[assignment]
        return spec


class _Loader:
    """Runs another loader, and then one function of `display.py`."""

    def __init__(self, loader: Any, load: Callable[[], Any], after: str) -> None:
        self._loader = loader
        self._load = load
        self._after = after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        getattr(self._load(), self._after)(module)


class _Backend:
    """Makes the backend when Matplotlib asks for it."""

    def __init__(self, load: Callable[[], Any]) -> None:
        self._load = load

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002 - the interface of loaders
        return None

    def exec_module(self, module: ModuleType) -> None:
        self._load().fill_backend(module)


def prepare(load: Callable[[], Any]) -> None:
    """Begin to wait; `load` returns `display.py`."""
    sys.meta_path.insert(0, ImportHook(load))
