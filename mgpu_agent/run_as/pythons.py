"""Which Python a cell or a command gets, and its version: read from files, with the rights of the caller.
Runs no interpreter.

The path is a user's, and so may be the program: only the process of a job ever starts it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import stat
import sys

from mgpu_agent.run_as.requests import Compare, LookAround, Versions

OWN_VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"
_READ_BYTES = 4096
_MAX_PACKAGES = 20_000
_NAMED = re.compile(r"(?:python|pypy)(\d+\.\d+)t?")
_LIBRARY = re.compile(r"(?:python|pypy)(\d+\.\d+)t?")
_CONFIGURED = re.compile(r"^\s*version(?:_info)?\s*=\s*(\d+\.\d+)", re.MULTILINE)
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_TORCH = re.compile(r"torch-([^-]+?)(?:-py[\d.]+)?\.(?:dist|egg)-info")
_TORCH_LINE = re.compile(r"^__version__\s*(?::\s*\w+\s*)?=\s*['\"]([^'\"]{1,100})['\"]", re.MULTILINE)
_PACKAGES = (
    "lib/{name}/site-packages",
    "lib64/{name}/site-packages",
    "lib/{name}/dist-packages",
    "lib/python3/dist-packages",
)


def choose(task: LookAround) -> tuple[str, str, str]:
    """Return an interpreter, its version, and what is wrong: the one asked for, else the kernel's own if it
    is the same here, else ours.
    """
    if task.python is not None:
        found = shutil.which(task.python, path=task.search or None)
        if found is None:
            return (
                "",
                "",
                (
                    f"{task.python}: there is no such Python on this node; leave --python out or name one "
                    f"that "
                    f"is there."
                ),
            )
        return found, version_of(found), ""
    if (
        task.kernel
        and task.kernel_version
        and is_program(task.kernel)
        and version_of(task.kernel) == task.kernel_version
    ):
        return task.kernel, task.kernel_version, ""
    return sys.executable, OWN_VERSION, ""


def is_program(path: str) -> bool:
    """Tell whether this file can be executed."""
    return os.path.isfile(path) and os.access(path, os.X_OK)


def version_of(path: str) -> str:
    """Return `major.minor` of an interpreter by the files around it, or an empty string."""
    real = os.path.realpath(path)
    if path == sys.executable or real == os.path.realpath(sys.executable):
        return OWN_VERSION
    if found := _NAMED.fullmatch(os.path.basename(real)):
        return found[1]
    for prefix in dict.fromkeys(
        (
            os.path.dirname(os.path.dirname(path)),
            os.path.dirname(path),
            os.path.dirname(os.path.dirname(real)),
        )
    ):
        if configured := _CONFIGURED.search(_text(f"{prefix}/pyvenv.cfg")):
            return configured[1]
    versions = {
        found[1]
        for name in _names(f"{os.path.dirname(os.path.dirname(real))}/lib")
        if (found := _LIBRARY.fullmatch(name))
    }
    return versions.pop() if len(versions) == 1 else ""


def compare(task: Compare) -> Versions:
    """Return which Python and torch the processes of a launch will find."""
    interpreter = interpreter_of(task)
    version = version_of(interpreter) if interpreter else ""
    return Versions(python=version, torch=_torch_of(interpreter, version) if version else "")


def interpreter_of(task: Compare) -> str:
    """Return the Python that a launch uses, as far as files tell: of a cell, of a command, of a script's
    first line.
    """
    if task.is_cell:
        return (
            shutil.which(task.wished, path=task.search or None) if task.wished else None
        ) or sys.executable
    for word in _words(task.argv):
        program = shutil.which(word, path=task.search)
        if program is None:
            continue
        if _PYTHON.fullmatch(os.path.basename(word)):
            return program
        if (named := _named_by(program)) and _PYTHON.match(os.path.basename(named)):
            return shutil.which(named, path=task.search) or ""
    return shutil.which("python3", path=task.search) or ""


def _words(argv: tuple[str, ...]) -> list[str]:
    """Return the words that may name a program: the first, or those of a shell's text."""
    if len(argv) > 2 and os.path.basename(argv[0]) in ("sh", "bash", "dash", "zsh"):
        try:
            return shlex.split(argv[2])[:32]
        except ValueError:
            return []
    return list(argv[:1])


def _named_by(program: str) -> str:
    """Return the interpreter in the `#!` line of a script."""
    first, _, _ = _text(program, 256).partition("\n")
    words = first[2:].split() if first.startswith("#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return words[0] if words else ""


def _torch_of(path: str, version: str) -> str:
    """Return torch's version by pip's records; importing torch would take seconds."""
    prefix, real = (os.path.dirname(os.path.dirname(one)) for one in (path, os.path.realpath(path)))
    is_alone = "include-system-site-packages = false" in _text(f"{prefix}/pyvenv.cfg").lower()
    for one in (prefix,) if is_alone else dict.fromkeys((prefix, real, "/usr/local")):
        for place in _PACKAGES:
            directory = f"{one}/{place.format(name=f'python{version}')}"
            for name in _names(directory):
                if found := _TORCH.fullmatch(name):
                    return found[1]
            if told := _TORCH_LINE.search(_text(f"{directory}/torch/version.py")):
                return told[1]
    return ""


def _names(directory: str) -> list[str]:
    names: list[str] = []
    with contextlib.suppress(OSError, ValueError), os.scandir(directory) as entries:
        for entry in entries:
            names.append(entry.name)
            if len(names) >= _MAX_PACKAGES:
                break
    return names


def _text(path: str, size: int = _READ_BYTES) -> str:
    """Return the beginning of a plain file; empty for a pipe or device, which could block."""
    with contextlib.suppress(OSError, ValueError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                return os.read(descriptor, size).decode(errors="replace")
        finally:
            os.close(descriptor)
    return ""
