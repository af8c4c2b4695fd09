"""`mgpu logout`: forgets the stored login. The token itself ends when an administrator removes the user."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.login import forget_login


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:  # noqa: ARG001 - a command like the others
    """Forget the login."""
    values = Parser("mgpu logout", "mgpu logout", "Forget the login that `mgpu login` stored.").read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    login = forget_login(os.environ)
    print("There was no login." if login is None else f"The login to {login.url or 'a master elsewhere'} is forgotten.")
    return 0
