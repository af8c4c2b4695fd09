"""A keeper's place in the node's directory: its lock and its socket. One keeper per directory."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from pathlib import Path

from mgpu_agent.keeper.messages import LOCK_NAME, SOCKET_NAME

LOCK_WAIT_S = 10.0
LEAST_ROOM_BYTES = 1024 * 1024  # with less, a job's first words would fail it


def listen(directory: Path) -> socket.socket:
    """Bind the socket through the directory's descriptor, because a Unix socket's path may have 108 bytes only."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        (directory / SOCKET_NAME).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(f"/proc/self/fd/{descriptor}/{SOCKET_NAME}")
        (directory / SOCKET_NAME).chmod(0o600)
    finally:
        os.close(descriptor)
    listener.listen(4)
    listener.setblocking(False)
    return listener


def has_room(directory: Path) -> bool:
    """Tell whether the disk of a directory takes the output of one more job."""
    try:
        disk = os.statvfs(directory)
    except OSError:
        return True  # the start itself will say what is wrong
    return disk.f_bavail * disk.f_frsize >= LEAST_ROOM_BYTES


def take_lock(directory: Path) -> int | None:
    """Take the directory's lock, waiting a little for a keeper that is about to end."""
    descriptor = os.open(directory / LOCK_NAME, os.O_RDWR | os.O_CREAT, 0o600)
    give_up_at = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= give_up_at:
                os.close(descriptor)
                return None
            time.sleep(0.02)
        else:
            return descriptor
