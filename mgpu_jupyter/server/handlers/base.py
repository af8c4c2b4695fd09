"""What every request to the API goes through, WebSockets too: who asks, may they, and what an error looks like."""

from __future__ import annotations

import asyncio
import os
import re
import time
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from jupyter_core.utils import ensure_async
from jupyter_server.auth.identity import User
from jupyter_server.base.call_context import CallContext
from jupyter_server.base.handlers import JupyterHandler
from tornado.web import HTTPError

from mgpu_agent.protocol.errors import Forbidden, InvalidRequest, MgpuError, NotFound, Unauthorised, Unavailable
from mgpu_agent.protocol.ids import JOB_ID_PATTERN, JobId, NodeId
from mgpu_jupyter.api.folders import Nearby
from mgpu_jupyter.api.models import MAX_BODY_BYTES
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.master.privacy import Sight, shown
from mgpu_jupyter.model.job import PLAIN_PATTERN
from mgpu_jupyter.server.access import SCHEME, Person
from mgpu_jupyter.server.errors import answer_for
from mgpu_jupyter.server.foreign import GUARD, JSON, SAVED
from mgpu_jupyter.server.limits import Cost, Shares
from mgpu_jupyter.server.relay import relay_request
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.server.upstream import Upstream

RESOURCE = "mgpu"
_T = TypeVar("_T")
_JOB_ID = re.compile(JOB_ID_PATTERN)
_PLAIN = re.compile(PLAIN_PATTERN)
_INDEX = re.compile(r"`\$\.jobs\[(\d+)\]")
_PLAIN_NUMBERS = {int: re.compile(r"-?[0-9]{1,18}"), float: re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?([eE][+-]?[0-9]{1,3})?")}
_TRUTH = {"1": True, "true": True, "0": False, "false": False}


class Guarded(JupyterHandler):
    """Checks every request before its method runs."""

    path = ""
    """As in `api/routes.py`."""
    works_without_master = False
    cost = Cost.LIGHT
    person: Person
    relayed: Any = None
    is_ended = False
    _expiry: asyncio.TimerHandle | None = None
    _body_bytes = 0
    _counted: Shares | None = None
    _is_counted_stream = False
    # Tornado then calls `prepare` before it reads a body, and hands the body over in pieces: too large a one is never read.
    _stream_request_body = True

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

    def set_default_headers(self) -> None:
        """Let no browser show an answer as a page, whatever the site sets for other pages of the server."""
        super().set_default_headers()
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        for name, value in GUARD.items():
            self.set_header(name, value)

    async def prepare(self, *, _redirect_to_login: bool = False) -> None:
        """Let in those whom the token or Jupyter's identity provider knows, and whom the authorizer lets."""
        self._check_query()
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
        self.extension.streams.add(self)
        self._end_with_credential()
        if self.extension.upstream is not None:
            self.extension.access.check_owner(self.person)
        action = "read" if self.request.method in ("GET", "HEAD", "OPTIONS") else "write"
        if not await ensure_async(self.authorizer.is_authorized(self, self.current_user, action, RESOURCE)):
            raise Forbidden("forbidden", f"The server's authorizer does not let you {action} here: ask an administrator.")
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
        """Take a piece of the body; one that has no end is cut off."""
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
        """Refuse what is too much of one user, and let the method wait for its turn once the body is here."""
        shares, user, name = self.extension.user_shares, self.person.name, (self.request.method or "GET").lower()
        if not self.person.is_admin:
            shares.ask(user, self.cost)
            self._counted = shares
            if self.cost is Cost.STREAM:
                shares.begin_stream(user)
                self._is_counted_stream = True
        method, turns = getattr(self, name), shares.turns(self.cost)
        if turns is None:
            return

        async def in_turn(*args: str) -> None:
            async with turns.turn(user):
                done = method(*args)
                if done is not None:
                    await done

        setattr(self, name, in_turn)

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
        """Let the master elsewhere answer in place of the method, which is called when the body is here."""

        async def answer(*_: str) -> None:
            await relay_request(self, upstream)

        setattr(self, (self.request.method or "GET").lower(), answer)

    def on_connection_close(self) -> None:
        """Let go of the master's answer when the asker is gone."""
        if self.relayed is not None:
            self.relayed.close()
        super().on_connection_close()

    def near(self, path: Path) -> Nearby | None:
        """Return where this is on this machine, for the user who runs the server and may open it; nothing for others."""
        if not self.extension.access.runs_this(self.person):
            return None
        try:
            info = os.stat(path)
        except OSError:
            return None
        return Nearby(path=os.path.realpath(path), device=info.st_dev, inode=info.st_ino)

    def end_stream(self, why: str) -> None:  # noqa: ARG002 - sockets say it
        """Break off an answer that goes on or is waited for, since its reader was shut out."""
        self.is_ended = True
        connection: Any = self.request.connection
        if not self._finished and connection.stream is not None:
            connection.stream.close()

    async def _execute(self, transforms: Any, *args: bytes, **kwargs: bytes) -> None:
        """Let go of the credential's end and of what is counted, however it ends: tornado says nothing of who leaves within a body."""
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
        """Let all that begins now end at the moment at which its token does."""
        if self.person.expires_at is None:
            return
        left_s = self.person.expires_at - time.time()
        if left_s <= 0 and self._expiry is not None:
            self.end_stream("Your login has expired: log in again.")
        else:  # looked at again then, since clocks are set
            self._expiry = asyncio.get_running_loop().call_later(max(left_s, 0.0) + 0.01, self._end_with_credential)

    def _check_query(self) -> None:
        """Refuse what is no text, once for all parameters: those that nobody reads are logged and passed on all the same."""
        try:
            unquote_to_bytes(self.request.query.encode("latin-1")).decode()
        except UnicodeDecodeError:
            raise InvalidRequest("not-utf8", "The query string is not UTF-8: encode its text as UTF-8 and send it again.") from None

    def _enter_with_token(self, token: str) -> None:
        CallContext.set(CallContext.JUPYTER_HANDLER, self)
        if not self.check_host():
            raise Forbidden("foreign-host", "The Host header names another server.")
        if self.extension.upstream is not None:
            self.person = self.extension.access.by_own_token(token, self.extension.own_token)
        else:
            self.person = self.extension.access.by_token(token, self.service.reader)
        self.current_user = self._jupyter_current_user = User(username=self.person.name)
        # A token in a header cannot be sent by a foreign page, so it needs no XSRF cookie.
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
            self.set_header("Allow", ", ".join(sorted(route.method for route in ROUTES if route.path == self.path)))
        self.finish(msgspec.json.encode(self.seen(body)))

    def log_exception(self, typ: Any, value: Any, tb: Any) -> None:
        """Keep expected answers out of the log."""
        if not isinstance(value, MgpuError):
            super().log_exception(typ, value, tb)

    def _log(self) -> None:
        """Log the path without its query: people paste secrets there."""
        self.request.uri = self.request.path
        super()._log()

    def _request_summary(self) -> str:
        return f"{self.request.method} {self.request.path} ({self.request.remote_ip})"

    def set_saved(self, kind: str) -> None:
        """Say what is sent, which jobs wrote: whoever is led there by a browser saves it."""
        self.set_header("Content-Type", kind)
        for name, value in SAVED.items():
            self.set_header(name, value)

    def answer(self, body: object, status: int = 200) -> None:
        """Send a JSON answer."""
        self.set_status(status)
        self.set_header("Content-Type", JSON)
        self.finish(msgspec.json.encode(self.seen(body)))

    def seen(self, body: object) -> object:
        """Return an answer as the one who asks may see it."""
        service = self.extension.service
        if not isinstance(service, Service) or (person := getattr(self, "person", None)) is None:
            return body
        return shown(body, Sight(service.settings.privacy, person.name, person.is_admin, lambda job_id: service.saved_job(job_id).job.user))

    def read_body(self, kind: type[_T]) -> _T:
        """Return the request's body as a value, or refuse it with what is wrong."""
        try:
            return decode_body(self.request.body, kind)
        except msgspec.ValidationError as error:
            found = _INDEX.search(str(error))
            details = {"index": int(found[1])} if found else {}
            raise InvalidRequest("invalid", f"{error}: change that and send it again (see openapi.json).", details) from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidRequest("not-json", f"The request is not JSON ({error}): send one JSON document in UTF-8.") from error

    def query(self, name: str, kind: type[_T], default: _T) -> _T:
        """Return a query parameter as a value, or refuse it."""
        values = self.request.query_arguments.get(name)
        if not values:
            return default
        # Not through tornado's `get_query_argument`, which makes blanks of control characters.
        text = self.decode_argument(values[-1], name)
        value: object = None
        if kind is str:
            value = text if _PLAIN.fullmatch(text) else None
        elif kind is bool:
            value = _TRUTH.get(text)
        elif _PLAIN_NUMBERS[kind].fullmatch(text):
            value = kind(text)  # type: ignore[call-arg]
        if value is None:
            raise InvalidRequest("invalid", f"The parameter {name} is no {_WORDS[kind]}: see openapi.json.")
        return value  # type: ignore[return-value]

    def node(self, node_id: str) -> NodeView:
        """Return a node of the master, or say that there is none."""
        node = self.service.master.node(NodeId(node_id))
        if node is None:
            raise NotFound("no-such-node", f"There is no node {node_id[:63]!r}: see `mgpu nodes`.")
        return node

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """Return a query parameter as a whole number within bounds, or refuse it."""
        value = self.query(name, int, default)
        if not least <= value <= most:
            raise InvalidRequest("invalid", f"{name} must be between {least} and {most}, not {value}.")
        return value


_WORDS: dict[type, str] = {str: "plain text", bool: "truth value (0 or 1)", int: "whole number", float: "number"}


def job_id_of(text: str) -> JobId:
    """Return a job id from a path, or say that there is no such job."""
    if not _JOB_ID.fullmatch(text):
        raise NotFound("no-such-job", f"{text[:50]!r} is no job id (eight characters A-Z and 0-9): see `mgpu_queue --all`.")
    return JobId(text)


def decode_body(body: bytes, kind: type[_T]) -> _T:
    """Return a JSON document as a value."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        # To JSON, 2.0 is a whole number, and some programs write it so.
        if "got `float`" not in str(error):
            raise
        return msgspec.convert(_with_whole_numbers(msgspec.json.decode(body)), kind)


def _with_whole_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_whole_numbers(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _too_large() -> InvalidRequest:
    return InvalidRequest("body-too-large", f"The request is over {MAX_BODY_BYTES} bytes: send less at once.")


class Unknown(Guarded):
    """Whatever else is asked for below the prefix."""

    path = ".*"
    works_without_master = True

    def get(self, *_: str) -> None:
        """Say that there is nothing here."""
        raise HTTPError(404)

    head = post = put = patch = delete = options = get
