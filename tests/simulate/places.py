"""Where the real traces are; they are no part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).parents[2]


def folder() -> Path | None:
    """Return $MGPU_TRACES, else `shared/traces` in a folder above the repository, or None when there are no
    traces.
    """
    named = os.environ.get("MGPU_TRACES")
    places = [Path(named)] if named else [above / "shared" / "traces" for above in ROOT.parents]
    return next((place for place in places if place.is_dir()), None)
