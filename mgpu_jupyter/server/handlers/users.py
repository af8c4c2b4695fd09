"""Users of a shared master, for administrators. Each method reads the request, makes one call, answers."""

from __future__ import annotations

from mgpu_jupyter.api.administration import NewUser
from mgpu_jupyter.server import people
from mgpu_jupyter.server.handlers.base import Guarded


class UsersHandler(Guarded):
    """All users."""

    path = "users"

    def get(self) -> None:
        """List users by name."""
        self.person.check_is_admin("administer users")
        self.answer(people.listed(self.service.reader))

    async def post(self) -> None:
        """Add a user; the line is in this answer and nowhere else."""
        self.person.check_is_admin("administer users")
        wanted = self.read_body(NewUser)
        change = people.adding(wanted, self.extension.access, self.extension.public_url_now(), self.extension.certificate_pin)
        self.set_header("Cache-Control", "no-store")
        self.answer(await self.service.write(change), 201)


class UserHandler(Guarded):
    """One user."""

    path = "users/{user_name}"

    async def delete(self, user_name: str) -> None:
        """Remove a user and all their logins; connections that they hold end too."""
        self.person.check_is_admin("administer users")
        removed = await self.service.write(people.removing(user_name))
        self.extension.end_streams_of(user_name)
        self.answer(removed)
