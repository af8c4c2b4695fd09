"""Start one process as the present user, as a shell would: own session, clean signals, its files. Keeps no
record of it.

The user was decided before: it is the keeper's own, or that of a helper, which has no other.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Sequence
from typing import Any

import msgspec

NOT_FOUND = 127
NOT_EXECUTABLE = 126
_DEFAULT_PATH = b"/usr/local/bin:/usr/bin:/bin"
_OUTPUT_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW


class Stdin(msgspec.Struct, frozen=True):
    """The stdin of a process: a terminal by its path, or a descriptor of ours."""

    terminal: str
    descriptor: int


class SpawnFailure(msgspec.Struct, frozen=True):
    """Why nothing was started, in the words of a shell."""

    code: str
    message: str
    fault: str
    """Whose fault it is: `request` (it can never run), `job` (it may run elsewhere, and says nothing about
    the node), `node` or `stale`.
    """
    exit_code: int | None = None


def ignored_signals() -> list[signal.Signals]:
    """Return the signals that this process ignores, which a child must not inherit."""
    named = (number for number in signal.valid_signals() if isinstance(number, signal.Signals))
    return [number for number in named if signal.getsignal(number) == signal.SIG_IGN]


def spawn(
    argv: tuple[bytes, ...],
    env: dict[bytes, bytes],
    stdout: str | int,
    stderr: str | int,
    reset_signals: Sequence[signal.Signals],
    *,
    stdin: Stdin | None = None,
) -> int | SpawnFailure:
    """Start `argv` in the present directory and return its pid, or why that failed.

    `stdout` and `stderr` are files to be made or descriptors; `stdin` is its input, or its whole
    terminal.
    """
    program = find_program(argv[0], env.get(b"PATH", _DEFAULT_PATH))
    if isinstance(program, SpawnFailure):
        return program
    files = _files(stdout, stderr, stdin)

    def start(program: bytes, argv: tuple[bytes, ...]) -> int:
        return os.posix_spawn(
            program, argv, env, file_actions=files, setsid=True, setsigmask=(), setsigdef=reset_signals
        )

    try:
        return start(program, argv)
    except OSError as error:
        if error.errno != errno.ENOEXEC:
            return _explain(error, program, stdout, stderr)
    except ValueError as error:  # a NUL or a = where none can be
        return SpawnFailure(
            "bad-command",
            f"The command or its environment cannot be used: {error}.",
            "request",
            NOT_EXECUTABLE,
        )
    # A text file without a #! line is a shell script, as for every shell.
    try:
        return start(b"/bin/sh", (b"/bin/sh", program, *argv[1:]))
    except OSError as error:
        return _explain(error, program, stdout, stderr)


def _files(stdout: str | int, stderr: str | int, stdin: Stdin | None) -> tuple[tuple[Any, ...], ...]:
    if stdin is not None and stdin.terminal:
        # Opened by the leader of a new session, it becomes the controlling terminal of that session.
        terminal = (os.POSIX_SPAWN_OPEN, 0, stdin.terminal, os.O_RDWR, 0)
        return (terminal, (os.POSIX_SPAWN_DUP2, 0, 1), (os.POSIX_SPAWN_DUP2, 0, 2))
    return (
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)
        if stdin is None
        else (os.POSIX_SPAWN_DUP2, stdin.descriptor, 0),
        _output(stdout, 1),
        _output(stderr, 2),
    )


def _output(file: str | int, number: int) -> tuple[Any, ...]:
    return (
        (os.POSIX_SPAWN_DUP2, file, number)
        if isinstance(file, int)
        else (os.POSIX_SPAWN_OPEN, number, file, _OUTPUT_FLAGS, 0o600)
    )


def find_program(name: bytes, path: bytes) -> bytes | SpawnFailure:
    """Return the file that `name` means under the job's own PATH."""
    if b"/" in name:
        return name
    unusable = b""
    for directory in path.split(b":"):
        candidate = os.path.join(directory or b".", name)
        if not os.path.isfile(candidate):
            continue
        if os.access(candidate, os.X_OK):
            return candidate
        unusable = unusable or candidate
    if unusable:
        return _not_executable(unusable)
    return _not_found(name)


def _explain(error: OSError, program: bytes, stdout: str | int, stderr: str | int) -> SpawnFailure:
    if not all(os.path.exists(path) for path in (stdout, stderr) if isinstance(path, str)):
        return SpawnFailure(
            "spool", f"The node could not open the job's output files: {error.strerror}.", "node"
        )
    if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP) and not os.path.exists(program):
        return _not_found(program)
    if error.errno == errno.ENOENT:
        message = f"{os.fsdecode(program)}: its #! line names a program that is not there."
        return SpawnFailure("bad-interpreter", message, "request", NOT_EXECUTABLE)
    if error.errno in (errno.EACCES, errno.ENOEXEC, errno.EISDIR, errno.EPERM):
        return _not_executable(program)
    if error.errno == errno.E2BIG:
        message = "The arguments and environment are too long for this system: put them into a file."
        return SpawnFailure("too-long", message, "request", NOT_EXECUTABLE)
    return SpawnFailure("spawn-failed", f"The node could not start a process: {error.strerror}.", "node")


def _not_found(name: bytes) -> SpawnFailure:
    return SpawnFailure(
        "not-found", f"{os.fsdecode(name)}: command not found on this node.", "request", NOT_FOUND
    )


def _not_executable(name: bytes) -> SpawnFailure:
    return SpawnFailure(
        "not-executable", f"{os.fsdecode(name)}: is not an executable program.", "request", NOT_EXECUTABLE
    )
