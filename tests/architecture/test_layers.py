"""Rules about the source tree that no linter knows. The import layers themselves are checked by
`lint-imports` in `make check`.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAX_LINES = 400
NOT_OURS = {
    ".git",
    ".venv",
    ".venv-torch",
    ".venv-docs",
    ".mgpu",
    "node_modules",
    "dist",
    "build",
    ".coverage",
    "bench.json",
    "chaos.json",
}
TOP_LEVEL = {"mgpu_agent", "mgpu_jupyter", "labextension", "notebooks", "tests"}
JUNK_DRAWERS = {"utils.py", "helpers.py", "common.py", "manager.py", "misc.py"}

IMPORT_EVERYTHING = """
import importlib, pkgutil, sys

class Blocker:
    blocked = {"jupyter_server", "jupyter_client", "jupyter_core", "IPython", "tornado", "traitlets", "ipykernel", "mgpu_jupyter"}
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.blocked:
            raise ImportError(f"{name} is blocked here")

sys.meta_path.insert(0, Blocker())
import mgpu_agent
names = [module.name for module in pkgutil.walk_packages(mgpu_agent.__path__, "mgpu_agent.") if not module.name.endswith("__main__")]
for name in names:
    importlib.import_module(name)
print(len(names))
"""  # noqa: E501


@functools.cache
def all_files() -> tuple[Path, ...]:
    """Return the files that belong to the project: no environment, no cache, no build output."""

    def is_ours(name: str) -> bool:
        made = name.endswith(("_cache", "__pycache__", ".egg-info")) or name.startswith(
            (".hypothesis", ".coverage")
        )
        return name not in NOT_OURS and not made

    found: list[Path] = []
    for place, folders, names in os.walk(ROOT):
        folders[:] = filter(is_ours, folders)  # what is not ours is large
        found += (Path(place, name) for name in filter(is_ours, names))
    return tuple(found)


def source_files(*suffixes: str) -> Iterator[Path]:
    """Yield those with one of these endings, or all."""
    return (path for path in all_files() if not suffixes or path.suffix in suffixes)


def test_the_agent_runs_without_jupyter() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_EVERYTHING],
        capture_output=True,
        text=True,
        cwd="/",
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert int(done.stdout) > 5


def test_importing_the_client_package_loads_no_server() -> None:
    """A kernel in any environment can use the client: no Jupyter server, no tornado application, no
    ZeroMQ.
    """
    code = (
        "import sys, mgpu_jupyter; mgpu_jupyter.Client; print(sorted({'jupyter_server', 'IPython', "
        "'zmq', 'sqlite3'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd="/", timeout=50, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


def test_a_file_fits_in_a_head() -> None:
    sizes = {
        str(path.relative_to(ROOT)): len(path.read_text().splitlines())
        for path in source_files(".py", ".ts", ".tsx")
    }
    written = {path: lines for path, lines in sizes.items() if not path.endswith(".gen.ts")}
    assert {path: lines for path, lines in written.items() if lines > MAX_LINES} == {}


def test_no_junk_drawers() -> None:
    assert [str(path) for path in source_files(".py") if path.name in JUNK_DRAWERS] == []


def test_every_module_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in source_files(".py")
        if path.relative_to(ROOT).parts[0] in ("mgpu_agent", "mgpu_jupyter")
        and not path.read_text().startswith('"""')
    ]
    assert silent == []


def test_top_level_folders() -> None:
    folders = {
        path.relative_to(ROOT).parts[0] for path in source_files() if len(path.relative_to(ROOT).parts) > 1
    }
    assert {folder for folder in folders if not folder.startswith(".")} <= TOP_LEVEL


def test_no_paths_of_one_machine() -> None:
    """What is in the tree works in any clone: nothing names a developer's own directories."""
    pattern = re.compile(
        rb"(?<![\w.{}$*-])/(?:[w]ork|[r]oot)(?=[/\s\"'`])"
    )  # written so that it does not match itself
    found = [
        f"{path.relative_to(ROOT)}: {match.group().decode()}"
        for path in source_files()
        if path.suffix not in (".png", ".pyc")
        for match in pattern.finditer(path.read_bytes())
    ]
    assert found == []


RAW = {
    "mgpu_jupyter/cli/console.py": "a line that is `printable`, and drawn again and again",
    "mgpu_jupyter/cli/one_job.py": "the output of a job",
    "mgpu_jupyter/cli/show.py": "the sequence that clears the screen",
    "mgpu_jupyter/notebook/magics.py": "the output of a job",
    "mgpu_jupyter/notebook/notes.py": "lines that are `printable`",
    "mgpu_jupyter/notebook/screen.py": "lines that are `printable`",
    "mgpu_jupyter/notebook/stream.py": "the output of a job",
}
"""Who writes to a terminal by itself, and what."""


ESCAPES = {
    "mgpu_jupyter/notebook/actions.py": "arguments of commands, as data",
    "mgpu_jupyter/server/handlers/jobs.py": "a check, which shows nothing",
    "mgpu_jupyter/client/jobfile.py": "a name that is made, not shown",
}


SAYS_ITSELF = (
    "mgpu_agent/protocol/text.py",
    *("mgpu_agent/cell/", "mgpu_agent/mpi/", "mgpu_agent/process/banner.py"),  # these run in the job
)


def test_foreign_text_has_one_way_to_each_place() -> None:
    """Whatever is said to people goes through `protocol/text.py`: printing, escaping and formatting of logs
    are there alone.
    """
    allowed = {
        "print": {"mgpu_agent/keeper"},
        "write": set(RAW),
        "escape": set(ESCAPES),
        "isprintable": set(ESCAPES),
        "Formatter": set(),
    }
    found = [
        f"{name}:{call.lineno} {what}"
        for path in source_files(".py")
        if (name := str(path.relative_to(ROOT))).startswith(("mgpu_agent/", "mgpu_jupyter/"))
        and not name.startswith(
            (
                "mgpu_agent/protocol/text.py",
                "mgpu_agent/cell/",
                "mgpu_agent/mpi/",
                "mgpu_agent/process/banner.py",
            )
        )
        for call in ast.walk(ast.parse(path.read_text()))
        if isinstance(call, ast.Call)
        and (what := _shows(call)) is not None
        and not any(name.startswith(one) for one in allowed[what])
    ]
    assert found == []


def _shows(call: ast.Call) -> str | None:
    """Return by what a call shows something, if it does."""
    words = ast.unparse(call.func)
    if words == "print":
        return words
    if re.fullmatch(
        r"sys\.std(out|err)(\.buffer)?\.write|html\.escape|logging\.Formatter|.*\.isprintable", words
    ):
        return words.rpartition(".")[2]
    return None
