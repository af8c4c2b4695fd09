"""Where a request came from, so that a notebook finds its jobs again. Digests only: the queue, which all may read, tells no paths."""

from __future__ import annotations

import hashlib
from typing import Annotated

import msgspec
from msgspec import Meta

DIGEST_CHARS = 32
Digest = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{DIGEST_CHARS}}})?$(?!\n)")]


class Origin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """The notebook, the cell and its text; what is not known is empty."""

    notebook: Digest = ""
    """Of the machine and the notebook's path on it."""
    cell: Digest = ""
    """Of the cell's id, in front ends that tell one."""
    source: Digest = ""
    """Of what the cell asks for."""

    def is_same_cell(self, other: Origin) -> bool:
        """Tell whether both are one cell with one text; where either knows no id of its cell, the text decides."""
        if not self.notebook or self.notebook != other.notebook or self.source != other.source:
            return False
        return self.cell == other.cell or not (self.cell and other.cell)


def digest(*parts: str) -> str:
    """Return what stands for these texts, in this order; empty if the last is empty."""
    if not parts[-1]:
        return ""
    found = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()[:DIGEST_CHARS]
