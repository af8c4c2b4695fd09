"""Who asks, and may they: tokens of mgpu's own, then Jupyter's identity. Decides about people, not about jobs."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import Any

import msgspec
from jupyter_server.auth.identity import IdentityProvider, LegacyIdentityProvider, PasswordIdentityProvider

from mgpu_agent.protocol.errors import Forbidden, Unauthorised
from mgpu_jupyter.master.ports import Reader, TokenRow

SCHEME = "mgpu"
TOKEN_BYTES = 32
# With these the server's token is the only credential and every request gets an invented name: the OS user stands for all.
ONE_USER_PROVIDERS = (IdentityProvider, PasswordIdentityProvider, LegacyIdentityProvider)


class Person(msgspec.Struct, frozen=True):
    """The user that a request acts for."""

    name: str
    is_admin: bool = False

    def may_touch(self, owner: str) -> bool:
        """Tell whether this person may read or cancel a job of `owner`."""
        return self.is_admin or self.name == owner

    def check_may_touch(self, owner: str, job_id: str) -> None:
        """Refuse those who may not."""
        if not self.may_touch(owner):
            raise Forbidden("not-yours", f"Job {job_id} belongs to {owner}: ask them, or an administrator.")

    def check_is_admin(self, what: str) -> None:
        """Refuse those who do not administer the cluster."""
        if not self.is_admin:
            raise Forbidden("not-admin", f"Only administrators may {what}: ask the one who runs the master.")


class Access:
    """Turns credentials into persons."""

    def __init__(self, os_user: str, admins: tuple[str, ...] = ()) -> None:
        self._os_user = os_user
        self._admins = frozenset((os_user, *admins))

    def by_token(self, token: str, reader: Reader) -> Person:
        """Return the person of an mgpu token."""
        row = reader.token(hash_token(token))
        if row is None or (row.expires_at is not None and row.expires_at < time.time()):
            raise Unauthorised("bad-token", "This mgpu token is not known or has expired: restart the kernel, or log in again.")
        return self._person(row.user)

    def by_identity(self, provider: Any, username: str) -> Person:
        """Return the person that Jupyter's identity provider found."""
        if type(provider) in ONE_USER_PROVIDERS:
            return self._person(self._os_user)
        return self._person(username)

    def _person(self, name: str) -> Person:
        return Person(name, name in self._admins)


def new_token() -> str:
    """Return a fresh secret."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> bytes:
    """Return what is kept of a token; it has 256 bits of its own, so it needs no salt."""
    return hashlib.sha256(token.encode()).digest()


def token_row(token: str, user: str) -> TokenRow:
    """Return the record of a token that can do all that its user may do in mgpu, and nothing else."""
    return TokenRow(hash=hash_token(token), user=user, scope="user", created_at=time.time())
