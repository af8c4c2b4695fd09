"""Finds the server: arguments, environment, the stored login, then a master on this machine. Sends nothing.

Order: `url` and `token`; `MGPU_URL` and `MGPU_TOKEN`; `MGPU_MASTER_HOST` and `MGPU_MASTER_PORT`; the login
that `mgpu login` stored, since it is an explicit wish; the master that runs on this machine: the one in
`MGPU_STATE_DIR` where that is set, else the only one of this user, wherever its state is. A server of this
machine that no longer answers is looked for again in the last two, since it may have been restarted on
another port; another master never takes its place.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Conflict, InvalidRequest, MgpuError, Unauthorised, Unavailable
from mgpu_agent.protocol.places import find_runtime_file, host_name, state_place
from mgpu_jupyter.client.connecting import socket_path
from mgpu_jupyter.client.login import Login, load_login
from mgpu_jupyter.client.running_masters import RunningMaster, running_masters

DEFAULT_PORT = 8080
LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1", "0.0.0.0"))  # noqa: S104 - names to recognise, not to bind
START_ONE = "start JupyterLab with mgpu-jupyter, or run `mgpu_master`"


class Address(msgspec.Struct, frozen=True):
    """Where the server is and how to speak to it; `url` ends in a slash."""

    url: str
    token: str
    pin: str = ""
    """SHA-256 of the certificate; without one the system's authorities decide."""
    state: str = ""
    """Where the state of a master is that was found on this machine, in another place than the usual one."""

    def __repr__(self) -> str:
        return f"Address({self.url!r}, token hidden)"


class Locator:
    """Remembers the address and looks for it again when asked; safe to use from several threads."""

    def __init__(
        self, url: str | None = None, token: str | None = None, env: Mapping[str, str] | None = None
    ) -> None:
        self._url = url
        self._token = token
        self._env = os.environ if env is None else env
        self._lock = threading.Lock()
        self._address: Address | None = None

    @classmethod
    def fixed(cls, address: Address) -> Locator:
        """Return one that knows the address and looks nowhere else."""
        locator = cls(address.url, address.token, {})
        locator._address = address
        return locator

    def address(self) -> Address:
        """Return the address in use, found at the first call."""
        with self._lock:
            if self._address is None:
                self._address = locate(self._url, self._token, self._env)
            return self._address

    def look_again(self) -> bool:
        """Look for a server that refuses connections; tell whether it is at another address now."""
        with self._lock:
            found = self._found_now()
            if found is None or (self._address is not None and found.url == self._address.url):
                return False
            # A kernel's token is valid for every server of its user, but never for a master elsewhere.
            keeps_token = load_login(self._env) is None
            token = (self._token or self._env.get("MGPU_TOKEN")) if keeps_token else None
            self._address = replace(found, token=token or found.token)
            return True

    def renew_token(self) -> bool:
        """Use the stored token in place of one that the server refused; tell whether it is another one."""
        with self._lock:
            found = self._found_now()
            if found is None or self._address is None or found.token == self._address.token:
                return False
            self._address = found
            return True

    def _found_now(self) -> Address | None:
        # One that was named by an argument, or is on another machine, is never replaced by one found here.
        if self._url or (self._address is not None and not _is_here(self._address.url)):
            return None
        try:
            if login := load_login(self._env):
                return _of_login(login)
            named = not self._env.get("MGPU_URL") and self._env.get("MGPU_MASTER_PORT")
            place = self._address.state if self._address is not None else ""
            state = Path(place) if place else state_place(self._env).path
            runtime = find_runtime_file(state, _port(self._env) if named else None)
        except MgpuError:
            return None
        return None if runtime is None else _of_master(RunningMaster(state, runtime), self._env)


def locate(url: str | None, token: str | None, env: Mapping[str, str]) -> Address:
    """Return where the server is, or raise an error that says what to do."""
    named = url or env.get("MGPU_URL")
    if named:
        return _named(named, token or env.get("MGPU_TOKEN"), env)
    if env.get("MGPU_MASTER_HOST") or env.get("MGPU_MASTER_PORT"):
        return _by_host_and_port(token or env.get("MGPU_TOKEN"), env)
    if login := load_login(env):
        return replace(_of_login(login), token=token or login.token)
    found = _only_one(_masters(env))
    if found is None:
        raise Unavailable(
            "no-master",
            f"No mgpu master runs on this machine: {START_ONE}, or `mgpu login` with the line of a shared "
            f"master.",
        )
    return replace(_of_master(found, env), token=token or env.get("MGPU_TOKEN") or found.runtime.token)


def _is_here(url: str) -> bool:
    return socket_path(url) is not None or is_local(urlsplit(url).hostname or "")


def is_local(host: str) -> bool:
    """Tell whether `host` is a name of this machine."""
    return host.lower() in LOOPBACK or host.startswith("127.") or host == host_name()


def _named(url: str, token: str | None, env: Mapping[str, str]) -> Address:
    parts = urlsplit(url)
    if socket_path(url) is not None:
        clean = url.rstrip("/") + "/"
        masters = [] if token else sorted(_masters(env), key=lambda one: one.runtime.url != clean)
        return Address(clean, token or (masters[0].runtime.token if masters else ""))
    try:
        port = parts.port
    except ValueError:
        port = -1
    if parts.scheme not in ("http", "https") or not parts.hostname or port == -1:
        raise InvalidRequest(
            "bad-url",
            f"{parts.scheme}://{parts.hostname} is not the URL of a server: write it like "
            f"http://localhost:8888/.",
        )
    clean = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}/"
    port = port or (443 if parts.scheme == "https" else 80)
    pin = (
        env.get("MGPU_CERTIFICATE_PIN", "") if parts.scheme == "https" and url == env.get("MGPU_URL") else ""
    )
    if login := _login_to(parts.hostname, port, env):
        return Address(clean, token or login.token, pin or login.pin)
    is_known = token and (pin or parts.scheme == "http")
    if is_local(parts.hostname) and not is_known and (found := _of_port(env, port)) is not None:
        return replace(found, url=clean, token=token or found.token, pin=pin or found.pin)
    return Address(clean, token or "", pin)


def _by_host_and_port(token: str | None, env: Mapping[str, str]) -> Address:
    host, port = env.get("MGPU_MASTER_HOST") or "localhost", _port(env)
    if is_local(host) and (found := _of_port(env, port)) is not None:
        return replace(found, token=token or found.token)
    if login := _login_to(host, port, env):
        return replace(_of_login(login), token=token or login.token)
    if token:
        return Address(f"http://{f'[{host}]' if ':' in host else host}:{port}/", token)
    if is_local(host):
        raise Unavailable(
            "no-master", f"No mgpu master runs on port {port} of this machine: {START_ONE} there."
        )
    raise Unauthorised(
        "no-token",
        f"The master on {host} is another machine's: ask its administrator for a line to `mgpu login` with.",
    )


def _login_to(host: str, port: int, env: Mapping[str, str]) -> Login | None:
    """Return the stored login, if it is for that server."""
    login = load_login(env)
    parts = urlsplit(login.url) if login else None
    return login if parts and (parts.hostname, parts.port) == (host.lower(), port) else None


def _of_login(login: Login) -> Address:
    return Address(login.url, login.token, login.pin)


def _of_master(found: RunningMaster, env: Mapping[str, str]) -> Address:
    runtime, is_usual = found.runtime, found.state == state_place(env).path
    return Address(runtime.url, runtime.token, runtime.certificate_pin, "" if is_usual else str(found.state))


def _port(env: Mapping[str, str]) -> int:
    text = env.get("MGPU_MASTER_PORT") or str(DEFAULT_PORT)
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InvalidRequest(
            "bad-port", f"MGPU_MASTER_PORT={text} is not a port: write a number like {DEFAULT_PORT}."
        )
    return int(text)


def _of_port(env: Mapping[str, str], port: int) -> Address | None:
    masters = _masters(env, port)
    return _of_master(masters[0], env) if masters else None


def _masters(env: Mapping[str, str], port: int | None = None) -> list[RunningMaster]:
    """Return the masters of this user on this machine; only the one in a state directory that is named."""
    state = state_place(env).path
    usual = find_runtime_file(state, port)
    found = [] if usual is None else [RunningMaster(state, usual)]
    if not env.get("MGPU_STATE_DIR"):
        pids = {one.runtime.pid for one in found}
        found += [
            one
            for one in running_masters(env)
            if one.runtime.pid not in pids and port in (None, one.runtime.port)
        ]
    return found


def _only_one(masters: list[RunningMaster]) -> RunningMaster | None:
    """Return the one that there is; of several nobody but the user can tell which is meant."""
    if len(masters) > 1:
        named = " and ".join(f"{one.runtime.url} (its state is in {one.state})" for one in masters)
        raise Conflict(
            "several-masters",
            f"{len(masters)} masters of yours run on this machine, {named}: name the port of one by "
            f"MGPU_MASTER_PORT={masters[0].runtime.port}, or its directory by MGPU_STATE_DIR.",
        )
    return masters[0] if masters else None
