"""Finds the server: arguments, then the environment, then the runtime file of a master on this machine. Sends nothing.

Order: `url` and `token`; `MGPU_URL` and `MGPU_TOKEN`; `MGPU_MASTER_HOST` and `MGPU_MASTER_PORT`; the newest runtime file. A server of
this machine that no longer answers is looked for again in the runtime file, since it may have been restarted on another port.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from urllib.parse import urlsplit

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, Unauthorised, Unavailable
from mgpu_agent.protocol.places import RuntimeFile, find_runtime_file, host_name, state_place

DEFAULT_PORT = 8080
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0"))  # noqa: S104 - names to recognise, not to bind
START_ONE = "start JupyterLab with mgpu-jupyter, or run `mgpu_master`"


class Address(msgspec.Struct, frozen=True):
    """Where the server is and how to speak to it; `url` ends in a slash."""

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Address({self.url!r}, token hidden)"


class Locator:
    """Remembers the address and looks for it again when asked; safe to use from several threads."""

    def __init__(self, url: str | None = None, token: str | None = None, env: Mapping[str, str] | None = None) -> None:
        self._url = url
        self._token = token
        self._env = os.environ if env is None else env
        self._lock = threading.Lock()
        self._address: Address | None = None

    def address(self) -> Address:
        """Return the address in use, found at the first call."""
        with self._lock:
            if self._address is None:
                self._address = locate(self._url, self._token, self._env)
            return self._address

    def look_again(self) -> bool:
        """Look where a server that refuses connections is now; tell whether it is another place."""
        with self._lock:
            runtime = self._runtime_file_now()
            if runtime is None or (self._address is not None and runtime.url == self._address.url):
                return False
            self._address = Address(runtime.url, self._token or self._env.get("MGPU_TOKEN") or runtime.token)
            return True

    def renew_token(self) -> bool:
        """Take the runtime file's token in place of one that the server refused; tell whether it is another one."""
        with self._lock:
            runtime = self._runtime_file_now()
            if runtime is None or self._address is None or runtime.token == self._address.token:
                return False
            self._address = Address(runtime.url, runtime.token)
            return True

    def _runtime_file_now(self) -> RuntimeFile | None:
        # A server that was named by an argument, or that is another machine's, is never replaced by one found here.
        if self._url or (self._address is not None and not is_local(urlsplit(self._address.url).hostname or "")):
            return None
        try:
            return _runtime_file(
                self._env, None if self._env.get("MGPU_URL") or not self._env.get("MGPU_MASTER_PORT") else _port(self._env)
            )
        except MgpuError:
            return None


def locate(url: str | None, token: str | None, env: Mapping[str, str]) -> Address:
    """Return where the server is, or say what to do."""
    named = url or env.get("MGPU_URL")
    if named:
        return _named(named, token or env.get("MGPU_TOKEN"), env)
    if env.get("MGPU_MASTER_HOST") or env.get("MGPU_MASTER_PORT"):
        return _by_host_and_port(token or env.get("MGPU_TOKEN"), env)
    runtime = _runtime_file(env)
    if runtime is None:
        raise Unavailable("no-master", f"No mgpu master runs on this machine: {START_ONE}, or set MGPU_URL and MGPU_TOKEN.")
    return Address(runtime.url, token or env.get("MGPU_TOKEN") or runtime.token)


def is_local(host: str) -> bool:
    """Tell whether `host` is a name of this machine."""
    return host.lower() in LOOPBACK or host.startswith("127.") or host == host_name()


def _named(url: str, token: str | None, env: Mapping[str, str]) -> Address:
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise InvalidRequest(
            "bad-url", f"{parts.scheme}://{parts.hostname} is not the URL of a server: write it like http://localhost:8888/."
        )
    clean = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/"
    if not token and is_local(parts.hostname):
        runtime = _runtime_file(env, port or (443 if parts.scheme == "https" else 80))
        token = runtime.token if runtime else None
    return Address(clean, token or "")


def _by_host_and_port(token: str | None, env: Mapping[str, str]) -> Address:
    host, port = env.get("MGPU_MASTER_HOST") or "localhost", _port(env)
    runtime = _runtime_file(env, port) if is_local(host) else None
    if runtime is not None:
        return Address(runtime.url, token or runtime.token)
    if token:
        return Address(f"http://{f'[{host}]' if ':' in host else host}:{port}/", token)
    if is_local(host):
        raise Unavailable("no-master", f"No mgpu master runs on port {port} of this machine: {START_ONE} there.")
    raise Unauthorised(
        "no-token", f"The master on {host} is another machine's: set MGPU_TOKEN to the token that its administrator gives you."
    )


def _port(env: Mapping[str, str]) -> int:
    text = env.get("MGPU_MASTER_PORT") or str(DEFAULT_PORT)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidRequest("bad-port", f"MGPU_MASTER_PORT={text} is not a port: write a number like {DEFAULT_PORT}.")
    return int(text)


def _runtime_file(env: Mapping[str, str], port: int | None = None) -> RuntimeFile | None:
    return find_runtime_file(state_place(env).path, port)
