"""How much one user may ask at once, and how much the master keeps and takes of folders, results and users. Values only; pure."""

from __future__ import annotations

import msgspec

from mgpu_jupyter.model.settings import AtLeastOne, Count, Positive

GIB = 1024**3


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What is beyond is refused with 429 and a sentence. Bytes of 0 are no limit."""

    at_once: AtLeastOne = 64
    """Requests that are worked on at a time; of one user half of them. Others wait, and users take turns."""
    heavy_at_once: AtLeastOne = 16
    """The same for those that compute long or ask nodes."""
    waiting: AtLeastOne = 1000
    """Requests of one user that may wait for their turn."""
    requests_per_s: Positive = 2000.0
    heavy_per_s: Positive = 20.0
    burst_s: Positive = 5.0
    """How many seconds' worth of requests may come at once."""
    streams: AtLeastOne = 256
    """WebSockets, followed output and files under way of one user."""
    body_mb: AtLeastOne = 64
    """Of requests of one user that are under way."""
    folder_bytes: Count = 20 * GIB
    """One folder (--sync) when it is laid out on a node, and the variables (--in) of one cell."""
    results_bytes: Count = 20 * GIB
    """What one attempt leaves on one node, files (--results) and variables (--out) together."""
    user_folders_bytes: Count | None = None
    """Folders and variables of one user that are kept; half of `folders_cap` if not set."""
    user_output_bytes: Count | None = None
    """Output of all jobs of one user; a quarter of the disk if not set."""
    user_results_bytes: Count | None = None
    """Results of all jobs of one user; a quarter of the disk if not set."""
    user_queued_bytes: Count = 256 * 1024**2
    """All requests of one user that wait, with their scripts and environments."""
