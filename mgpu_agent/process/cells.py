"""Where the program that runs Python cells is. Starts nothing.

Jobs of the agent's own user run it where mgpu is installed; other accounts may not have access there, and get
a copy that they can read.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from mgpu_agent.process.passage import open_passage

_PACKAGE = Path(__file__).resolve().parents[1]
_PROGRAM = "cell/runner.py"
_SHARED = ("protocol/variable_file.py", "protocol/wording.py")
RUNNER = str(_PACKAGE / _PROGRAM)


def copy_runner(passage: Path) -> str:
    """Copy the runner and what it loads to where all users can read it, and return its path."""
    place = passage / "runner"
    for source in (*(_PACKAGE / _PROGRAM).parent.glob("*.py"), *(_PACKAGE / name for name in _SHARED)):
        directory = open_passage(place / source.parent.name)
        try:
            _copy(source, directory)
        finally:
            os.close(directory)
    return str(place / _PROGRAM)


def _copy(source: Path, directory: int) -> None:
    temporary = f".{source.name}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=directory)
    descriptor = os.open(
        temporary,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o644,
        dir_fd=directory,
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(source.read_bytes())
        os.fchmod(descriptor, 0o644)
    os.replace(temporary, source.name, src_dir_fd=directory, dst_dir_fd=directory)
