"""How much the master keeps and takes: of one folder, of the results of one job, and of one user. Values only; pure."""

from __future__ import annotations

import msgspec

from mgpu_jupyter.model.settings import Count

GIB = 1024**3


class Limits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Bytes; 0 for no limit."""

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
