"""The one door to the API: who asks, may they, and what an error looks like. Every handler, WebSockets too, goes through it."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.identity import User
from jupyter_server.base.call_context import CallContext
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError

from mgpu_agent.protocol.errors import Forbidden, InvalidRequest, MgpuError, Unauthorised, Unavailable
from mgpu_jupyter.api.models import MAX_BODY_BYTES
from mgpu_jupyter.server.access import SCHEME, Person
from mgpu_jupyter.server.errors import answer_for
from mgpu_jupyter.server.service import Service

RESOURCE = "mgpu"
_T = TypeVar("_T")


class Guarded(JupyterHandler):
    """Checks every request before its method runs."""

    path = ""
    """As in `api/routes.py`."""
    works_without_master = False
    person: Person

    @property
    def extension(self) -> Any:
        """The server extension."""
        return self.settings["mgpu_extension"]

    @property
    def service(self) -> Service:
        """The running master."""
        service = self.extension.service
        if not isinstance(service, Service):
            raise Unavailable("no-master", self.extension.problem or "The master is starting: try again in a moment.")
        return service

    async def prepare(self, *, _redirect_to_login: bool = False) -> None:
        """Let in those whom the token or Jupyter's identity provider knows, and whom the authorizer lets."""
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == SCHEME:
            self._enter_with_token(token.strip())
        else:
            await super().prepare(_redirect_to_login=False)
            if self.current_user is None:
                raise Unauthorised("unauthorised", "Log in first: send the Jupyter server's token or an mgpu token.")
            if not self.check_origin():
                raise Forbidden("foreign-origin", "Requests from another site are not taken.")
            self.person = self.extension.access.by_identity(self.identity_provider, self.current_user.username)
        action = "read" if self.request.method in ("GET", "HEAD", "OPTIONS") else "write"
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, action, RESOURCE)):
            raise Forbidden("forbidden", f"The server's authorizer does not let you {action} here: ask an administrator.")
        if not self.works_without_master:
            _ = self.service

    def _enter_with_token(self, token: str) -> None:
        CallContext.set(CallContext.JUPYTER_HANDLER, self)
        if not self.check_host():
            raise Forbidden("foreign-host", "The Host header names another server.")
        self.person = self.extension.access.by_token(token, self.service.reader)
        self.current_user = self._jupyter_current_user = User(username=self.person.name)
        # A token in a header cannot be sent by a foreign page, so it needs no XSRF cookie.
        self._token_authenticated = True

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer every error in one shape."""
        info = kwargs.get("exc_info")
        status, body = answer_for(info[1] if info else None, status_code)
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(body))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Keep expected answers out of the log."""
        if not isinstance(value, MgpuError):
            super().log_exception(typ, value, tb)

    def answer(self, body: object, status: int = 200) -> None:
        """Send a JSON answer."""
        self.set_status(status)
        self.set_header("Content-Type", "application/json")
        self.finish(msgspec.json.encode(body))

    def read_body(self, kind: type[_T]) -> _T:
        """Return the request's body as a value, or refuse it with what is wrong."""
        if len(self.request.body) > MAX_BODY_BYTES:
            raise InvalidRequest("body-too-large", f"The request is over {MAX_BODY_BYTES} bytes: send less at once.")
        try:
            return msgspec.json.decode(self.request.body, type=kind)
        except msgspec.ValidationError as error:
            raise InvalidRequest("invalid", f"{error}.") from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidRequest("not-json", f"The request is not JSON: {error}.") from error

    def query(self, name: str, kind: type[_T], default: _T) -> _T:
        """Return a query parameter as a value, or refuse it."""
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        try:
            return msgspec.convert(text, kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidRequest("invalid", f"The parameter {name}={text[:50]!r} is not right: {error}.") from error


class Unknown(Guarded):
    """Whatever else is asked for below the prefix."""

    path = ".*"
    works_without_master = True

    def get(self, *_: str) -> None:
        """Say that there is nothing here."""
        raise HTTPError(404)

    post = put = patch = delete = get
