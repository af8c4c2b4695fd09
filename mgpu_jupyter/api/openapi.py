"""The OpenAPI document, made from the route table and the types that validate requests."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mgpu_agent import __version__
from mgpu_jupyter.api.models import ErrorBody
from mgpu_jupyter.api.routes import IDEMPOTENCY_HEADER, NDJSON, PREFIX, ROUTES, Kind, Route

_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ERRORS = {"400": "Fix the request", "401": "Log in", "403": "Not allowed", "404": "No such thing", "409": "Conflict", "503": "Try later"}


def document() -> dict[str, Any]:
    """Return the whole document."""
    types = [kind for route in ROUTES for kind in (route.request, route.response) if kind is not None]
    schemas, components = msgspec.json.schema_components([*types, ErrorBody], ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(repr, types), schemas, strict=False))
    error = schemas[-1]
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"/{PREFIX}/{route.path}", {})[route.method.lower()] = _operation(route, by_type, error)
    return {
        "openapi": "3.1.0",
        "info": {"title": "mgpu", "version": __version__, "summary": "The GPUs of several machines as one pool"},
        "servers": [{"url": "/"}],
        "security": [{"mgpu": []}, {"jupyter": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "mgpu": {"type": "apiKey", "in": "header", "name": "Authorization", "description": "`mgpu <token>`"},
                "jupyter": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`token <token>` of the Jupyter server",
                },
            },
        },
    }


def _operation(route: Route, by_type: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": one.name, "in": "query", "required": False, "description": one.help, "schema": {"type": _TYPES[one.type]}}
        for one in route.query
    ]
    if route.operation == "submitJob":
        parameters.append({"name": IDEMPOTENCY_HEADER, "in": "header", "required": False, "schema": {"type": "string"}})
    operation: dict[str, Any] = {"operationId": route.operation, "summary": route.summary}
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        operation["requestBody"] = {"required": True, "content": {"application/json": {"schema": by_type[repr(route.request)]}}}
    operation["responses"] = {
        _status(route): {"description": route.summary, **_content(route, by_type)},
        **{status: {"description": text, "content": {"application/json": {"schema": error}}} for status, text in _ERRORS.items()},
    }
    return operation


def _status(route: Route) -> str:
    return "101" if route.kind is Kind.WEBSOCKET else str(route.status)


def _content(route: Route, by_type: dict[str, Any]) -> dict[str, Any]:
    if route.response is None:
        return {"content": {"application/json": {"schema": {"type": "object"}}}}
    schema = {"schema": by_type[repr(route.response)]}
    if route.kind is Kind.WEBSOCKET:
        return {"x-mgpu-frames": schema}
    if route.kind is Kind.BYTES:
        return {"content": {"application/octet-stream": {}, NDJSON: schema}}
    return {"content": {"application/json": schema}}
