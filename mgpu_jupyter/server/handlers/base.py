"""What every request to the API passes through, WebSockets too: authentication, checks, format of errors."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from functools import partial, wraps
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.identity import User
from jupyter_server.base.call_context import CallContext
from tornado.web import HTTPError

from mgpu_agent.protocol.errors import (
    Forbidden,
    InvalidRequest,
    MgpuError,
    NotFound,
    Unauthorised,
    Unavailable,
)
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.files import Nearby
from mgpu_jupyter.api.models import MAX_BODY_BYTES
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.master.privacy import Sight, shown
from mgpu_jupyter.server.access import ALSO_SCHEMES, NOBODY, SCHEME, Person, hash_token
from mgpu_jupyter.server.errors import answer_for
from mgpu_jupyter.server.foreign import GUARD, JSON, SAVED
from mgpu_jupyter.server.handlers.reading import ReadingHandler
from mgpu_jupyter.server.limits import Cost, RequestShares, Turns
from mgpu_jupyter.server.relay import relay_request
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.server.upstream import Upstream

RESOURCE = "mgpu"


Method = Callable[..., Awaitable[None] | None]
METHODS = {"get", "head", "post", "put", "patch", "delete", "options"}


def _answering(method: Method) -> Method:
    @wraps(method)
    async def answer(self: Guarded, *args: str) -> None:
        await self.answer_with(method, *args)

    return answer


def _refuse(_handler: Guarded, *_: str) -> None:
    raise HTTPError(405)


_NOT_TAKEN = _answering(_refuse)  # a master elsewhere, which may be newer, may know it


class Guarded(ReadingHandler):
    """Checks every request before its method runs."""

    path = ""
    """As in `api/routes.py`."""
    works_without_master = False
    cost = Cost.LIGHT
    person: Person = NOBODY
    relayed: Any = None
    is_ended = False
    _expiry: asyncio.TimerHandle | None = None
    _body_bytes = 0
    _counted: RequestShares | None = None
    _turns: Turns | None = None
    _instead: Callable[[], Awaitable[None]] | None = None
    """Answers in place of the method, once the body is here."""
    _is_counted_stream = False
    # Tornado calls `prepare` before it reads a body, and passes that in pieces: none too large is read.
    _stream_request_body = True

    def __init_subclass__(cls) -> None:
        """Wrap each method of a handler in `answer_with`."""
        super().__init_subclass__()
        for name in METHODS & vars(cls).keys():
            setattr(cls, name, _answering(vars(cls)[name]))

    get: Method = _NOT_TAKEN
    head: Method = _NOT_TAKEN
    post: Method = _NOT_TAKEN
    put: Method = _NOT_TAKEN
    patch: Method = _NOT_TAKEN
    delete: Method = _NOT_TAKEN
    options: Method = _NOT_TAKEN

    @property
    def extension(self) -> Any:
        """The server extension."""
        return self.settings["mgpu_extension"]

    @property
    def service(self) -> Service:
        """The running master."""
        service = self.extension.service
        if not isinstance(service, Service):
            raise Unavailable(
                "no-master", self.extension.problem or "The master is starting: try again in a moment."
            )
        return service

    def set_default_headers(self) -> None:
        """Forbid browsers to show an answer as a page, whatever the site sets for other pages of the
        server.
        """
        super().set_default_headers()
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        for name, value in GUARD.items():
            self.set_header(name, value)

    async def prepare(self, *, _redirect_to_login: bool = False) -> None:
        """Accept those whom the token or Jupyter's identity provider knows and the authorizer permits."""
        self._check_query()
        scheme, _, token = self.request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == SCHEME or (scheme.lower() in ALSO_SCHEMES and self._is_own_token(token.strip())):
            self._enter_with_token(token.strip())
        else:
            try:
                await super().prepare(_redirect_to_login=False)
            except HTTPError:  # of somebody unknown the lack of an XSRF cookie says nothing
                if self.current_user is not None or not self.check_host():
                    raise
            if self.current_user is None:
                raise Unauthorised(
                    "unauthorised", "Log in first: send the Jupyter server's token or an mgpu token."
                )
            if not self.check_origin():
                raise Forbidden("foreign-origin", "Requests from another site are not taken.")
            self.person = self.extension.access.by_identity(
                self.identity_provider, self.current_user.username
            )
        self.extension.streams.add(self)
        self._end_with_credential()
        if self.extension.upstream is not None:
            self.extension.access.check_owner(self.person)
        action = "read" if self.request.method in ("GET", "HEAD", "OPTIONS") else "write"
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, action, RESOURCE)):
            raise Forbidden(
                "forbidden", f"The server's authorizer does not let you {action} here: ask an administrator."
            )
        if self.extension.upstream is not None:
            await self.relay(self.extension.upstream)
        elif not self.works_without_master:
            _ = self.service
            self._take_share()
        if int(self.request.headers.get("Content-Length") or 0) > MAX_BODY_BYTES:
            raise _too_large()
        self._count_body(int(self.request.headers.get("Content-Length") or 0))
        self.request.body = bytearray()  # type: ignore[assignment]  # grows in place

    def data_received(self, chunk: bytes) -> None:
        """Receive a piece of the body; one that is too long is cut off."""
        if self._finished:
            return
        if len(self.request.body) + len(chunk) > MAX_BODY_BYTES:
            self.send_error(413, exc_info=(InvalidRequest, _too_large(), None))
            return
        try:
            self._count_body(len(self.request.body) + len(chunk) - self._body_bytes)
        except Unavailable as error:
            self.send_error(429, exc_info=(Unavailable, error, None))
            return
        self.request.body += chunk

    def _take_share(self) -> None:
        """Refuse what exceeds a user's share, and have the method wait for its turn once the body is here."""
        shares, user = self.extension.user_shares, self.person.name
        if not self.person.is_admin:
            shares.ask(user, self.cost)
            self._counted = shares
            if self.cost is Cost.STREAM:
                shares.begin_stream(user)
                self._is_counted_stream = True
        self._turns = shares.turns(self.cost)

    def _count_body(self, more: int) -> None:
        if self._counted is not None and more > 0:
            self._counted.begin_bytes(self.person.name, more)
            self._body_bytes += more

    def _give_share_back(self) -> None:
        if self._counted is None:
            return
        if self._body_bytes:
            self._counted.end_bytes(self.person.name, self._body_bytes)
        if self._is_counted_stream:
            self._counted.end_stream(self.person.name)
        self._counted = None

    async def relay(self, upstream: Upstream) -> None:
        """Have the master elsewhere answer in place of the method."""
        self._instead = partial(relay_request, self, upstream)

    async def answer_with(self, method: Method, *args: str) -> None:
        """Run a method of the handler in its turn, or its replacement."""
        if self._instead is not None:
            await self._instead()
            return
        async with nullcontext() if self._turns is None else self._turns.turn(self.person.name):
            done = method(self, *args)
            if done is not None:
                await done

    def on_connection_close(self) -> None:
        """Drop the master's answer when the client is gone."""
        if self.relayed is not None:
            self.relayed.close()
        super().on_connection_close()

    def near(self, path: Path) -> Nearby | None:
        """Return where this is on this machine, for the user who runs the server and may open it."""
        if not self.extension.access.runs_this(self.person):
            return None
        try:
            info = os.stat(path)
        except OSError:
            return None
        return Nearby(path=os.path.realpath(path), device=info.st_dev, inode=info.st_ino)

    def end_stream(self, why: str) -> None:  # noqa: ARG002 - sockets say it
        """End a streamed or pending answer, because its reader lost access."""
        self.is_ended = True
        connection: Any = self.request.connection
        if not self._finished and connection.stream is not None:
            connection.stream.close()

    async def _execute(self, transforms: Any, *args: bytes, **kwargs: bytes) -> None:
        """Release timers and counts however it ends: tornado does not report clients that leave within a
        body.
        """
        try:
            await super()._execute(transforms, *args, **kwargs)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._give_share_back()
        self.extension.streams.discard(self)
        if self._expiry is not None:
            self._expiry.cancel()

    def _end_with_credential(self) -> None:
        """End all that begins now when its token expires."""
        if self.person.expires_at is None:
            return
        left_s = self.person.expires_at - time.time()
        if left_s <= 0 and self._expiry is not None:
            self.end_stream("Your login has expired: log in again.")
        else:  # checked again then, since clocks may be set
            self._expiry = asyncio.get_running_loop().call_later(
                max(left_s, 0.0) + 0.01, self._end_with_credential
            )

    def _check_query(self) -> None:
        """Refuse parameters that are not text, also unknown ones: these are logged and relayed."""
        try:
            unquote_to_bytes(self.request.query.encode("latin-1")).decode()
        except UnicodeDecodeError:
            raise InvalidRequest(
                "not-utf8", "The query string is not UTF-8: encode its text as UTF-8 and send it again."
            ) from None

    def _is_own_token(self, token: str) -> bool:
        """Tell whether this is a token of mgpu, not of Jupyter, which uses the same schemes."""
        if self.extension.upstream is not None:
            return bool(self.extension.access.is_own_token(token, self.extension.own_token))
        service = self.extension.service
        return isinstance(service, Service) and service.reader.token(hash_token(token)) is not None

    def _enter_with_token(self, token: str) -> None:
        CallContext.set(CallContext.JUPYTER_HANDLER, self)
        if not self.check_host():
            raise Forbidden("foreign-host", "The Host header names another server.")
        if self.extension.upstream is not None:
            self.person = self.extension.access.by_own_token(token, self.extension.own_token)
        else:
            self.person = self.extension.access.by_token(token, self.service.reader)
        self.current_user = self._jupyter_current_user = User(username=self.person.name)
        # A foreign page cannot send a token in a header, so no XSRF cookie is needed.
        self._token_authenticated = True

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer every error in one shape."""
        info = kwargs.get("exc_info")
        status, body = answer_for(info[1] if info else None, status_code)
        self.set_status(status)
        self.set_header("Content-Type", JSON)
        if status == 429 and "retry_after_s" in body.details:
            self.set_header("Retry-After", str(body.details["retry_after_s"]))
        if status == 405:
            self.set_header(
                "Allow", ", ".join(sorted(route.method for route in ROUTES if route.path == self.path))
            )
        self.finish(msgspec.json.encode(self.seen(body)))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Keep expected errors out of the log."""
        if not isinstance(value, MgpuError):
            super().log_exception(typ, value, tb)

    def _log(self) -> None:
        """Log the path without its query: people paste secrets there."""
        self.request.uri = self.request.path
        super()._log()

    def _request_summary(self) -> str:
        return f"{self.request.method} {self.request.path} ({self.request.remote_ip})"

    def set_saved(self, kind: str) -> None:
        """Set the type of an answer that jobs wrote, and make browsers save it."""
        self.set_header("Content-Type", kind)
        for name, value in SAVED.items():
            self.set_header(name, value)

    def answer(self, body: object, status: int = 200) -> None:
        """Send a JSON answer."""
        self.set_status(status)
        self.set_header("Content-Type", JSON)
        self.finish(msgspec.json.encode(self.seen(body)))

    def seen(self, body: object) -> object:
        """Return an answer as its reader may see it."""
        service, person = self.extension.service, self.person
        if not isinstance(service, Service) or person is NOBODY:
            return body
        return shown(
            body,
            Sight(
                service.settings.privacy,
                person.name,
                person.is_admin,
                lambda job_id: service.saved_job(job_id).job.user,
            ),
        )

    def node(self, node_id: str) -> NodeView:
        """Return a node of the master, or raise that there is none."""
        node = self.service.master.node(NodeId(node_id))
        if node is None:
            raise NotFound("no-such-node", f"There is no node {node_id[:63]!r}: see `mgpu nodes`.")
        return node


def _too_large() -> InvalidRequest:
    return InvalidRequest("body-too-large", f"The request is over {MAX_BODY_BYTES} bytes: send less at once.")


class Unknown(Guarded):
    """Any other path below the prefix."""

    path = ".*"
    works_without_master = True

    def get(self, *_: str) -> None:
        """Answer that there is nothing here."""
        raise HTTPError(404)

    head = post = put = patch = delete = options = get
