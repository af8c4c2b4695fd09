"""One small class per path; `ALL` lists them for the application."""

from __future__ import annotations

from mgpu_jupyter.server.handlers import cluster, files, jobs, output, sockets
from mgpu_jupyter.server.handlers.base import Guarded, Unknown

_FOUND = (value for module in (cluster, files, jobs, output, sockets) for value in vars(module).values())
_HANDLERS = {kind for kind in _FOUND if isinstance(kind, type) and issubclass(kind, Guarded) and kind.path}
ALL: tuple[type[Guarded], ...] = tuple(
    sorted(_HANDLERS, key=lambda handler: (handler.path.count("{"), handler.path))
)
"""Every handler that has a path; paths without variables first, since the first match is taken."""

__all__ = ["ALL", "Guarded", "Unknown"]
