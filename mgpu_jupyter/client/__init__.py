"""The Python client: the only thing in Python that speaks the REST API. Light: standard library and msgspec."""

from __future__ import annotations

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.timeouts import Timeouts

__all__ = ["Client", "Job", "Timeouts"]
