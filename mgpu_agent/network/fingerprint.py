"""What a job finds on this node: versions of Python, torch and the GPU driver, so that nodes of one job can be compared.

torch is not imported (that takes seconds): its version is in what pip wrote down.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping

from mgpu_agent.protocol.meeting import Fingerprint
from mgpu_agent.protocol.model import LaunchSpec

_ASK_S = 3.0
REMEMBERED_S = 60.0  # packages come and go
_QUESTION = """
import sys, importlib.metadata as metadata
try:
    torch = metadata.version("torch")
except metadata.PackageNotFoundError:
    torch = ""
print("%d.%d.%d" % sys.version_info[:3]); print(torch)
"""
_DRIVER = "/proc/driver/nvidia/version"
_PYTHON = re.compile(r"(python|pypy)[0-9.]*")
_answers: dict[str, tuple[float, tuple[str, str]]] = {}
_lock = threading.Lock()


def fingerprint_of(spec: LaunchSpec) -> Fingerprint:
    """Return what the processes of a launch will find; asks an interpreter, and remembers the answer for a while."""
    interpreter = interpreter_of(spec, os.environ)
    python, torch = _ask_once(interpreter) if interpreter else ("", "")
    return Fingerprint(python=python, torch=torch, driver=_driver())


def interpreter_of(spec: LaunchSpec, environ: Mapping[str, str]) -> str:
    """Return the Python that a launch uses, as far as that can be seen: of a cell, of a command, of a script's first line."""
    if spec.script is not None:
        wished = spec.python.path or spec.python.kernel_path or ""
        return shutil.which(wished) or sys.executable
    path = spec.env.get("PATH", environ.get("PATH", os.defpath))
    for word in _words(spec.argv):
        program = shutil.which(word, path=path)
        if program is None:
            continue
        if _PYTHON.fullmatch(os.path.basename(word)):
            return program
        if (named := _named_by(program)) and _PYTHON.match(os.path.basename(named)):
            return shutil.which(named, path=path) or ""
    return shutil.which("python3", path=path) or ""


def _words(argv: tuple[str, ...]) -> list[str]:
    """Return the words in which a program may be named: the first, or those of a shell's text."""
    if len(argv) > 2 and os.path.basename(argv[0]) in ("sh", "bash", "dash", "zsh"):
        try:
            return shlex.split(argv[2])[:32]
        except ValueError:
            return []
    return list(argv[:1])


def _named_by(program: str) -> str:
    """Return the interpreter that the `#!` line of a script names."""
    try:
        with open(program, "rb") as file:
            first = file.readline(256)
    except OSError:
        return ""
    words = first[2:].decode(errors="replace").split() if first.startswith(b"#!") else []
    if words and os.path.basename(words[0]) == "env":
        words = [word for word in words[1:] if not word.startswith("-")]
    return words[0] if words else ""


def _ask_once(path: str) -> tuple[str, str]:
    with _lock:
        asked_at, known = _answers.get(path, (-REMEMBERED_S, ("", "")))
    if time.monotonic() - asked_at >= REMEMBERED_S:
        known = _ask(path)
        with _lock:
            _answers[path] = (time.monotonic(), known)
    return known


def _ask(path: str) -> tuple[str, str]:
    try:
        answer = subprocess.run(
            [path, "-I", "-c", _QUESTION], capture_output=True, text=True, timeout=_ASK_S, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return "", ""
    python, _, torch = answer.stdout.strip().partition("\n")
    return python, torch


def _driver() -> str:
    try:
        with open(_DRIVER, encoding="utf-8", errors="replace") as file:
            found = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", file.readline())
    except OSError:
        return ""
    return found.group(1) if found else ""
