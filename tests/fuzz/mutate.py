"""Frames made of true ones by chance: the same seed and the same true ones give the same frames. Knows
msgpack, no message.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

NASTY: tuple[Any, ...] = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**53,
    2**63,
    2**64 - 1,
    -(2**63),
    float("nan"),
    float("inf"),
    float("-inf"),
    -0.5,
    1e308,
    "",
    "\0",
    "..",
    "../../etc/passwd",
    "/",
    ":enrol",
    "n1",
    "n2",
    "x" * 300,
    "é\u202e\x1b[2J",
    b"",
    b"\xff\xfe",
    b"\0" * 70,
    [],
    {},
    [[]],
    [None] * 20,
    {"type": "hello"},
    {"": {}},
    ["AB12CD34", 1, 1],
)
HUGE = (
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc6\x7f\xff\xff\xff",
    b"\xdc\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
)
FIXMAP, FIXMAP_MOST = 0x80, 0x8F
_encode = msgspec.msgpack.Encoder().encode


class Mutator:
    """Makes bodies of messages; `envelope` makes frames of them."""

    def __init__(self, seed: int, envelope: Callable[[bytes, random.Random], bytes]) -> None:
        self.dice = random.Random(seed)
        self._envelope = envelope
        self._trees: list[Any] = []
        self._bodies: list[bytes] = []
        self._kinds = (
            (self._swapped, 34),
            (self._removed, 8),
            (self._doubled, 6),
            (self._crossed, 10),
            (self._repeated, 12),
            (self._flipped, 12),
            (self._cut, 6),
            (self._spliced, 6),
            (self._lying, 3),
            (self._deep, 1),
            (self._noise, 2),
        )
        self._choices = [kind for kind, weight in self._kinds for _ in range(weight)]

    def learn(self, trees: Sequence[Any]) -> None:
        """Begin from these true messages."""
        self._trees = list(trees)
        self._bodies = [_encode(tree) for tree in trees]

    def frames(self, count: int) -> list[bytes]:
        """Return the next frames."""
        return [self._choices[self._below(100)]() for _ in range(count)]

    def _below(self, limit: int) -> int:
        return int(self.dice.random() * limit)

    def _tree(self) -> Any:
        return self._trees[self._below(len(self._trees))]

    def _body(self) -> bytes:
        return self._bodies[self._below(len(self._bodies))]

    def _wrap(self, tree: Any) -> bytes:
        return self._envelope(_encode(tree), self.dice)

    # --- of the right form ---------------------------------------------------------------------------

    def _swapped(self) -> bytes:
        tree = self._tree()
        for _ in range(1 + self._below(2)):
            tree = self._swap(tree, 0)
        return self._wrap(tree)

    def _swap(self, value: Any, depth: int) -> Any:
        if isinstance(value, dict) and value and (depth == 0 or self.dice.random() < 0.9):
            names = list(value)
            name = names[self._below(len(names))]
            if name == "type" and self.dice.random() < 0.8:
                name = names[-1]
            return {**value, name: self._swap(value[name], depth + 1)}
        if isinstance(value, list) and value and self.dice.random() < 0.9:
            place = self._below(len(value))
            return [*value[:place], self._swap(value[place], depth + 1), *value[place + 1 :]]
        if isinstance(value, int) and -(2**62) < value < 2**62 and self.dice.random() < 0.3:
            return value + self._below(5) - 2  # another attempt, another epoch, the next offset
        return NASTY[self._below(len(NASTY))]

    def _removed(self) -> bytes:
        tree = self._tree()
        if isinstance(tree, dict) and tree:
            tree = dict(tree)
            del tree[list(tree)[self._below(len(tree))]]
        return self._wrap(tree)

    def _doubled(self) -> bytes:
        """Say one field twice, the second time another value."""
        body = self._body()
        tree = msgspec.msgpack.decode(body)
        if not FIXMAP <= body[0] < FIXMAP_MOST or not tree:
            return self._envelope(body, self.dice)
        name = list(tree)[self._below(len(tree))]
        value = NASTY[self._below(len(NASTY))]
        return self._envelope(bytes([body[0] + 1]) + body[1:] + _encode(name) + _encode(value), self.dice)

    def _crossed(self) -> bytes:
        """The fields of two messages under the name of one."""
        one, other = self._tree(), self._tree()
        if isinstance(one, dict) and isinstance(other, dict):
            return self._wrap(
                {**other, **one} if self.dice.random() < 0.5 else {**one, "type": other.get("type")}
            )
        return self._wrap([one, other])

    def _repeated(self) -> bytes:
        """A true message at a time that is not its own, and now and then of another epoch."""
        return self._envelope(self._body(), self.dice)

    # --- of no form ----------------------------------------------------------------------------------

    def _flipped(self) -> bytes:
        changed = bytearray(self._envelope(self._body(), self.dice))
        for _ in range(1 + self._below(4)):
            changed[self._below(len(changed))] ^= 1 << self._below(8)
        return bytes(changed)

    def _cut(self) -> bytes:
        frame = self._envelope(self._body(), self.dice)
        return frame[: self._below(len(frame))]

    def _spliced(self) -> bytes:
        one, other = self._envelope(self._body(), self.dice), self._envelope(self._body(), self.dice)
        return one[: self._below(len(one))] + other[self._below(len(other)) :]

    def _lying(self) -> bytes:
        """A length that is not there."""
        frame = self._envelope(self._body(), self.dice)
        place = self._below(len(frame))
        return frame[:place] + HUGE[self._below(len(HUGE))] + frame[place + 1 :]

    def _deep(self) -> bytes:
        return self._envelope(
            (b"\x91", b"\x81\xa1a")[self._below(2)] * (1 + self._below(3_000)) + self._body(), self.dice
        )

    def _noise(self) -> bytes:
        return self.dice.randbytes(self._below(200))


def known_as(tree: Any, key: Sequence[Any], names: dict[str, str]) -> Any:
    """Return a tree in which each attempt is this one and each of these names another, so that it is about
    something that is there.
    """
    if isinstance(tree, dict):
        return {name: known_as(value, key, names) for name, value in tree.items()}
    if isinstance(tree, list):
        match tree:
            case [str(), int(), int()]:
                return list(key)
        return [known_as(value, key, names) for value in tree]
    return names.get(tree, tree) if isinstance(tree, str) else tree
