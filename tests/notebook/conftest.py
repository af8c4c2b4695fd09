from __future__ import annotations

import atexit
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from IPython.core.interactiveshell import ExecutionResult, InteractiveShell
from traitlets.config import Config

from mgpu_jupyter.client import Client, Timeouts, front
from mgpu_jupyter.client.mock import MockTransport, Play
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.notebook import magics


class Shell:
    """A shell without history files, with the magics on a mock transport."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        config = Config()
        config.HistoryManager.enabled = False
        config.InteractiveShell.colors = "nocolor"
        self.mock = MockTransport()
        self.shell = InteractiveShell(config=config, ipython_dir=str(directory))
        monkeypatch.setattr(
            magics.MgpuMagics.__init__,
            "__defaults__",
            (lambda: Client(transport=self.mock, timeouts=Timeouts(retry_s=0)),),
        )
        monkeypatch.setattr(magics.secrets, "token_hex", lambda _: "key")
        magics.load(self.shell)

    def plays(self, play: Callable[[JobSpec], Play], on_hold: Callable[[], None] | None = None) -> None:
        self.mock = MockTransport(play, on_hold=on_hold)

    def run(self, code: str) -> ExecutionResult:
        return self.shell.run_cell(code)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    monkeypatch.setitem(os.environ, "IPYTHONDIR", str(tmp_path))
    one = Shell(tmp_path, monkeypatch)
    atexit.unregister(one.shell.atexit_operations)
    yield one
    one.shell.atexit_operations()
    front.use(front.TextFront())
