"""Lines of mgpu's own, on stderr, apart from a job's output."""

from __future__ import annotations

import sys

from mgpu_agent.protocol.text import tell


def note(text: str) -> None:
    """Print a line; in a raw terminal, too, the next one begins at the left."""
    sys.stdout.flush()
    end = "\r\n" if sys.stderr.isatty() else "\n"
    tell(text, file=sys.stderr, flush=True, end=end)
