"""What is passed on from a foreign master to people here: answers, errors and frames as our own API has them.

The master is somebody else's, and whatever passes appears under the origin of the user's own Jupyter server.
So everything is refused that is not known to be harmless there. Pure; reads no body but that of an error.
"""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import msgspec
from tornado.httputil import HTTPHeaders

from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.api.models import ErrorBody
from mgpu_jupyter.api.route import NDJSON, PREFIX

JSON = "application/json"
BYTES = "application/octet-stream"
GUARD = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
}
"""On every answer of our own, too: a browser executes nothing of it, and it belongs to no origin."""
SAVED = {"Content-Disposition": "attachment"}
"""On whatever jobs wrote: a browser saves it and shows nothing."""
STREAMED = (NDJSON, BYTES)
MAX_HEADER_BYTES = 32 * 1024
MAX_JSON_BYTES = 256 * 1024 * 1024
"""Of one answer; ten thousand nodes of eight GPUs have 40 MB."""
MAX_REFUSAL_BYTES = 64 * 1024
MAX_REASON_BYTES = 120
NOT_MODIFIED = 304
NO_CONTENT = 204
_VALUES = {
    "Content-Length": "[0-9]{1,18}",
    "Etag": '(W/)?"[A-Za-z0-9._-]{1,100}"',
    "Cache-Control": "no-store|no-cache",  # nothing of this master is kept for a time after the login
    "Retry-After": "[0-9]{1,6}",
    "Allow": "[A-Z, ]{1,100}",
}
_PASSED = {name: re.compile(value) for name, value in _VALUES.items()}
_OF_MGPU = re.compile("X-Mgpu-[A-Za-z0-9-]{1,40}")
_OF_MGPU_VALUE = re.compile("[A-Za-z0-9._:-]{1,100}")
_BELOW = re.compile("[A-Za-z0-9_-]{1,100}(/[A-Za-z0-9_-]{1,100}){0,5}")
_UNPRINTABLE = re.compile(r"[^\x20-\x7e]")
_FRAME = msgspec.json.Decoder(dict[str, msgspec.Raw])


def not_mgpu() -> Unavailable:
    """Return the error in place of such an answer."""
    return Unavailable(
        "not-mgpu",
        "The master answered something that is not mgpu's: check where you are logged in (`mgpu login`).",
    )


def passed_headers(
    status: int, headers: HTTPHeaders, base_url: str, *, may_be_unchanged: bool
) -> dict[str, str]:
    """Return the headers to pass on with an answer; raises if it is not one of mgpu's."""
    if status == NOT_MODIFIED and not may_be_unchanged:
        raise not_mgpu()
    if not (200 <= status < 300 or status == NOT_MODIFIED or 400 <= status < 600):
        raise not_mgpu()
    if "Content-Encoding" in headers:  # nobody asked for it, and its unpacked size is unknown
        raise not_mgpu()
    told = {name: value for name in headers if (value := _checked(name, headers)) is not None}
    if "Content-Length" in headers and "Content-Length" not in told:
        raise not_mgpu()
    if status in (NO_CONTENT, NOT_MODIFIED):
        told.pop("Content-Length", None)
    else:
        kind = headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if kind != JSON and (kind not in STREAMED or status >= 400):
            raise not_mgpu()
        if kind == JSON and int(told.get("Content-Length", 0)) > MAX_JSON_BYTES:
            raise not_mgpu()
        told["Content-Type"] = kind
        if kind in STREAMED:
            told |= SAVED | {"X-Accel-Buffering": "no"}
    if (below := _below(headers.get("Location", ""))) and status < 300:
        told["Location"] = f"{base_url}{PREFIX}/{below}"
    return told


def _checked(name: str, headers: HTTPHeaders) -> str | None:
    value = headers[name]
    allowed = _PASSED.get(name) or (_OF_MGPU_VALUE if _OF_MGPU.fullmatch(name) else None)
    return value if allowed is not None and allowed.fullmatch(value) else None


def _below(location: str) -> str:
    """Return the part of a path below our own API; empty for another origin, scheme or path."""
    parts = urlsplit(location)
    below = parts.path.partition(f"/{PREFIX}/")[2]
    return (
        below
        if location == parts.path
        and location.startswith("/")
        and not location.startswith("//")
        and _BELOW.fullmatch(below)
        else ""
    )


def refusal(status: int, body: bytes) -> ErrorBody:
    """Return the master's error in place of a WebSocket; raises if it is not one of mgpu's."""
    if not 400 <= status < 600 or len(body) > MAX_REFUSAL_BYTES:
        raise not_mgpu()
    try:
        return msgspec.json.decode(body, type=ErrorBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise not_mgpu() from None


def is_frame(message: str | bytes) -> bool:
    """Tell whether a message of a WebSocket is one JSON object, as all of ours are."""
    if isinstance(message, bytes):
        return False
    try:
        _FRAME.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True


def close_of(code: int | None, reason: str | None) -> tuple[int, str]:
    """Return the code and reason with which to close a WebSocket after the master closed its own."""
    # Without a code the connection broke: "try again later" makes clients come back.
    passes = code is not None and (1000 <= code < 1004 or 1007 <= code < 1015 or 3000 <= code < 5000)
    return code if code is not None and passes else 1013, _UNPRINTABLE.sub("?", reason or "")[
        :MAX_REASON_BYTES
    ]
