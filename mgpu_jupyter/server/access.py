"""Who asks, and may they: tokens of mgpu's own, then Jupyter's identity. Decides about people, not about jobs."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from typing import Any

import msgspec
from jupyter_server.auth.identity import IdentityProvider, LegacyIdentityProvider, PasswordIdentityProvider

from mgpu_agent.protocol.errors import Forbidden, Unauthorised
from mgpu_jupyter.master.ports import USER_SCOPE, Reader, TokenRow

SCHEME = "mgpu"
TOKEN_BYTES = 32
# With these the server's token is the only credential and every request gets an invented name: the OS user stands for all.
ONE_USER_PROVIDERS = (IdentityProvider, PasswordIdentityProvider, LegacyIdentityProvider)


class Person(msgspec.Struct, frozen=True):
    """The user that a request acts for."""

    name: str
    is_admin: bool = False
    token: bytes = b""
    """The hash of the mgpu token that they came with, if any: what goes on for them ends with it."""
    expires_at: float | None = None
    """When that token ends."""

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
        user = reader.user(row.user)
        is_admin = self.is_named_admin(row.user) or (user is not None and user.role == "admin")
        return Person(row.user, is_admin, row.hash, row.expires_at)

    def by_own_token(self, token: str, own_token: str) -> Person:
        """Return the owner of a relaying server for the token that its kernels have; it is good for nothing else."""
        if not own_token or not hmac.compare_digest(token.encode(), own_token.encode()):
            raise Unauthorised("bad-token", "This is not the token of this server's kernels: restart the kernel.")
        return Person(self._os_user)

    def check_owner(self, person: Person) -> None:
        """Refuse those who would act under somebody else's login."""
        if person.name not in (self._os_user, os.environ.get("JUPYTERHUB_USER")):
            raise Forbidden("not-your-login", f"This server acts under the login of {self._os_user}: use a Jupyter server of your own.")

    def runs_this(self, person: Person) -> bool:
        """Tell whether this is the user under whom the server runs."""
        return person.name == self._os_user

    def is_named_admin(self, name: str) -> bool:
        """Tell whether this name administers by the configuration, whatever the table of users says."""
        return name in self._admins

    def by_identity(self, provider: Any, username: str) -> Person:
        """Return the person that Jupyter's identity provider found."""
        if type(provider) in ONE_USER_PROVIDERS:
            return self._person(self._os_user)
        return self._person(username)

    def _person(self, name: str) -> Person:
        return Person(name, self.is_named_admin(name))


def new_token() -> str:
    """Return a fresh secret."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def hash_token(token: str) -> bytes:
    """Return what is kept of a token; it has 256 bits of its own, so it needs no salt."""
    return hashlib.sha256(token.encode()).digest()


def token_row(token: str, user: str, *, scope: str = USER_SCOPE, expires_at: float | None = None) -> TokenRow:
    """Return the record of a token that can do all that its user may do in mgpu, and nothing else."""
    return TokenRow(hash=hash_token(token), user=user, scope=scope, created_at=time.time(), expires_at=expires_at)
