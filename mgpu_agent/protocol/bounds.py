"""How large one message may be: every text, list and table that goes to the master has one of these types, so
that decoding checks it.

An enrolled node is not trusted to be modest. Bounds are far above what an honest node of any version sends,
and small enough that what the master keeps of one node stays within some tens of megabytes. A test goes
through all messages and fails for a field without one.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, inspect
from msgspec.structs import replace

GPUS = 1_024
"""Of one node, MIG instances included."""
PROCESSES_PER_GPU = 1_024
LINKS_PER_GPU = 64
LABELS = 256
TASKS = 100_000
RANKS = 65_536
PEERS = 65_536
FILES = 100_000
SEVERAL = 1_024
FRAMES_PER_MESSAGE = 1_024

Name = Annotated[str, Meta(max_length=256)]
"""A name, an id, a version, an address, a word."""
Line = Annotated[str, Meta(max_length=32_768)]
"""A sentence, or a path."""
Data = Annotated[bytes, Meta(max_length=1024 * 1024)]
Part = Annotated[memoryview, Meta(max_length=4 * 1024 * 1024)]


def clipped(value: Any, kind: inspect.Type) -> Any:
    """Return a value with whatever is too long cut off, so that an honest node is accepted whatever its jobs
    are called.
    """
    match kind:
        case inspect.StrType(max_length=int(limit)) if len(value) > limit:
            return f"{value[: limit - 1]}…"
        case inspect.VarTupleType(item_type=item, max_length=limit):
            return tuple(clipped(one, item) for one in value[:limit])
        case inspect.DictType(key_type=key, value_type=item, max_length=limit):
            return {clipped(name, key): clipped(one, item) for name, one in list(value.items())[:limit]}
        case inspect.StructType(fields=fields):
            return replace(
                value, **{field.name: clipped(getattr(value, field.name), field.type) for field in fields}
            )
        case inspect.UnionType(types=kinds):
            for one in kinds:
                if (isinstance(one, inspect.StructType) and type(value) is one.cls) or (
                    isinstance(one, inspect.StrType) and type(value) is str
                ):
                    return clipped(value, one)
    return value
