"""Doing something as another account: a moment of this process, or a child for good. Only a keeper that is root does either.

A child is made by fork, because `posix_spawn` cannot change its user; the keeper is small, and has no threads.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import termios
from collections.abc import Iterator, Sequence

from mgpu_agent.keeper.messages import Account, Stdin

_OF_THE_AGENT = frozenset((b"MAIL", b"LS_COLORS"))
_OF_THE_AGENT_PREFIXES = (b"XDG_", b"SUDO_", b"SSH_", b"DBUS_", b"GNOME_", b"GPG_")


def environment_of(account: Account, base: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the node's environment as this account would find it after a login."""
    kept = {name: value for name, value in base.items() if name not in _OF_THE_AGENT and not name.startswith(_OF_THE_AGENT_PREFIXES)}
    name = os.fsencode(account.name)
    return {**kept, b"HOME": os.fsencode(account.home), b"USER": name, b"LOGNAME": name, b"SHELL": os.fsencode(account.shell or "/bin/sh")}


@contextlib.contextmanager
def disguised(account: Account | None) -> Iterator[None]:
    """Look at files with the rights of this account, and with those of this process again afterwards."""
    if account is None:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    os.setgroups(account.groups)
    os.setegid(account.gid)
    os.seteuid(account.uid)
    try:
        yield
    finally:
        os.seteuid(os.getuid())
        os.setegid(group)
        os.setgroups(groups)


def start_as(
    account: Account,
    program: bytes,
    argv: tuple[bytes, ...],
    *,
    env: dict[bytes, bytes],
    outputs: tuple[str, str],
    flags: int,
    reset_signals: Sequence[signal.Signals],
    stdin: Stdin | None = None,
) -> int:
    """Start a program as this account in the present directory and return its pid; its output files become its own."""

    terminal = stdin.terminal if stdin is not None else ""

    def reset() -> None:
        if terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        for number in reset_signals:
            signal.signal(number, signal.SIG_DFL)

    opened: list[int] = []
    try:
        for path in outputs:
            opened.append(os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
            os.fchown(opened[-1], account.uid, account.gid)
        if terminal:
            os.chown(terminal, account.uid, -1)
            opened.append(os.open(terminal, os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY))
        process = subprocess.Popen(
            argv,
            executable=program,
            env=env,
            stdin=opened[-1] if terminal else subprocess.DEVNULL if stdin is None else stdin.descriptor,
            stdout=opened[-1] if terminal else opened[0],
            stderr=opened[-1] if terminal else opened[1],
            close_fds=False,
            start_new_session=True,
            user=account.uid,
            group=account.gid,
            extra_groups=account.groups,
            preexec_fn=reset,  # noqa: PLW1509 - there are no threads here
        )
    finally:
        for descriptor in opened:
            os.close(descriptor)
    process.returncode = 0  # the keeper itself collects all children: this object must never wait for one
    return process.pid
