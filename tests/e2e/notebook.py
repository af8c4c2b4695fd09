"""A kernel driven as a notebook drives it: code in, messages with their times out."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

CELL_LIMIT_S = 150.0


class Piece(msgspec.Struct, frozen=True):
    """One message of a cell, with the time at which it arrived."""

    at: float
    kind: str
    content: dict[str, Any]


class Ran(msgspec.Struct, frozen=True):
    """What a cell did."""

    pieces: tuple[Piece, ...]

    def text(self, stream: str = "stdout") -> str:
        """Return all that was printed to one stream."""
        return "".join(
            piece.content["text"]
            for piece in self.pieces
            if piece.kind == "stream" and piece.content["name"] == stream
        )

    @property
    def error(self) -> str | None:
        """Return the name and sentence of the error that the cell raised, if it did."""
        for piece in self.pieces:
            if piece.kind == "error":
                return f"{piece.content['ename']}: {piece.content['evalue']}"
        return None

    def shown(self) -> str:
        """Return the plain text of what was displayed."""
        kinds = ("display_data", "execute_result", "update_display_data")
        return "\n".join(
            piece.content["data"].get("text/plain", "") for piece in self.pieces if piece.kind in kinds
        )


class Attached:
    """Speaks to a kernel that someone else started, by its connection file."""

    def __init__(self, connection_file: Path) -> None:
        self._client = BlockingKernelClient(connection_file=str(connection_file))

    def __enter__(self) -> Self:
        self._client.load_connection_file()
        self._client.start_channels()
        deadline = time.monotonic() + CELL_LIMIT_S
        while True:
            try:
                self._client.wait_for_ready(timeout=120)
            except RuntimeError:
                # A client without the process takes a kernel that is not up yet for a dead one.
                if time.monotonic() > deadline:
                    raise
            else:
                return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.stop_channels()

    def run(
        self, code: str, limit_s: float = CELL_LIMIT_S, watch: Callable[[str], None] | None = None
    ) -> Ran:
        """Run a cell to its end; `watch` is given all of stdout so far at every message."""
        message_id = self._client.execute(code)
        deadline = time.monotonic() + limit_s
        pieces: list[Piece] = []
        while True:
            try:
                message = self._client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(
                    f"The cell did not end within {limit_s:.0f} s; so far: {pieces}"
                ) from None
            if message["parent_header"].get("msg_id") != message_id:
                continue
            if message["msg_type"] == "status":
                if message["content"]["execution_state"] == "idle":
                    return Ran(tuple(pieces))
                continue
            pieces.append(Piece(time.monotonic(), message["msg_type"], message["content"]))
            if watch is not None:
                watch(Ran(tuple(pieces)).text())

    def complete(self, code: str) -> dict[str, Any]:
        """Return what the Tab key offers at the end of `code`."""
        return self._reply(self._client.complete(code, len(code)))

    def page(self, code: str) -> str:
        """Run a cell and return the help text that it opens beside the notebook."""
        reply = self._reply(self._client.execute(code))
        return "".join(one["data"]["text/plain"] for one in reply["payload"] if one["source"] == "page")

    def updates(self, display_id: str, until: str, limit_s: float = CELL_LIMIT_S) -> str:
        """Return the first text with `until` that a display is updated to while the kernel is idle."""
        deadline = time.monotonic() + limit_s
        while True:
            message = self._client.get_iopub_msg(timeout=max(0.1, deadline - time.monotonic()))
            if (
                message["msg_type"] == "update_display_data"
                and message["content"]["transient"]["display_id"] == display_id
            ):
                text = str(message["content"]["data"]["text/plain"])
                if until in text:
                    return text

    def _reply(self, message_id: str, limit_s: float = CELL_LIMIT_S) -> dict[str, Any]:
        deadline = time.monotonic() + limit_s
        while True:
            message = self._client.get_shell_msg(timeout=max(0.1, deadline - time.monotonic()))
            if message["parent_header"].get("msg_id") == message_id:
                return dict(message["content"])


class Notebook(Attached):
    """Owns one kernel process; leaving the `with` block ends it."""

    def __init__(
        self,
        env: dict[str, str],
        directory: Path,
        *,
        kernel: str = "python3",
        kernel_dirs: Sequence[Path] = (),
    ) -> None:
        self._env = env
        self._directory = directory
        self._manager = KernelManager(kernel_name=kernel)
        if kernel_dirs:
            self._manager.kernel_spec_manager = KernelSpecManager(
                kernel_dirs=[str(one) for one in kernel_dirs]
            )

    def __enter__(self) -> Self:
        self._manager.start_kernel(env=self._env, cwd=str(self._directory))
        self._client = self._manager.blocking_client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=120)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._manager.shutdown_kernel(now=True)
        self._manager.cleanup_resources()

    def interrupt(self) -> None:
        """Do what the stop button does."""
        self._manager.interrupt_kernel()

    def run_and_interrupt(self, code: str, when: str, limit_s: float = CELL_LIMIT_S) -> Ran:
        """Run a cell and press stop as soon as `when` was printed."""
        pressed = threading.Event()

        def watch(text: str) -> None:
            if when in text and not pressed.is_set():
                pressed.set()
                self.interrupt()

        return self.run(code, limit_s, watch)
