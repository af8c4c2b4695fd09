"""Authentication and authorisation: tokens of mgpu's own, then Jupyter's identity; and the users of a shared
master.

Decides about people, not about jobs.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import time
from collections.abc import Callable
from typing import Any

import msgspec
from jupyter_server.auth.identity import IdentityProvider, LegacyIdentityProvider, PasswordIdentityProvider

from mgpu_agent.protocol.errors import Conflict, Forbidden, NotFound, Unauthorised
from mgpu_jupyter.api import administration
from mgpu_jupyter.client.login import Login, write_line
from mgpu_jupyter.master.ports import USER_SCOPE, Reader, Store, TokenRow, UserRow

SCHEME = "mgpu"
ALSO_SCHEMES = ("bearer", "token")
"""Schemes under which Jupyter's own tokens come, too."""
TOKEN_BYTES = 32
# With these the server's token is the only credential and names are invented: all count as the OS user.
ONE_USER_PROVIDERS = (IdentityProvider, PasswordIdentityProvider, LegacyIdentityProvider)


class Person(msgspec.Struct, frozen=True):
    """The user on whose behalf a request is made."""

    name: str
    is_admin: bool = False
    token: bytes = b""
    """The hash of the mgpu token that they used, if any: their streams end with it."""
    expires_at: float | None = None
    """When that token expires."""

    def may_touch(self, owner: str) -> bool:
        """Tell whether this person may read or cancel a job of `owner`."""
        return self.is_admin or self.name == owner

    def check_may_touch(self, owner: str, job_id: str) -> None:
        """Refuse a person who may not."""
        if not self.may_touch(owner):
            raise Forbidden("not-yours", f"Job {job_id} belongs to {owner}: ask them, or an administrator.")

    def check_is_admin(self, what: str) -> None:
        """Refuse a person who does not administer the cluster."""
        if not self.is_admin:
            raise Forbidden("not-admin", f"Only administrators may {what}: ask the one who runs the master.")


NOBODY = Person("")
"""The person of a request before it is authenticated."""


class Access:
    """Turns credentials into persons."""

    def __init__(self, os_user: str, admins: tuple[str, ...] = ()) -> None:
        self._os_user = os_user
        self._admins = frozenset((os_user, *admins))

    def by_token(self, token: str, reader: Reader) -> Person:
        """Return the person of an mgpu token."""
        row = reader.token(hash_token(token))
        if row is None or (row.expires_at is not None and row.expires_at < time.time()):
            raise Unauthorised(
                "bad-token",
                "This mgpu token is not known or has expired: restart the kernel, or log in again.",
            )
        user = reader.user(row.user)
        is_admin = self.is_named_admin(row.user) or (user is not None and user.role == "admin")
        return Person(row.user, is_admin, row.hash, row.expires_at)

    def is_own_token(self, token: str, own_token: str) -> bool:
        """Tell whether this is the token of a relaying server's kernels."""
        return bool(own_token) and hmac.compare_digest(token.encode(), own_token.encode())

    def by_own_token(self, token: str, own_token: str) -> Person:
        """Return a relaying server's owner for the token of its kernels, which has no other use."""
        if not self.is_own_token(token, own_token):
            raise Unauthorised(
                "bad-token", "This is not the token of this server's kernels: restart the kernel."
            )
        return Person(self._os_user)

    def check_owner(self, person: Person) -> None:
        """Refuse a person who would act under somebody else's login."""
        if person.name not in (self._os_user, os.environ.get("JUPYTERHUB_USER")):
            raise Forbidden(
                "not-your-login",
                f"This server acts under the login of {self._os_user}: use a Jupyter server of your own.",
            )

    def runs_this(self, person: Person) -> bool:
        """Tell whether this is the user that the server runs as."""
        return person.name == self._os_user

    def is_named_admin(self, name: str) -> bool:
        """Tell whether this name is an administrator by the configuration, whatever the table of users
        says.
        """
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
    """Return what is stored of a token; it has 256 random bits, so it needs no salt."""
    return hashlib.sha256(token.encode()).digest()


def token_row(token: str, user: str, *, scope: str = USER_SCOPE, expires_at: float | None = None) -> TokenRow:
    """Return the record of a token that has all rights of its user in mgpu, and no others."""
    return TokenRow(
        hash=hash_token(token), user=user, scope=scope, created_at=time.time(), expires_at=expires_at
    )


ADMIN = "admin"


def adding(
    wanted: administration.NewUser, access: Access, url: str, pin: str
) -> Callable[[Store], administration.NewLogin]:
    """Return a function that adds a user and returns their login line; only the token's hash is stored."""
    if access.is_named_admin(wanted.name) and wanted.role != ADMIN:
        raise Conflict(
            "is-admin",
            f"{wanted.name} administers this master: add them with --admin, or choose another name.",
        )
    token, now = new_token(), time.time()
    row = token_row(token, wanted.name, expires_at=None if wanted.ttl_s is None else now + wanted.ttl_s)
    user = UserRow(name=wanted.name, role=wanted.role, created_at=now, expires_at=row.expires_at)

    def change(store: Store) -> administration.NewLogin:
        if _find(store, wanted.name) is not None:
            raise Conflict(
                "user-exists",
                f"{wanted.name} is a user already: their line still works, or remove them and add them "
                f"again.",
            )
        store.add_user(user, row)
        return administration.NewLogin(user=view(user), line=write_line(Login(url=url, pin=pin, token=token)))

    return change


def removing(name: str) -> Callable[[Store], administration.User]:
    """Return a function that removes a user and all their tokens."""

    def change(store: Store) -> administration.User:
        user = _find(store, name)
        if user is None:
            raise NotFound("no-such-user", f"There is no user {name}: see `mgpu user list`.")
        store.remove_user(name)
        return view(user)

    return change


def listed(reader: Reader) -> administration.UserList:
    """Return all users."""
    return administration.UserList(users=tuple(view(user) for user in reader.users()))


def view(user: UserRow) -> administration.User:
    """Return a user as administrators see them."""
    return administration.User(
        name=user.name, role=user.role, created_at=user.created_at, expires_at=user.expires_at
    )


def _find(store: Store, name: str) -> UserRow | None:
    reader = store.reader()
    try:
        return reader.user(name)
    finally:
        reader.close()
