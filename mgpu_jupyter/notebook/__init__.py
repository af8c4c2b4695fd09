"""The kernel's part: magics, and how a job looks in a cell. Reaches the master only through the client."""

from __future__ import annotations

from mgpu_jupyter.notebook.errors import JobCancelled, JobFailed

__all__ = ["JobCancelled", "JobFailed"]
