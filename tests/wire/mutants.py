"""Frames that no honest program sends: from true ones, by a program of bytes, so that the same bytes always
give the same frames.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import msgspec

from mgpu_agent.protocol.codec import PROTOCOL_VERSION

FRAMES_PER_PROGRAM = 100
NASTY: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    2**31,
    2**63,
    2**64 - 1,
    -(2**63),
    float("nan"),
    float("inf"),
    -0.5,
    "",
    "\0",
    "../../etc/passwd",
    ":enrol",
    "x" * 5_000,
    "é\u202e",
    b"",
    b"\xff\xfe",
    [],
    {},
    [[]],
    {"type": "hello"},
)


def mutants(program: bytes, originals: Sequence[bytes], count: int = FRAMES_PER_PROGRAM) -> list[bytes]:
    """Return `count` frames that `program` makes of the original ones."""
    dice = random.Random(program)
    return [_mutate(dice, dice.choice(originals)) for _ in range(count)]


def _mutate(dice: random.Random, frame: bytes) -> bytes:
    kind = dice.random()
    if kind < 0.5:
        return _swap_values(dice, frame)
    if kind < 0.7:
        changed = bytearray(frame)
        for _ in range(dice.randrange(1, 4)):
            changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
        return bytes(changed)
    if kind < 0.8:
        return frame[: dice.randrange(len(frame))]
    if kind < 0.9:
        return dice.randbytes(dice.randrange(200))
    if kind < 0.95:
        return frame + dice.randbytes(dice.randrange(1, 50))
    return b"\x91" * dice.randrange(1, 3_000) + frame  # very deep


def _swap_values(dice: random.Random, frame: bytes) -> bytes:
    """Replace one to three values somewhere inside; what remains is often a message of the right form."""
    try:
        tree = msgspec.msgpack.decode(frame)
    except msgspec.DecodeError:
        return frame
    for _ in range(dice.randrange(1, 4)):
        tree = _swap(dice, tree)
    if isinstance(tree, list) and tree and dice.random() < 0.9:
        tree[0] = PROTOCOL_VERSION
    return msgspec.msgpack.encode(tree)


def _swap(dice: random.Random, value: object) -> object:
    if isinstance(value, list) and value and dice.random() < 0.95:
        place = dice.randrange(len(value))
        return [*value[:place], _swap(dice, value[place]), *value[place + 1 :]]
    if isinstance(value, dict) and value and dice.random() < 0.95:
        name = dice.choice(sorted(value, key=repr))
        return {**value, name: _swap(dice, value[name])}
    return dice.choice(NASTY)
