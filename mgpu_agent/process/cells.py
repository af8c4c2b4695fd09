"""Where the program that runs Python cells lies. Starts nothing.

Jobs of the agent's own user run it where mgpu is installed; users of their own may not get there, and have a copy where they do.
"""

from __future__ import annotations

import os
from pathlib import Path

from mgpu_agent.process.spool import make_passage

_HOME = Path(__file__).resolve().parents[1] / "cell"
_PROGRAM = "runner.py"
RUNNER = str(_HOME / _PROGRAM)


def copy_runner(passage: Path) -> str:
    """Write the runner and what it loads to where all users of this machine can read it, and return its path."""
    directory = make_passage(passage / "runner")
    for source in _HOME.glob("*.py"):
        temporary = directory / f".{source.name}"
        temporary.write_bytes(source.read_bytes())
        os.chmod(temporary, 0o644)
        temporary.replace(directory / source.name)
    return str(directory / _PROGRAM)
