"""The OpenAPI document, made from the route table and the types that validate requests."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from mgpu_agent import __version__
from mgpu_agent.protocol.ids import JOB_ID_PATTERN, NODE_ID_PATTERN
from mgpu_jupyter.api.administration import USER_PATTERN
from mgpu_jupyter.api.files import RAW
from mgpu_jupyter.api.models import MAX_BODY_BYTES, ErrorBody
from mgpu_jupyter.api.requests import MAX_KEY_CHARS
from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER, NDJSON, PREFIX, Kind, Route
from mgpu_jupyter.api.routes import ROUTES

_ERRORS = {
    "400": "Fix the request",
    "401": "Log in",
    "403": "Not allowed",
    "404": "No such thing",
    "405": "Not with this method",
    "503": "Try later",
}
_WRITE_ERRORS = {
    "409": "Conflict",
    "413": f"The body is over {MAX_BODY_BYTES} bytes",
    "429": "Your share is used up",
    "507": "The server's disk is full",
}
_PATH_SCHEMAS = {
    "job_id": {"type": "string", "pattern": JOB_ID_PATTERN},
    "node_id": {"type": "string", "pattern": NODE_ID_PATTERN},
    "user_name": {"type": "string", "pattern": USER_PATTERN},
}
_BASE64 = r"^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$(?!\n)"
_TEXT_HEADER = {"schema": {"type": "string"}}
_HEADERS: dict[str, dict[str, Any]] = {
    "submitJob": {
        "Location": {"description": "Where the job can be looked at", "required": True, **_TEXT_HEADER}
    },
    "getOutput": {
        "X-Mgpu-Next-Offset": {
            "description": "With plain bytes: where to go on",
            "schema": {"type": "integer"},
        },
        "X-Mgpu-Complete": {
            "description": "With plain bytes: whether nothing follows",
            "schema": {"enum": ["true", "false"]},
        },
    },
}
_JOB_OPERATIONS = ("getJob", "explainJob", "changeJob", "requeueJob", "cancelJob", "getOutput")
_LINKS: dict[str, tuple[tuple[str, dict[str, str]], ...]] = {
    "submitJob": tuple((name, {"job_id": "$response.body#/job_id"}) for name in _JOB_OPERATIONS),
    "submitJobs": tuple((name, {"job_id": "$response.body#/jobs/0/job_id"}) for name in _JOB_OPERATIONS),
    "cancelJob": (("getJob", {"job_id": "$response.body#/job_id"}),),
    "addUser": (("removeUser", {"user_name": "$response.body#/user/name"}),),
    "listNodes": (("getNode", {"node_id": "$response.body#/nodes/0/id"}),),
}


def document() -> dict[str, Any]:
    """Return the whole document."""
    types = [kind for route in ROUTES for kind in (route.request, route.response) if kind is not None]
    schemas, components = msgspec.json.schema_components(
        [*types, ErrorBody], ref_template="#/components/schemas/{name}"
    )
    components["JobSpec"]["oneOf"] = _ONE_THING_TO_RUN
    components["Pieces"]["properties"]["pieces"]["items"]["pattern"] = _BASE64
    by_type = dict(zip(map(repr, types), schemas, strict=False))
    error = schemas[-1]
    paths: dict[str, dict[str, Any]] = {}
    for route in ROUTES:
        paths.setdefault(f"/{PREFIX}/{route.path}", {})[route.method.lower()] = _operation(
            route, by_type, error
        )
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "mgpu",
            "version": __version__,
            "summary": "The GPUs of several machines as one pool",
        },
        "servers": [{"url": "/"}],
        "security": [{"mgpu": []}, {"jupyter": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "mgpu": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`mgpu <token>`",
                },
                "jupyter": {
                    "type": "apiKey",
                    "in": "header",
                    "name": "Authorization",
                    "description": "`token <token>` of the Jupyter server",
                },
            },
        },
    }


_ONE_THING_TO_RUN = [
    {"required": ["command"], "properties": {"command": {"minItems": 1}, "script": {"type": "null"}}},
    {"required": ["script"], "properties": {"command": {"maxItems": 0}, "script": {"type": "string"}}},
]


def _operation(route: Route, by_type: dict[str, Any], error: dict[str, Any]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _PATH_SCHEMAS[name]}
        for name in re.findall(r"{(\w+)}", route.path)
    ]
    parameters += [
        {"name": one.name, "in": "query", "required": False, "description": one.help, "schema": one.schema}
        for one in route.query
    ]
    if route.operation == "submitJob":
        key = {"type": "string", "pattern": f"^[!-~]{{1,{MAX_KEY_CHARS}}}$"}
        parameters.append({"name": IDEMPOTENCY_HEADER, "in": "header", "required": False, "schema": key})
    operation: dict[str, Any] = {"operationId": route.operation, "summary": route.summary}
    if parameters:
        operation["parameters"] = parameters
    if route.request is not None:
        content = {"schema": by_type[repr(route.request)], "example": route.example}
        raw = {RAW: {"schema": {"type": "string", "minLength": 1}}} if route.operation == "addPieces" else {}
        operation["requestBody"] = {"required": True, "content": {"application/json": content, **raw}}
    success = {"description": route.summary, **_content(route, by_type)}
    if headers := _HEADERS.get(route.operation):
        success["headers"] = headers
    if links := _LINKS.get(route.operation):
        success["links"] = {
            name: {"operationId": name, "parameters": parameters} for name, parameters in links
        }
    errors = {**_ERRORS, **_WRITE_ERRORS} if route.is_write else _ERRORS
    operation["responses"] = {
        _status(route): success,
        **{status: _error(status, text, error) for status, text in errors.items()},
    }
    return operation


def _error(status: str, text: str, schema: dict[str, Any]) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": text, "content": {"application/json": {"schema": schema}}}
    if status == "405":
        answer["headers"] = {"Allow": {"description": "The methods that it takes", **_TEXT_HEADER}}
    return answer


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
