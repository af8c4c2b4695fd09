"""What is needed of ipykernel so that a widget receives clicks while its cell runs. All use of its private
interface is here, guarded.

A click reaches a busy kernel over a subshell (ipykernel 7, JupyterLab 4.4 on), which a front end opens when
it learns of the first widget. A test fails when ipykernel has changed; without the attributes used here there
are no such buttons, and Stop cancels.
"""

from __future__ import annotations

from typing import Any

ROUTE = "_reply_subshell_id"
"""Where a comm of ipykernel 7.4 notes the shell that used it last, and to which its messages go."""


def are_supported(kernel: object) -> bool:
    """Tell whether this kernel can have subshells."""
    return bool(getattr(kernel, "_supports_kernel_subshells", False)) and _manager(kernel) is not None


def are_open(kernel: object) -> bool:
    """Tell whether a front end opened one."""
    manager = _manager(kernel)
    return manager is not None and bool(manager.list_subshell())


def listen_where_it_is_sent(comm: object) -> None:
    """Have messages for a comm handled where the front end sends them, not in the busy shell that used the
    comm last.
    """
    if comm is not None and ROUTE in getattr(comm, "__dict__", {}):
        delattr(comm, ROUTE)


def _manager(kernel: object) -> Any:
    manager = getattr(getattr(kernel, "shell_channel_thread", None), "manager", None)
    return manager if callable(getattr(manager, "list_subshell", None)) else None
