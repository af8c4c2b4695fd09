"""The login to a master elsewhere: the line that is pasted once, and the file that stores it. Sends nothing.

A line is `mgpulogin1.` and base64url of four bytes of SHA-256 over the JSON that follows them: url, pin,
token.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.places import make_private_dir, read_private_file, write_private_file
from mgpu_jupyter.client.connecting import PIN

MARK = "mgpulogin1."
CHECK_BYTES = 4


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Where the master is, the pin of its certificate, and the user's token."""

    url: str
    """Ends in a slash."""
    pin: str = ""
    """SHA-256 of the certificate; empty for plain HTTP on loopback."""
    token: str
    user: str = ""

    def __repr__(self) -> str:
        return f"Login({self.url!r}, user={self.user!r}, token hidden)"


def write_line(login: Login) -> str:
    """Return the line to paste."""
    body = msgspec.json.encode({"url": login.url, "pin": login.pin, "token": login.token})
    return MARK + base64.urlsafe_b64encode(_check(body) + body).decode().rstrip("=")


def read_line(line: str) -> Login:
    """Return the content of a pasted line, or raise one sentence about what is wrong with it."""
    text = "".join(line.split())
    text = text[text.find(MARK) :] if MARK in text else text
    if not text.startswith(MARK):
        raise InvalidRequest(
            "bad-login",
            f"That is no login line: paste the one that begins with {MARK} and that `mgpu user add` printed.",
        )
    packed = text.removeprefix(MARK)
    try:
        data = base64.b64decode(packed + "=" * (-len(packed) % 4), altchars=b"-_", validate=True)
        check, body = data[:CHECK_BYTES], data[CHECK_BYTES:]
        login = msgspec.json.decode(body, type=Login)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as error:
        raise _damaged() from error
    if check != _check(body) or not _is_safe(login):
        raise _damaged()
    return login


def login_path(env: Mapping[str, str]) -> Path | None:
    """Return where this user's login is stored; None where there is no home."""
    if config := env.get("XDG_CONFIG_HOME"):
        return Path(config) / "mgpu" / "login.json"
    return Path(env["HOME"]) / ".config" / "mgpu" / "login.json" if env.get("HOME") else None


def load_login(env: Mapping[str, str]) -> Login | None:
    """Return the stored login, if there is one."""
    path = login_path(env)
    try:
        if path is None or not path.exists():
            return None
        return msgspec.json.decode(read_private_file(path), type=Login)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidRequest(
            "bad-login-file", f"{path} cannot be read: run `mgpu logout`, then `mgpu login` with your line."
        ) from error


def store_login(login: Login, env: Mapping[str, str]) -> Path:
    """Store the login, readable by this user alone."""
    path = login_path(env)
    if path is None:
        raise InvalidRequest("no-home", "There is no home to keep the login in: set HOME or XDG_CONFIG_HOME.")
    make_private_dir(path.parent)
    write_private_file(path, msgspec.json.encode(login))
    return path


def forget_login(env: Mapping[str, str]) -> Login | None:
    """Remove the stored login and return it."""
    path = login_path(env)
    try:
        login = load_login(env)
    except MgpuError:
        login = Login(url="", token="")
    if path is not None:
        path.unlink(missing_ok=True)
    return login


def _check(body: bytes) -> bytes:
    return hashlib.sha256(body).digest()[:CHECK_BYTES]


def _is_safe(login: Login) -> bool:
    """Tell whether the token goes over HTTPS with a pin, or stays on this machine."""
    parts = urlsplit(login.url)
    if not parts.hostname or not login.token:
        return False
    if parts.scheme == "https":
        return PIN.match(login.pin) is not None
    return parts.scheme == "http" and is_loopback(parts.hostname)


def is_loopback(host: str) -> bool:
    """Tell whether what is sent to `host` stays on this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _damaged() -> InvalidRequest:
    return InvalidRequest(
        "bad-login",
        "The login line is damaged: copy it again, whole, or ask for a new one (`mgpu user add`).",
    )
