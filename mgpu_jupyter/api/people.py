"""Bodies about the people of a shared master. Values only."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

USER_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9._@-]{0,63}$(?!\n)"


class NewUser(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A person who is to use this master."""

    name: Annotated[str, Meta(pattern=USER_PATTERN)]
    role: Literal["user", "admin"] = "user"
    ttl_s: Annotated[float, Meta(gt=0, le=100 * 365 * 86_400)] | None = None
    """How long the login is good for; without it, until the user is removed."""


class User(msgspec.Struct, frozen=True, kw_only=True):
    """A person of this master."""

    name: str
    role: str
    created_at: float
    expires_at: float | None = None


class UserList(msgspec.Struct, frozen=True, kw_only=True):
    """All users by name."""

    users: tuple[User, ...]


class NewLogin(msgspec.Struct, frozen=True, kw_only=True):
    """A new user and the line to log in with, which is shown only here."""

    user: User
    line: str
