"""Accounts of this machine: which one a job's user has, and the environment of its processes. Changes no
user, starts nothing; never returns root, or a service's account, unless the administrator named it.

Only an agent that runs as root with `--run-as-user` looks for one. A user of mgpu is the account of the same
name, unless the administrator of the node mapped it to another.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping

import msgspec

FIRST_PERSON_UID = 1000  # root and services are below this, on every distribution that we know
TRIAL_USER = ""
"""The user of a trial, which belongs to nobody."""
_TRIAL_ACCOUNT = "nobody"


class NoAccount(msgspec.Struct, frozen=True):
    """Why jobs of this user do not run here."""

    message: str


class Accounts:
    """Users of mgpu and the accounts under which their jobs run."""

    def __init__(self, mapped: Mapping[str, str]) -> None:
        self._mapped = dict(mapped)

    def of(self, user: str) -> Account | NoAccount:
        """Return the account of a user, or why there is none."""
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
            return NoAccount(
                f"{name} is an account of the system on this node, and no job runs as that: {how}."
            )
        return _account(entry)


def _account(entry: pwd.struct_passwd) -> Account:
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, tuple(groups), entry.pw_dir, entry.pw_shell)


def _trial_account() -> Account | NoAccount:
    try:
        return _account(pwd.getpwnam(_TRIAL_ACCOUNT))
    except KeyError:
        return NoAccount(f"This node has no account {_TRIAL_ACCOUNT!r}, as which a trial start would run.")


DEFAULT_PATH = b"/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_PASSED = frozenset(
    (
        *(b"PATH", b"LANG", b"LANGUAGE", b"TZ", b"TMPDIR", b"LD_LIBRARY_PATH", b"EDITOR", b"PAGER"),
        *(
            b"CUDA_HOME",
            b"CUDA_PATH",
            b"CUDA_ROOT",
            b"OMP_NUM_THREADS",
            b"REQUESTS_CA_BUNDLE",
            b"SSL_CERT_FILE",
            b"SSL_CERT_DIR",
        ),
        *(b"HTTP_PROXY", b"HTTPS_PROXY", b"NO_PROXY", b"FTP_PROXY", b"ALL_PROXY"),
        *(b"http_proxy", b"https_proxy", b"no_proxy", b"ftp_proxy", b"all_proxy"),
        *(b"MODULEPATH", b"MODULESHOME", b"MODULES_CMD", b"LMOD_CMD", b"LMOD_DIR", b"LMOD_ROOT", b"LMOD_PKG"),
    )
)
"""The variables of the agent's environment that a job of another account gets: what a site sets for everybody
on the machine, and nothing else.
"""
_PASSED_PREFIXES = (b"LC_", b"NCCL_", b"UCX_", b"NVIDIA_", b"FI_")


class Account(msgspec.Struct, frozen=True, array_like=True):
    """An account of this machine, under which the processes of a launch run."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    home: str = "/"
    shell: str = ""


class Confinement(msgspec.Struct, frozen=True, array_like=True):
    """The limits on every process that runs for a user."""

    umask: int = 0o022
    limits: tuple[tuple[str, int, int], ...] = ()
    """Resource limits by name, soft and hard, as `ulimit` has them; -1 for none. Those not named stay as the
    agent has them.
    """
    no_new_privs: bool = False
    """Whether its processes cannot gain privileges: sudo, ping and rootless containers do not work then."""
    cgroups: bool = False
    """Whether jobs get no more processors and memory than they asked for."""


def login_environment(account: Account, base: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the node's environment as this account would find it after a login: only the variables named
    here, never the rest of root's.
    """
    passed = {
        name: value for name, value in base.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)
    }
    passed.setdefault(b"PATH", DEFAULT_PATH)
    name = os.fsencode(account.name)
    own = {
        b"HOME": os.fsencode(account.home),
        b"USER": name,
        b"LOGNAME": name,
        b"SHELL": os.fsencode(account.shell or "/bin/sh"),
    }
    return passed | own
