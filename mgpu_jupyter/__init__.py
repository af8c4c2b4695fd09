"""mgpu: the GPUs of several machines as one pool inside JupyterLab."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mgpu_agent import __version__

if TYPE_CHECKING:
    from mgpu_jupyter.client import Client, Job
    from mgpu_jupyter.client.gather import gather, gather_async

__all__ = ["Client", "Job", "__version__", "gather", "gather_async"]


def __getattr__(name: str) -> Any:
    """Load the client only when it is asked for, so that the server extension and the agent stay light."""
    if name in ("Client", "Job"):
        from mgpu_jupyter import client

        return getattr(client, name)
    if name in ("gather", "gather_async"):
        from mgpu_jupyter.client import gather as gathering

        return getattr(gathering, name)
    raise AttributeError(f"module 'mgpu_jupyter' has no attribute {name!r}")


def load_ipython_extension(ipython: Any) -> None:
    """Register the magics: `%load_ext mgpu_jupyter`."""
    from mgpu_jupyter.notebook.magics import load

    load(ipython)


def _jupyter_server_extension_points() -> list[dict[str, Any]]:
    from mgpu_jupyter.server.app import MgpuApp

    return [{"module": "mgpu_jupyter", "app": MgpuApp}]
