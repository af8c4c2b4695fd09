"""Writes the types of the REST interface as TypeScript, from the server's OpenAPI document.

Usage: python -m mgpu_jupyter.api.typescript FILE. `make ui` writes `labextension/src/api/types.gen.ts` with
it, and a test compares.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from mgpu_jupyter.api.openapi import document
from mgpu_jupyter.api.route import PREFIX, Kind
from mgpu_jupyter.api.routes import ROUTES

HEAD = "// Generated from the server's OpenAPI document by `make ui`. Do not edit.\n"
SCALARS = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typescript() -> str:
    """Return the whole file."""
    openapi = document()
    schemas: dict[str, dict[str, Any]] = openapi["components"]["schemas"]
    known = list(_structs(msgspec.Struct))
    # Names of `api` take precedence over those of `model`, whatever is imported.
    packages = ("mgpu_jupyter.model.", "mgpu_jupyter.api.")
    structs = {
        kind.__name__: kind for package in packages for kind in known if kind.__module__.startswith(package)
    }
    parts = [HEAD, f"export const PREFIX = '{PREFIX}';\n"]
    parts += [_declaration(name, schemas[name], structs.get(name)) for name in sorted(schemas)]
    for route in ROUTES:
        if route.kind is Kind.WEBSOCKET:
            answer = openapi["paths"][f"/{PREFIX}/{route.path}"][route.method.lower()]["responses"]["101"]
            parts.append(
                f"export type {route.operation[0].upper()}{route.operation[1:]}Frame = "
                f"{_type(answer['x-mgpu-frames']['schema'])};\n"
            )
    return "\n".join(parts)


def _structs(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """Yield all types that derive from this one."""
    for kind in base.__subclasses__():
        yield kind
        yield from _structs(kind)


def _declaration(name: str, schema: dict[str, Any], struct: type[msgspec.Struct] | None) -> str:
    doc = _comment(schema.get("description", ""), "")
    if schema.get("type") != "object" or "properties" not in schema:
        return f"{doc}export type {name} = {_type(schema)};\n"
    # May be left out when it has its default: answers that say so, and all optional fields of requests.
    may_lack = (
        struct is None
        or struct.__struct_config__.omit_defaults
        or struct.__struct_config__.forbid_unknown_fields
    )
    lines = []
    for field, kind in schema["properties"].items():
        optional = "?" if may_lack and field not in schema.get("required", ()) else ""
        lines.append(f"  {field}{optional}: {_type(kind)};\n")
    return f"{doc}export interface {name} {{\n{''.join(lines)}}}\n"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "anyOf" in schema:
        return " | ".join(dict.fromkeys(_type(one) for one in schema["anyOf"]))
    if "enum" in schema:
        return " | ".join(_literal(one) for one in schema["enum"])
    if "const" in schema:
        return _literal(schema["const"])
    kind = schema.get("type")
    if kind == "array":
        if "prefixItems" in schema:
            return f"[{', '.join(_type(one) for one in schema['prefixItems'])}]"
        inner = _type(schema["items"]) if isinstance(schema.get("items"), dict) else "unknown"
        return f"({inner})[]" if " " in inner and inner[0] != "[" else f"{inner}[]"
    if kind == "object":
        extra = schema.get("additionalProperties")
        return (
            f"{{ [name: string]: {_type(extra)} }}"
            if isinstance(extra, dict) and extra
            else "{ [name: string]: unknown }"
        )
    return SCALARS.get(str(kind), "unknown")


def _literal(value: object) -> str:
    return f"'{value}'" if isinstance(value, str) else json.dumps(value)


def _comment(text: str, indent: str) -> str:
    return f"{indent}/** {' '.join(text.split())} */\n" if text else ""


def main(path: Path) -> None:
    """Write the file."""
    path.write_text(typescript(), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
