"""Folders that travel with jobs: what is missing of one, and pieces of it. Everybody has only their own."""

from __future__ import annotations

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.folders import MAX_LIST_BYTES
from mgpu_jupyter.api import folders
from mgpu_jupyter.server.handlers.base import Guarded


class MissingHandler(Guarded):
    """Which pieces are not here."""

    path = "folders/missing"

    async def post(self) -> None:
        """Look for pieces of the one who asks."""
        wanted = self.read_body(folders.Digests).digests
        tray = self.near(self.service.folders.tray)
        if tray is not None:
            await self.service.folders.take_laid(self.person, wanted)
        self.answer(folders.Missing(missing=tuple(await self.service.folders.missing(self.person, wanted)), tray=tray))


class PiecesHandler(Guarded):
    """New pieces."""

    path = "folders/pieces"

    async def post(self) -> None:
        """Keep pieces of the one who sends them."""
        if self.request.headers.get("Content-Type", "") == folders.RAW:
            await self._take_raw(self.request.body)
            return
        pieces = self.read_body(folders.Pieces).pieces
        if any(len(piece) > MAX_LIST_BYTES for piece in pieces):
            raise InvalidRequest("piece-too-large", f"A piece may have {MAX_LIST_BYTES} bytes: send the folder with mgpu's own client.")
        self.answer(folders.Digests(digests=tuple(await self.service.folders.put(self.person, pieces))), 201)

    async def _take_raw(self, body: bytes) -> None:
        """Keep one piece that came as it is."""
        if not 0 < len(body) <= MAX_LIST_BYTES:
            raise InvalidRequest("piece-too-large", f"A piece has 1 to {MAX_LIST_BYTES} bytes: send it with mgpu's own client.")
        self.answer(folders.Digests(digests=tuple(await self.service.folders.put(self.person, (memoryview(body),)))), 201)
