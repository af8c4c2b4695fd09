"""The Python client: all Python that speaks the REST API. Light: standard library and msgspec."""

from __future__ import annotations

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.transport import Timeouts

__all__ = ["Client", "Job", "Timeouts"]
