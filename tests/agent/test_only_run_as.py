"""Nothing but run_as starts a program or changes its user."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPAWNING = {
    "subprocess",
    "multiprocessing",
    "pty",
    "posix_spawn",
    "posix_spawnp",
    "fork",
    "forkpty",
    "system",
    "popen",
}
SPAWNING |= {
    f"{kind}{end}" for kind in ("exec", "spawn") for end in ("l", "le", "lp", "lpe", "v", "ve", "vp", "vpe")
}
CHANGING_USER = {f"set{kind}{what}id" for kind in ("", "re", "res", "e") for what in ("u", "g")} | {
    "setgroups",
    "initgroups",
    "chroot",
}
IN_THE_JOB = {"mpi/first.py", "mpi/host.py", "mpi/launch.py", "process/banner.py", "process/copier.py"}
"""Programs that run as a process of the job: what they start is the job's own."""
OWN = {"cli.py": {"execv"}, "keeper/reaper.py": {"fork"}}
"""An agent that begins again without its join line on its command line; the keeper's fork of itself."""


def test_nothing_but_run_as_starts_a_program_or_changes_its_user() -> None:
    """What root does for a user is done in one place."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "mgpu_agent").rglob("*.py")):
        name = path.relative_to(ROOT / "mgpu_agent").as_posix()
        if name.startswith(("run_as/", "cell/")) or name in IN_THE_JOB:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            words: list[str] = []
            if isinstance(node, ast.Import):
                words = [alias.name.partition(".")[0] for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                words = [
                    str(node.module).partition(".")[0],
                    *(alias.name for alias in node.names if node.module in ("os", "posix")),
                ]
            elif (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id in ("os", "posix", "asyncio")
            ):
                words = [node.attr]
            bad = {
                word
                for word in words
                if word in SPAWNING | CHANGING_USER or word.startswith("create_subprocess")
            }
            if bad - OWN.get(name, set()):
                found.setdefault(name, set()).update(bad)
    assert found == {}


def test_the_contract_sees_what_it_should() -> None:
    source = "import subprocess\nimport os\nos.fork()\nos.setresuid(0, 0, 0)\n"
    names = {node.attr for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)}
    assert names <= SPAWNING | CHANGING_USER
    assert sys.platform == "linux"
