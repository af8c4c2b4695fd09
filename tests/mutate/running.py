"""Runs tests on a copy of the tree that has one mutant in it, in namespaces of its own. The checkout is never
written to.

Where the kernel allows it, the copy is mounted over the checkout's path for these processes alone, so that
every program that a test starts finds the mutant by whatever way it finds mgpu; their process ids and their
network are their own, too, and end with the run. Elsewhere the copy comes first in `PYTHONPATH`, which
reaches fewer programs, and the process group is killed.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.mutate.selection import Chosen, Ran
from tests.mutate.sites import Mutant, apply

ROOT = Path(__file__).parents[2]
MOUNT = """
set -e
mount --bind "$1/.venv" "$2/.venv" && mount --rbind "$2" "$1"
ip link set lo up 2>/dev/null || true
cd "$1" && shift 2
"$@" || exit $?
"""
"""The shell stays, as process 1: a test that is process 1 itself would not get signals as everywhere, nor
would one in the background.
"""
NAMESPACES = ("unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "--ipc", "--net")
PLAIN = ("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "--no-header", "--tb=no")
ALL = (*PLAIN, "-m", "not references")
"""Replays of real traces take minutes each; `--wider` can name them."""
OPTIONS = ("-x", *PLAIN)
SELECTION = ("-p", "tests.mutate.selection")
NOTHING_CHOSEN = 5
"""What pytest exits with when it ran no test."""
TRACED = "mgpu_agent/__init__.py"
"""Whatever runs the product loads this file."""
TRACE = """
try:
    _names = {{"__name__": "tracer"}}
    with open({place!r} + "/tracer.py") as _file:
        exec(compile(_file.read(), "tracer.py", "exec"), _names)
    _names["install"]({root!r}, {place!r})
except OSError:
    pass
"""
FOLDERS = {
    "mgpu_agent/protocol": ("protocol", "agent"),
    "mgpu_agent": ("agent",),
    "mgpu_jupyter/api": ("api", "server"),
    "mgpu_jupyter/contrib": ("packing", "architecture"),
    "mgpu_jupyter/engines": ("engines", "contract"),
    "mgpu_jupyter/scheduler": ("scheduler",),
    "mgpu_jupyter/simulate": ("simulate",),
    "mgpu_jupyter/store": ("store", "contract"),
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
        self._chosen = place / "chosen.json"
        self._types = place / "types"
        self._alone = alone
        self._times = 0
        listed = subprocess.run(
            ["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=root, capture_output=True, check=True
        ).stdout
        for name in filter(None, listed.decode().split("\0")):
            if (root / name).is_file():
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, self.path / name, follow_symlinks=False)
        (self.path / ".venv").mkdir(exist_ok=True)

    def run(self, words: list[str], limit_s: float) -> tuple[int | None, str]:
        """Run Python with these words; return its code, None if it was not over in time, and what it
        printed.
        """
        shutil.rmtree(self._temporary, ignore_errors=True)
        command = [sys.executable, *words]
        env = {**os.environ, "PYTHONPATH": str(self.path)}
        if self._alone:
            command = [*NAMESPACES, "bash", "-c", MOUNT, "mutate", str(self._root), str(self.path), *command]
            del env["PYTHONPATH"]
        if (
            signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        ):  # as of a script's background; tests interrupt programs
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

    def map(self, folder: str, limit_s: float) -> tuple[list[Ran], str]:
        """Run the tests of a folder; return each with the lines that pytest's process saw, and the notes of
        other processes.
        """
        with tempfile.TemporaryDirectory(prefix="mgpu-lines-", ignore_cleanup_errors=True) as name:
            place = Path(name)
            place.chmod(0o777)  # jobs of tests run as other users
            shutil.copy(Path(__file__).with_name("tracer.py"), place)
            (place / "notes").touch()
            (place / "notes").chmod(0o666)
            file = self.path / TRACED
            source = file.read_text()
            root = self._root if self._alone else self.path
            with self._changed(TRACED, source + TRACE.format(place=name, root=str(root))):
                self.run(["-m", "pytest", *ALL, *SELECTION, f"--mutate-map={name}", folder], limit_s)
            told = (place / "tests.jsonl").read_bytes() if (place / "tests.jsonl").exists() else b""
            ran = [msgspec.json.decode(line, type=Ran) for line in told.splitlines()]
            return ran, (place / "notes").read_text()

    def failing(self, tests: list[str], limit_s: float) -> list[str]:
        """Return those of these tests that fail without any mutant."""
        code, output = self.run(["-m", "pytest", *ALL, *tests], limit_s)
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        return [line.split(" - ")[0].split(" ", 1)[1] for line in failed] if code is not None else tests

    def test(self, paths: list[str], limit_s: float, *more: str) -> tuple[bool, str]:
        """Tell whether these tests fail, and which does first; what is not over in time has failed."""
        code, output = self.run(
            ["-m", "pytest", *OPTIONS, f"--basetemp={self._temporary}", *more, *paths], limit_s
        )
        if code is None:
            return True, f"not over within {limit_s:g} s"
        failed = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
        if code == NOTHING_CHOSEN:
            return False, ""
        return code != 0, failed[0].split(" - ")[0] if failed else output.strip().splitlines()[
            -1
        ] if code and output.strip() else ""

    def judge(
        self,
        mutant: Mutant,
        paths: list[str],
        wider: list[str],
        limit_s: float,
        wider_limit_s: float,
        *more: str,
        chosen: Chosen | None = None,
        by_types: bool = False,
    ) -> Result:
        """Plant a mutant, say whether the tests notice, and take it out again."""
        with self._changed(mutant.path, apply(mutant, (self.path / mutant.path).read_text())):
            if paths:
                own = [*more, "-m", "not references"]
                if chosen is not None:
                    self._chosen.write_bytes(msgspec.json.encode(chosen))
                    own += [*SELECTION, f"--mutate-tests={self._chosen}"]
                failed, told = self.test(paths, limit_s, *own)
                if failed:
                    return Result(mutant=mutant, killed_by="folder", told=told)
            if by_types:
                code, output = self.run(["-m", "mypy", f"--cache-dir={self._types}"], wider_limit_s)
                if code:
                    return Result(mutant=mutant, killed_by="wider", told=f"mypy: {output.splitlines()[0]}")
            if wider:
                failed, told = self.test(wider, wider_limit_s, *more)
                if failed:
                    return Result(mutant=mutant, killed_by="wider", told=told)
        return Result(mutant=mutant)

    @contextlib.contextmanager
    def _changed(self, name: str, text: str) -> Iterator[None]:
        """Have another text in a file of the copy."""
        file = self.path / name
        source, before = file.read_bytes(), file.stat()
        self._times += 1
        file.write_text(text)
        # Compiled files are known by time and size of their source: both may be as before within a second.
        os.utime(file, (before.st_atime, int(before.st_mtime) + self._times))
        try:
            yield
        finally:
            file.write_bytes(source)
            os.utime(file, (before.st_atime, before.st_mtime))
