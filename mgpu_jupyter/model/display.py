"""The key that tells a cell's displays from what it only prints. Pure.

The notebook makes it with the request, the node's runner writes it with each display, and the owner's stream
sends it again to those who come back later. See `mgpu_agent/cell/display.py`.
"""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_jupyter.model.job import JobSpec

VARIABLE = "MGPU_DISPLAY_KEY"


def with_display(spec: JobSpec, key: str) -> JobSpec:
    """Return the request of a notebook with a key, if it is a Python cell, which may display."""
    if spec.script is None or spec.script.startswith("#!") or spec.pty or VARIABLE in spec.env:
        return spec
    return replace(spec, env={**spec.env, VARIABLE: key})


def display_key(spec: JobSpec) -> str:
    """Return the key of a request, or an empty string."""
    return spec.env.get(VARIABLE, "")
