"""Runs tests on a copy of the tree that has one mutant in it, in namespaces of its own. The checkout is never written to.

Where the kernel allows it, the copy is mounted over the checkout's path for these processes alone, so that every program that a test
starts finds the mutant by whatever way it finds mgpu; their process ids and their network are their own, too, and end with the run.
Elsewhere the copy comes first in `PYTHONPATH`, which reaches fewer programs, and the process group is killed.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import msgspec

from tests.mutate.sites import Mutant, apply

ROOT = Path(__file__).parents[2]
MOUNT = """
set -e
mount --bind "$1/.venv" "$2/.venv" && mount --rbind "$2" "$1"
ip link set lo up 2>/dev/null || true
cd "$1" && shift 2
"$@" || exit $?
"""
"""The shell stays, as process 1: a test that is process 1 itself would not get signals as everywhere, nor would one in the background."""
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--ipc", "--net")
OPTIONS = ("-q", "-x", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "--tb=no")
FOLDERS = {
    "mgpu_agent/protocol": ("protocol", "agent"),
    "mgpu_agent": ("agent",),
    "mgpu_jupyter/api": ("api", "server"),
    "mgpu_jupyter/contrib": ("packing", "architecture"),
    "mgpu_jupyter/scheduler": ("scheduler",),
    "mgpu_jupyter/simulate": ("simulate",),
    "mgpu_jupyter/transport": ("transport", "engines"),
}
"""The folders of tests for a package; others have the package's own name."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a mutant."""

    mutant: Mutant
    killed_by: str = ""
    """`folder`, `wider`, or empty for one that survived."""
    told: str = ""
    """The test that failed, or that the limit was over."""
    equivalent: str = ""
    """Why nothing can tell it from the product, if somebody found that out."""


def folders_of(path: str) -> list[str]:
    """Return the folders with the tests of this file."""
    parts = Path(path).parts
    for depth in range(len(parts) - 1, 0, -1):
        if names := FOLDERS.get("/".join(parts[:depth])):
            return [f"tests/{name}" for name in names]
    return [f"tests/{parts[1]}"]


def files_for(root: Path, path: str) -> list[str]:
    """Return the files with the tests of this file: those that name its module first."""
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    parent, _, own = module.rpartition(".")
    names = re.compile(rf"\b{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{re.escape(own)}\b")
    ranked = []
    for position, folder in enumerate(folders_of(path)):
        for file in sorted((root / folder).rglob("test_*.py")):
            is_near = names.search(file.read_text()) is not None or own in file.stem
            ranked.append((not is_near, position, str(file.relative_to(root))))
    return [file for _, _, file in sorted(ranked)]


def has_namespaces() -> bool:
    """Tell whether runs can have their own mounts, processes and network here."""
    return subprocess.run([*NAMESPACES, "true"], check=False, capture_output=True).returncode == 0


class Copy:
    """One copy of the tree, and what runs on it."""

    def __init__(self, place: Path, root: Path = ROOT, *, alone: bool = True) -> None:
        self.path = place / "tree"
        self._root = root
        self._temporary = place / "t"
        self._alone = alone
        self._times = 0
        listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, check=True).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (root / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.path / name, follow_symlinks=False)
        (self.path / ".venv").mkdir(exist_ok=True)

    def run(self, words: list[str], limit_s: float) -> tuple[int | None, str]:
        """Run Python with these words; return its code, None if it was not over in time, and what it printed."""
        shutil.rmtree(self._temporary, ignore_errors=True)
        command = [sys.executable, *words]
        env = {**os.environ, "PYTHONPATH": str(self.path)}
        if self._alone:
            command = [*NAMESPACES, "bash", "-c", MOUNT, "mutate", str(self._root), str(self.path), *command]
            del env["PYTHONPATH"]
        if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as of a script's background; tests interrupt programs
            command = ["env", "--default-signal=INT", *command]
        process = subprocess.Popen(
            command,
            cwd=self.path,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return None, ""
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
        return process.returncode, output.decode(errors="replace")

    def test(self, paths: list[str], limit_s: float, *more: str) -> tuple[bool, str]:
        """Tell whether these tests fail, and which does first; what is not over in time has failed."""
        code, output = self.run(["-m", "pytest", *OPTIONS, f"--basetemp={self._temporary}", *more, *paths], limit_s)
        if code is None:
            return True, f"not over within {limit_s:g} s"
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return code != 0, failed[0].split(" - ")[0] if failed else output.strip().splitlines()[-1] if code and output.strip() else ""

    def judge(self, mutant: Mutant, paths: list[str], wider: list[str], limit_s: float, wider_limit_s: float, *more: str) -> Result:
        """Plant a mutant, say whether the tests notice, and take it out again."""
        file = self.path / mutant.path
        source, before = file.read_text(), file.stat()
        self._times += 1
        file.write_text(apply(mutant, source))
        # Compiled files are known by time and size of their source: both may be as before within a second.
        os.utime(file, (before.st_atime, int(before.st_mtime) + self._times))
        try:
            for killed_by, files, limit in (("folder", paths, limit_s), ("wider", wider, wider_limit_s)):
                if files:
                    failed, told = self.test(files, limit, *more)
                    if failed:
                        return Result(mutant=mutant, killed_by=killed_by, told=told)
        finally:
            file.write_text(source)
            os.utime(file, (before.st_atime, before.st_mtime))
        return Result(mutant=mutant)
