"""Random values of any message type, made from its annotations alone, so that a new field is tried without a
change here.
"""

from __future__ import annotations

import types
import typing
from typing import NewType

import msgspec
from hypothesis import strategies as st

_LEAVES: dict[object, st.SearchStrategy[object]] = {
    int: st.integers(-(2**63), 2**64 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(max_size=20),
    bytes: st.binary(max_size=50),
    memoryview: st.binary(max_size=50).map(memoryview),
    bool: st.booleans(),
    type(None): st.none(),
}


def values_of(kind: object) -> st.SearchStrategy[object]:
    """Return a strategy for the annotated type `kind`."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    if isinstance(kind, NewType):
        return values_of(kind.__supertype__)
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        return values_of(arguments[0])
    if origin is tuple:
        return st.lists(values_of(arguments[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values_of(arguments[0]), values_of(arguments[1]), max_size=3)
    if origin in (types.UnionType, typing.Union):
        return st.one_of([values_of(argument) for argument in arguments])
    assert isinstance(kind, type)
    assert issubclass(kind, msgspec.Struct)
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: values_of(hints[name]) for name in kind.__struct_fields__})
