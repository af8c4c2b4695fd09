"""What a route is, and the parameters that several have. `routes.py` and `job_routes.py` list all routes."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mgpu_jupyter.api import histories, models
from mgpu_jupyter.model.job import PLAIN_PATTERN, JobState

PREFIX = "mgpu/api/v1"
IDEMPOTENCY_HEADER = "Idempotency-Key"
NDJSON = "application/x-ndjson"


class Kind(StrEnum):
    """What kind of exchange a route is."""

    JSON = "json"
    BYTES = "bytes"
    WEBSOCKET = "websocket"


class Parameter(msgspec.Struct, frozen=True):
    """A query parameter; `schema` is JSON Schema and describes exactly what the server accepts."""

    name: str
    help: str
    schema: dict[str, object] = msgspec.field(
        default_factory=lambda: {"type": "string", "pattern": PLAIN_PATTERN}
    )


class Route(msgspec.Struct, frozen=True):
    """One method on one path. `path` names its variables in braces."""

    method: str
    path: str
    operation: str
    """Name of the operation; unique."""
    summary: str
    status: int = 200
    kind: Kind = Kind.JSON
    request: object = None
    response: object = None
    example: object = None
    """A valid request body; every route that takes one has it."""
    query: tuple[Parameter, ...] = ()

    @property
    def is_write(self) -> bool:
        """Tell whether it changes something (and so needs more than the right to read)."""
        return self.method != "GET"


def whole(least: int, most: int) -> dict[str, object]:
    """Return the schema of a whole number within bounds."""
    return {"type": "integer", "minimum": least, "maximum": most}


STATE = f"(active|{'|'.join(JobState)})"
CURSOR: dict[str, object] = {"type": "string", "pattern": models.CURSOR_PATTERN}
RANK = Parameter(
    "rank",
    schema=whole(0, models.MAX_RANK),
    help="Only this rank; all of them if it is left out (0 for plain bytes).",
)
OFFSET = Parameter(
    "offset", schema=whole(0, models.MAX_OFFSET), help="Byte to start from; each rank has its own count."
)
OFFSETS = Parameter(
    "offsets",
    schema={"type": "string", "pattern": "^([0-9]{1,18}:[0-9]{1,18}(,[0-9]{1,18}:[0-9]{1,18})*)?$"},
    help="With frames: start of each rank as `rank:offset`, with commas between.",
)
ATTEMPT = Parameter(
    "attempt",
    schema=whole(0, models.MAX_OFFSET),
    help="The attempt that the offsets belong to; a newer one is sent from its start.",
)
FLAG: dict[str, object] = {"type": "string", "enum": ["0", "1", "false", "true"]}
SPAN = Parameter(
    "span",
    schema=whole(histories.LEAST_SPAN_S, histories.MAX_SPAN_S),
    help="How far to look back, in seconds; the older, the coarser.",
)
POINTS = Parameter(
    "points", schema=whole(1, histories.MAX_POINTS), help="At most this many points; 300 if left out."
)
SINCE = Parameter(
    "since",
    schema=whole(-1, models.MAX_OFFSET),
    help="Send all that changed after this sequence number first.",
)
