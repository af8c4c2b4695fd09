"""Files of the server's own machine, told to the user who runs it there. Values only."""

from __future__ import annotations

import msgspec


class Nearby(msgspec.Struct, frozen=True, kw_only=True):
    """A file or directory of the server. A program that finds this very one, by device and inode, need not have its bytes sent."""

    path: str
    device: int
    inode: int
