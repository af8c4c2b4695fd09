"""Which account of this machine a job's user has. Starts nothing; never hands out root, or a service's account, that nobody named.

Only an agent that runs as root and was told to (`--run-as-user`) asks. A user of mgpu is the account of the same name, unless the
administrator of the node mapped it to another.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

import msgspec

from mgpu_agent.run_as.account import Account

FIRST_PERSON_UID = 1000  # below are root and services, on every distribution that we know
TRIAL_USER = ""
"""The user of a trial start, which belongs to nobody."""
_TRIAL_ACCOUNT = "nobody"


class NoAccount(msgspec.Struct, frozen=True):
    """Why a job of this user does not run here."""

    message: str


class Accounts:
    """Users of mgpu and the accounts under which their jobs run."""

    def __init__(self, mapped: Mapping[str, str]) -> None:
        self._mapped = dict(mapped)

    def of(self, user: str) -> Account | NoAccount:
        """Return the account of a user, or why there is none for it."""
        if user == TRIAL_USER:
            return _trial_account()
        name = self._mapped.get(user, user)
        how = f"its administrator can map it with `mgpu_node --map-user {user}=ACCOUNT`"
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            return NoAccount(f"This node has no account {name!r} for the user {user!r}: {how}.")
        if user not in self._mapped and entry.pw_uid == 0:
            return NoAccount(f"No job runs as root on this node: submit it as another user, or {how}.")
        if user not in self._mapped and entry.pw_uid < FIRST_PERSON_UID:
            return NoAccount(f"{name} is an account of the system on this node, and no job runs as that: {how}.")
        return _account(entry)


def _account(entry: pwd.struct_passwd) -> Account:
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir, entry.pw_shell)


def _trial_account() -> Account | NoAccount:
    try:
        return _account(pwd.getpwnam(_TRIAL_ACCOUNT))
    except KeyError:
        return NoAccount(f"This node has no account {_TRIAL_ACCOUNT!r}, as which a trial start would run.")
