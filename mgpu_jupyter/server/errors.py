"""The one table from errors to HTTP status codes."""

from __future__ import annotations

from tornado.web import HTTPError

from mgpu_agent.protocol.errors import (
    Conflict,
    Forbidden,
    InvalidRequest,
    MgpuError,
    NotFound,
    Unauthorised,
    Unavailable,
)
from mgpu_jupyter.api.models import ErrorBody

STATUS: tuple[tuple[type[MgpuError], int], ...] = (
    (InvalidRequest, 400),
    (Unauthorised, 401),
    (Forbidden, 403),
    (NotFound, 404),
    (Conflict, 409),
    (Unavailable, 503),
)
STATUS_BY_CODE = {
    "disk-full": 507,
    "body-too-large": 413,
    "not-mgpu": 502,
    "too-many-requests": 429,
    "share-used": 429,
}
_PLAIN = {
    401: ("unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."),
    403: ("forbidden", "You may not do this: ask an administrator."),
    404: ("not-found", "There is nothing at this address: see openapi.json."),
    405: ("method-not-allowed", "This address does not take that method: see openapi.json."),
}


def answer_for(error: BaseException | None, status: int) -> tuple[int, ErrorBody]:
    """Return status and body for any error."""
    if isinstance(error, MgpuError):
        status = STATUS_BY_CODE.get(error.code) or next(
            (number for kind, number in STATUS if isinstance(error, kind)), 500
        )
        return status, ErrorBody(code=error.code, message=error.message, details=error.details)
    if isinstance(error, HTTPError):
        status = error.status_code
    code, message = _PLAIN.get(status, ("internal", "Something went wrong in the server: see its log."))
    if isinstance(error, HTTPError) and status < 500 and status not in _PLAIN:
        told = error.log_message % error.args if error.log_message and error.args else error.log_message
        why = told or error.reason or "not understood"
        code, message = (
            "bad-request",
            f"The request could not be read ({why.strip().rstrip('.')[:200]}): see openapi.json.",
        )
    return status, ErrorBody(code=code, message=message)
