"""The program of `--output` and `--error`: runs a job's command and copies what it prints to files of its
user, and to the spool. Knows no job, uses the standard library alone.

It is a process of the job, as its user and in its directory, so that nothing is opened with other rights. It
is run by its text, because users may not be able to enter where mgpu is installed. Signals are for the
command: this ignores them, and ends as the command does, after all that was printed is copied. Once a file
cannot be written any more that is said, and the rest goes to the spool alone.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import shutil
import signal
import sys
from collections.abc import Mapping
from functools import cache

VARIABLE = "MGPU_OUTPUT_FILES"
"""Where it finds its files; the command does not see it."""
NOT_FOUND, NOT_EXECUTABLE, NO_FILE = 127, 126, 1
CHUNK_BYTES = 1 << 16
_FLAGS = {1: "--output", 2: "--error"}
_FOR_THE_COMMAND = (
    signal.SIGHUP,
    signal.SIGINT,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGALRM,
    signal.SIGTERM,
    signal.SIGVTALRM,
    signal.SIGPROF,
    signal.SIGXCPU,
    signal.SIGIO,
    signal.SIGPWR,
    signal.SIGPIPE,
    signal.SIGXFSZ,
)


@cache
def _program() -> tuple[bytes, ...]:
    with open(__file__, "rb") as file:
        return (os.fsencode(sys.executable), b"-I", b"-S", b"-c", file.read())


def copied(words: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """Return words that run `words` and copy what they print to the files that their environment names."""
    return (*_program(), *words)


def main() -> int:
    """Run the command that the words name, to its end."""
    for number in _FOR_THE_COMMAND:
        signal.signal(number, signal.SIG_IGN)
    try:
        files = open_files(json.loads(os.environ.pop(VARIABLE, "[]")))
    except FileNotOpened as error:
        _say(str(error))
        return NO_FILE
    pipes = {stream: os.pipe() for stream in files}
    child = start(sys.argv[1:], {stream: end for stream, (_, end) in pipes.items()})
    for _, end in pipes.values():
        os.close(end)
    if child < 0:
        return -child
    copy(child, {start: (stream, files[stream]) for stream, (start, _) in pipes.items()})
    return end_like(os.waitpid(child, 0)[1])


class FileNotOpened(Exception):
    """Why a file is not there to be written."""


def open_files(wanted: list[tuple[int, str, bool]]) -> dict[int, int]:
    """Return a descriptor for each stream; one name is one file."""
    opened: dict[str, int] = {}
    for stream, path, append in wanted:
        if path not in opened:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOCTTY | (0 if append else os.O_TRUNC)
            try:
                opened[path] = os.open(path, flags, 0o666)
            except OSError as error:
                raise FileNotOpened(
                    f"{_FLAGS[stream]} {path} cannot be opened on this node: {error.strerror}. Make its "
                    f"directory, or name a file that you may write."
                ) from error
    return {stream: opened[path] for stream, path, _ in wanted}


def start(words: list[str], streams: Mapping[int, int]) -> int:
    """Start the command with these streams and return its pid; below 0, the exit code of one that cannot be
    started.
    """
    actions = [(os.POSIX_SPAWN_DUP2, end, stream) for stream, end in streams.items()]

    def spawn(name: str, words: list[str]) -> int:
        return os.posix_spawnp(name, words, os.environ, file_actions=actions, setsigdef=_FOR_THE_COMMAND)

    try:
        try:
            return spawn(words[0], words)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
        # A text file without a #! line is a shell script, as for every shell.
        return spawn("/bin/sh", ["/bin/sh", shutil.which(words[0]) or words[0], *words[1:]])
    except FileNotFoundError:
        _say(f"{words[0]}: command not found on this node.")
        return -NOT_FOUND
    except OSError as error:
        _say(f"{words[0]}: {error.strerror}.")
        return -NOT_EXECUTABLE


def copy(child: int, pipes: Mapping[int, tuple[int, int]]) -> None:
    """Copy from these pipes until the command has ended and nothing is left in them."""
    files = dict(pipes)
    poll = select.poll()
    for pipe in files:
        os.set_blocking(pipe, False)
        poll.register(pipe, select.POLLIN)
    ended = os.pidfd_open(child)
    poll.register(ended, select.POLLIN)
    while True:
        ready = {descriptor for descriptor, _ in poll.poll()}
        is_over = ended in ready
        for pipe in list(files):
            if (is_over or pipe in ready) and _copy_some(pipe, files, to_the_end=is_over):
                poll.unregister(pipe)
                del files[pipe]
        if is_over:
            return


def _copy_some(pipe: int, files: dict[int, tuple[int, int]], *, to_the_end: bool) -> bool:
    """Copy what is there, once or until there is no more; tell whether nothing can follow."""
    while True:
        try:
            data = os.read(pipe, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            return True
        stream, file = files[pipe]
        with contextlib.suppress(OSError):  # the node's own disk is full: as if the command had met it
            _write(stream, data)
        if file >= 0:
            try:
                _write(file, data)
            except OSError as error:
                files[pipe] = stream, -1
                _say(
                    f"mgpu: the file of {_FLAGS[stream]} is not written any further: {error.strerror}. All "
                    f"output is in `mgpu logs {os.environ.get('MGPU_JOB_ID', 'ID')}`."
                )
        if not to_the_end:
            return False


def _write(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def end_like(status: int) -> int:
    """Return the exit code of a command, or end by the signal that ended it."""
    if os.WIFSIGNALED(status):
        import resource

        number = os.WTERMSIG(status)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # KILL and STOP cannot be set
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    return os.WEXITSTATUS(status)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"{text}\n".encode(errors="surrogateescape"))


if __name__ == "__main__":
    sys.exit(main())
