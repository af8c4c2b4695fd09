"""Label expressions: `a100&(rack=r1|!old)` from text to a value that can be asked of a node's labels.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest

_TOKEN = re.compile(
    r"\s*(?:([&|!()])|([A-Za-z0-9_][A-Za-z0-9_./-]*)\s*(?:=\s*([A-Za-z0-9_.][A-Za-z0-9_./:-]*))?)"
)
_MAX_DEPTH = 50


class Has(msgspec.Struct, frozen=True, tag=True):
    """The node has this label; with a value, exactly that value."""

    name: str
    value: str | None = None


class Not(msgspec.Struct, frozen=True, tag=True):
    """The node does not satisfy this."""

    one: Expression


class AllOf(msgspec.Struct, frozen=True, tag=True):
    """The node satisfies all of these."""

    several: tuple[Expression, ...]


class AnyOf(msgspec.Struct, frozen=True, tag=True):
    """The node satisfies at least one of these."""

    several: tuple[Expression, ...]


Expression = Has | Not | AllOf | AnyOf


def holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    """Tell whether a node with these labels satisfies the expression."""
    match expression:
        case Has(name, value):
            return name in labels if value is None else labels.get(name) == value
        case Not(one):
            return not holds(one, labels)
        case AllOf(several):
            return all(holds(one, labels) for one in several)
        case _:
            return any(holds(one, labels) for one in expression.several)


def parse_constraint(text: str) -> Expression | None:
    """Read an expression; None for an empty text."""
    if not text.strip():
        return None
    reader = _Reader(text)
    expression = reader.any_of(0)
    reader.expect_end()
    return expression


class _Reader:
    """A recursive descent over tokens: `|` binds least, then `&`, then `!`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split())
        self._at = 0

    def any_of(self, depth: int) -> Expression:
        several = [self._all_of(depth)]
        while self._take("|"):
            several.append(self._all_of(depth))
        return several[0] if len(several) == 1 else AnyOf(tuple(several))

    def expect_end(self) -> None:
        if self._at < len(self._tokens):
            raise self._refusal()

    def _all_of(self, depth: int) -> Expression:
        several = [self._one(depth)]
        while self._take("&"):
            several.append(self._one(depth))
        return several[0] if len(several) == 1 else AllOf(tuple(several))

    def _one(self, depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise InvalidRequest(
                "bad-constraint",
                f"--constraint goes more than {_MAX_DEPTH} brackets or ! deep: write it flatter.",
            )
        if self._take("!"):
            return Not(self._one(depth + 1))
        if self._take("("):
            inner = self.any_of(depth + 1)
            if not self._take(")"):
                raise self._refusal()
            return inner
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if not isinstance(token, Has):
            raise self._refusal()
        self._at += 1
        return token

    def _take(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == sign:
            self._at += 1
            return True
        return False

    def _split(self) -> Iterator[str | Has]:
        position, end = 0, len(self._text.rstrip())
        while position < end:
            match = _TOKEN.match(self._text, position)
            if match is None:
                raise self._refusal()
            position = match.end()
            yield match[1] or Has(match[2], match[3])

    def _refusal(self) -> InvalidRequest:
        text = f"--constraint {self._text}: write labels with & | ! and brackets, as in a100&(rack=r1|!old)."
        return InvalidRequest("bad-constraint", text)
