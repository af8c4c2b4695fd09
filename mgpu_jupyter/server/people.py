"""The users of a shared master: added with a login line, listed, removed with all their tokens. Who may is asked before."""

from __future__ import annotations

import time
from collections.abc import Callable

from mgpu_agent.protocol.errors import Conflict, NotFound
from mgpu_jupyter.api import administration
from mgpu_jupyter.client.login import Login, write_line
from mgpu_jupyter.master.ports import Reader, Store, UserRow
from mgpu_jupyter.server.access import Access, new_token, token_row

ADMIN = "admin"


def adding(wanted: administration.NewUser, access: Access, url: str, pin: str) -> Callable[[Store], administration.NewLogin]:
    """Return what adds a user and makes their login line; only the token's hash is kept."""
    if access.is_named_admin(wanted.name) and wanted.role != ADMIN:
        raise Conflict("is-admin", f"{wanted.name} administers this master: add them with --admin, or choose another name.")
    token, now = new_token(), time.time()
    row = token_row(token, wanted.name, expires_at=None if wanted.ttl_s is None else now + wanted.ttl_s)
    user = UserRow(name=wanted.name, role=wanted.role, created_at=now, expires_at=row.expires_at)

    def change(store: Store) -> administration.NewLogin:
        if _find(store, wanted.name) is not None:
            raise Conflict("user-exists", f"{wanted.name} is a user already: their line still works, or remove them and add them again.")
        store.add_user(user, row)
        return administration.NewLogin(user=view(user), line=write_line(Login(url=url, pin=pin, token=token)))

    return change


def removing(name: str) -> Callable[[Store], administration.User]:
    """Return what removes a user and all their tokens."""

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
    return administration.User(name=user.name, role=user.role, created_at=user.created_at, expires_at=user.expires_at)


def _find(store: Store, name: str) -> UserRow | None:
    reader = store.reader()
    try:
        return reader.user(name)
    finally:
        reader.close()
