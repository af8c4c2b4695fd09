"""The client's part for administrators: `client.admin`. The server decides who is one. Prints nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import quote

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import administration, traces
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.transport import Request


class Admin:
    """Nodes, join lines, users and old jobs of the master that a client speaks to."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller

    def join_token(
        self, *, node_id: str | None = None, ttl_s: float = 3600.0, listen: Sequence[str] = ()
    ) -> administration.JoinToken:
        """Return a line with which one machine can join once; for administrators."""
        body = msgspec.json.encode(
            administration.JoinTokenRequest(node_id=node_id, ttl_s=ttl_s, listen=tuple(listen))
        )
        return self._caller.call(
            Request(method="POST", path="join-tokens", body=body), administration.JoinToken
        )

    def revoke_node(self, node_id: str, reason: str = "") -> administration.NodeActionAnswer:
        """Refuse a node from now on; what it runs is given up. For administrators."""
        return self.change_node(node_id, "revoke", reason)

    def change_node(
        self,
        node_id: str,
        action: administration.NodeActionName,
        reason: str = "",
        *,
        users: Sequence[str] = (),
        accounts: Sequence[str] = (),
        labels: Mapping[str, str | None] | None = None,
    ) -> administration.NodeActionAnswer:
        """Drain, resume, maintain, label or remove a node, or set who may use it; for administrators."""
        change = administration.NodeAction(
            action=action,
            reason=reason,
            users=tuple(users),
            accounts=tuple(accounts),
            labels=dict(labels or {}),
        )
        request = Request(
            method="PATCH", path=f"nodes/{quote(node_id, safe='')}", body=msgspec.json.encode(change)
        )
        return self._caller.call(request, administration.NodeActionAnswer)

    def ping_node(self, node_id: str) -> traces.NodePing:
        """Ask a node's agent who it is, through its link, with times and versions."""
        return self._caller.call(
            Request(method="POST", path=f"nodes/{quote(node_id, safe='')}/ping"), traces.NodePing
        )

    def remove_node(self, node_id: str) -> administration.NodeActionAnswer:
        """Forget a node that is offline and holds nothing; for administrators."""
        return self._caller.call(
            Request(method="DELETE", path=f"nodes/{quote(node_id, safe='')}"), administration.NodeActionAnswer
        )

    def users(self) -> tuple[administration.User, ...]:
        """Return the users of a shared master; for administrators."""
        return self._caller.call(Request(path="users"), administration.UserList).users

    def add_user(
        self, name: str, *, admin: bool = False, ttl_s: float | None = None
    ) -> administration.NewLogin:
        """Add a user to a shared master and return the line to log in with, once; for administrators."""
        try:
            body = msgspec.convert(
                {"name": name, "role": "admin" if admin else "user", "ttl_s": ttl_s}, administration.NewUser
            )
        except msgspec.ValidationError as error:
            raise InvalidRequest(
                "bad-user", f"{name!r} cannot be a user's name: use letters, digits and . _ @ - (64 at most)."
            ) from error
        # Sent once: a second try after a lost answer would find the name taken.
        return self._caller.call(
            Request(method="POST", path="users", body=msgspec.json.encode(body)),
            administration.NewLogin,
            retry_s=0,
        )

    def remove_user(self, name: str) -> administration.User:
        """Remove a user and all their logins; for administrators."""
        return self._caller.call(Request(method="DELETE", path=f"users/{name}"), administration.User)

    def purge(
        self, older_than_s: float, *, user: str | None = None, everybody: bool = False, dry_run: bool = False
    ) -> administration.PurgeAnswer:
        """Forget your jobs that ended long enough ago, with their output; administrators, also those of
        others.
        """
        wish = administration.PurgeRequest(
            older_than_s=older_than_s, user=user, everybody=everybody, dry_run=dry_run
        )
        return self._caller.call(
            Request(method="POST", path="jobs/purge", body=msgspec.json.encode(wish)),
            administration.PurgeAnswer,
        )
