"""What types of settings and of the API say of their fields: texts below them, and JSON Schema in words."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

_KINDS = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "true or false",
    "null": "null",
}


def texts(struct: type) -> dict[str, str]:
    """Return the text below each field of a type, by its name, with those of the types that it builds on."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__.startswith("mgpu_"):
            found |= _own_texts(base)
    return found


def _own_texts(struct: type) -> dict[str, str]:
    tree = ast.parse(textwrap.dedent(inspect.getsource(struct))).body[0]
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        is_field = isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if is_field and isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            found[node.target.id] = inspect.cleandoc(str(following.value.value)).replace("\n", " ")
    return found


def about(struct: type) -> str:
    """Return what a type says of itself."""
    return (inspect.getdoc(struct) or "").split("\n\n")[0].replace("\n", " ")


def kind(schema: dict[str, Any], anchors: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return a JSON Schema in a few words; types are links to their tables, by `anchors` or their names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{anchors.get(name, name.lower())})"
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(kind(one, anchors) for one in schema["anyOf"]))
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        inner = schema.get("items") or next(iter(schema.get("prefixItems", [])), {})
        return f"list of {kind(inner, anchors)}" if inner else "list"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"table of {kind(inner, anchors)}" if isinstance(inner, dict) and inner else "table"
    return _KINDS.get(str(schema.get("type")), "anything") + _bounds(schema)


def _bounds(schema: dict[str, Any]) -> str:
    least = schema.get("minimum", schema.get("exclusiveMinimum"))
    most = schema.get("maximum", schema.get("exclusiveMaximum"))
    if least is None and most is None:
        return ""
    if most is None:
        return f" above {least}" if "exclusiveMinimum" in schema else f" from {least}"
    return f" from {least} to {most}" if least is not None else f" up to {most}"


def cell(text: str) -> str:
    """Return text as it stands in a table."""
    return " ".join(text.split()).replace("|", "\\|")


def table(*headings: str, rows: list[tuple[str, ...]]) -> str:
    """Return a table; rows hold text that is ready for it."""
    lines = [headings, tuple("---" for _ in headings), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
