"""Give up all rights but those of one account, for good. Nothing else in the agent changes its user."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource

from mgpu_agent.run_as.account import Account, Confinement

_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38
_KEYCTL = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "ppc64le": 271, "s390x": 280}
_KEYCTL_JOIN_SESSION_KEYRING = 1
LIMITS = {
    name.removeprefix("RLIMIT_").lower(): value
    for name, value in vars(resource).items()
    if name.startswith("RLIMIT_")
}
"""Resource limits by their names in the settings."""


def close_inherited() -> None:
    """Close every descriptor after stderr, so that none reaches the children of this process."""
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2:
            with contextlib.suppress(OSError):  # the descriptor of this list itself
                os.close(int(name))


def become(account: Account, confinement: Confinement) -> None:
    """Become this account and nobody else; raises `OSError` or `PermissionError` if that is incomplete."""
    os.chdir("/")
    os.umask(confinement.umask)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    for name, soft, hard in confinement.limits:
        resource.setrlimit(LIMITS[name], (soft, hard))
    os.setgroups(account.groups)
    os.setresgid(account.gid, account.gid, account.gid)
    os.setresuid(account.uid, account.uid, account.uid)
    library = ctypes.CDLL(None, use_errno=True)
    _leave_keyring(library)
    prctl = library.prctl
    # Otherwise processes of the same account could read its memory and take its descriptors.
    _check(prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0) == 0, "it can be looked into")
    if confinement.no_new_privs:
        _check(prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "it could gain rights")
    _check(
        os.getresuid() == (account.uid,) * 3 and os.getresgid() == (account.gid,) * 3, "it is somebody else"
    )
    _check(set(os.getgroups()) == set(account.groups), "it has other groups")
    if account.uid != 0:
        with contextlib.suppress(PermissionError):
            os.setuid(0)
            _check(False, "it can be root again")
        _check(not _capabilities(), "it has capabilities left")


def _leave_keyring(library: ctypes.CDLL) -> None:
    """Join a new session keyring: that of the agent would be shared by the jobs of all users.

    A system without keyrings, or one that forbids them, has nothing to share.
    """
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        library.syscall(ctypes.c_long(number), ctypes.c_long(_KEYCTL_JOIN_SESSION_KEYRING), None)


def _capabilities() -> int:
    with open("/proc/self/status", "rb") as file:
        return int(next(line for line in file if line.startswith(b"CapEff:")).split()[1], 16)


def _check(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise PermissionError(f"The helper did not become the account: {otherwise}.")
