"""What is asked of ipykernel so that a widget hears clicks while its cell runs. All that is not its public interface is here, guarded.

A click reaches a busy kernel over a subshell (ipykernel 7, JupyterLab 4.4 on), which a front end opens when it hears of the first
widget. A test says when ipykernel has changed; without what is looked for here there are no such buttons, and Stop cancels.
"""

from __future__ import annotations

from typing import Any

ROUTE = "_reply_subshell_id"
"""Where a comm of ipykernel 7.4 notes the shell that used it last, and sends all that comes for it."""


def are_supported(kernel: object) -> bool:
    """Tell whether this kernel can have subshells."""
    return bool(getattr(kernel, "_supports_kernel_subshells", False)) and _manager(kernel) is not None


def are_open(kernel: object) -> bool:
    """Tell whether a front end opened one."""
    manager = _manager(kernel)
    return manager is not None and bool(manager.list_subshell())


def listen_where_it_is_sent(comm: object) -> None:
    """Let messages for a comm go where the front end sends them, not to the busy shell that used the comm last."""
    if comm is not None and ROUTE in getattr(comm, "__dict__", {}):
        delattr(comm, ROUTE)


def _manager(kernel: object) -> Any:
    manager = getattr(getattr(kernel, "shell_channel_thread", None), "manager", None)
    return manager if callable(getattr(manager, "list_subshell", None)) else None
