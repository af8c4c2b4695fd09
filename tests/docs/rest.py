"""The page about REST, made from the table of routes and the types that check requests and answers."""

from __future__ import annotations

import json
from itertools import groupby
from typing import Any

import msgspec

from mgpu_jupyter.api import openapi
from mgpu_jupyter.api.models import MAX_BODY_BYTES, ErrorBody
from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER, PREFIX, Kind, Route
from mgpu_jupyter.api.routes import ROUTES
from tests.docs.fields import about, cell, kind, table, texts

HEAD = f"""# REST

Written by `make fmt` from `mgpu_jupyter/api/`; a test compares. `GET openapi.json` is the same as OpenAPI.

Under `/{PREFIX}` of the Jupyter server; every route and socket needs the server's token or an mgpu token,
in the header `Authorization` (`mgpu …`, `Bearer …` or `token …`). Errors are
`{{"code", "message", "details"}}`, and the message says what to do:
400 for a request that is not right, 409 for one that fits no machine there is, 413 for more than
{MAX_BODY_BYTES // 1024**2} MiB, 429 with `Retry-After` for what is beyond
[the limits](../howto/cluster-file.md). Who may use which route:
[Security](../security.md#every-route-and-socket).

A submit with the header `{IDEMPOTENCY_HEADER}` is the same job whenever it is sent again.

"""
SECTIONS = {
    "jobs": "Jobs",
    "nodes": "Nodes",
    "cluster": "The cluster",
    "users": "Users",
    "folders": "Folders",
}
OTHERS = "The server"


def page() -> str:
    """Return the page."""
    routes = sorted(ROUTES, key=_section)
    parts = [
        HEAD,
        table(
            "route",
            "does",
            rows=[(f"[`{_shown(one)}`](#{_anchor(one)})", cell(one.summary)) for one in ROUTES],
        ),
    ]
    document = openapi.document()
    for section, some in groupby(routes, key=_section):
        parts.append(f"\n## {section}\n")
        parts += [_of(route, document) for route in some]
    parts.append("\n## Types\n")
    parts += [_type(name, schema) for name, schema in sorted(document["components"]["schemas"].items())]
    return "".join(parts)


def _section(route: Route) -> str:
    return SECTIONS.get(route.path.split("/")[0], OTHERS)


def _method(route: Route) -> str:
    return "WS" if route.kind is Kind.WEBSOCKET else route.method


def _shown(route: Route) -> str:
    return f"{_method(route)} {route.path}"


def _anchor(route: Route) -> str:
    return route.operation.lower()


def _of(route: Route, document: dict[str, Any]) -> str:
    operation = document["paths"][f"/{PREFIX}/{route.path}"][route.method.lower()]
    parts = [f"\n### {route.operation}\n\n`{_shown(route)}`\n\n{route.summary}.\n"]
    if route.query:
        rows = [(f"`{one.name}`", kind(_without_pattern(one.schema)), cell(one.help)) for one in route.query]
        parts.append("\n" + table("query", "is", "means", rows=rows))
    if route.request is not None:
        body = operation["requestBody"]["content"]["application/json"]["schema"]
        example = json.dumps(route.example, indent=2, ensure_ascii=False)
        parts.append(f"\nTakes {kind(body)}:\n\n```json\n{example}\n```\n")
    if route.response is not None:
        (schema,), _ = msgspec.json.schema_components([route.response], ref_template="#/{name}")
        said = "Sends frames" if route.kind is Kind.WEBSOCKET else f"Answers {route.status} with"
        parts.append(f"\n{said} {_kinds(schema)}.\n")
    return "".join(parts)


def _kinds(schema: dict[str, Any]) -> str:
    shown = kind(schema)
    return shown if shown != "anything" else "bytes"


def _without_pattern(schema: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "pattern"}


def _type(name: str, schema: dict[str, Any]) -> str:
    struct = _STRUCTS.get(name)
    said = f"\n{cell(about(struct))}\n" if struct else ""
    if "enum" in schema:
        return f"\n### {name}\n{said}\nOne of {kind(schema)}.\n"
    meanings = texts(struct) if struct else {}
    names = {field.encode_name: field.name for field in msgspec.structs.fields(struct)} if struct else {}
    required = schema.get("required", ())
    rows = []
    for field, one in schema.get("properties", {}).items():
        left_out = "" if field in required else _default(one)
        rows.append((f"`{field}`", kind(one), left_out, cell(meanings.get(names.get(field, field), ""))))
    return f"\n### {name}\n{said}\n" + table("field", "is", "if left out", "means", rows=rows)


def _default(schema: dict[str, Any]) -> str:
    return f"`{json.dumps(schema['default'], ensure_ascii=False)}`" if "default" in schema else "not there"


def _structs(kind_: Any, found: dict[str, type]) -> None:
    """Collect all types that are reached from one, by the name that the document has for them."""
    for one in msgspec.inspect.multi_type_info([kind_]):
        _walk(one, found)


def _walk(info: Any, found: dict[str, type]) -> None:
    if isinstance(info, msgspec.inspect.StructType | msgspec.inspect.EnumType):
        if info.cls.__name__ in found:
            return
        found[info.cls.__name__] = info.cls
    for name in getattr(info, "__struct_fields__", ()):
        value = getattr(info, name)
        for one in value if isinstance(value, tuple) else (value,):
            inner = one.type if isinstance(one, msgspec.inspect.Field) else one
            if isinstance(inner, msgspec.inspect.Type):
                _walk(inner, found)


_STRUCTS: dict[str, type] = {}
for _one in (*(route.request for route in ROUTES), *(route.response for route in ROUTES), ErrorBody):
    if _one is not None:
        _structs(_one, _STRUCTS)
