"""Nothing runs at import: who imports a module of ours has names, and no file, socket, process, thread,
handler or variable more.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("importing.py")
PACKAGES = ("mgpu_agent", "mgpu_jupyter")
FOREIGN: dict[tuple[str, str], str] = {}
"""What packages of others do when they are imported, by package and event, and why that is bearable."""


def modules(root: Path, *packages: str) -> list[str]:
    found = []
    for package in packages:
        for path in sorted((root / package).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            if all(part.isidentifier() for part in parts):
                found.append(".".join(parts[:-1] if parts[-1] == "__init__" else parts))
    return found


def did(root: Path, names: list[str]) -> list[tuple[str, str, str, str]]:
    """Return what happened in a fresh interpreter: module, whose code, event, values."""
    command = [sys.executable, "-I", "-B", "-W", "ignore", str(PROGRAM), str(root), *names]
    told = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [(module, package, event, values) for module, package, event, values in json.loads(told)]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_module_acts_when_it_is_imported() -> None:
    names = modules(ROOT, *PACKAGES)
    assert len(names) > 250
    assert [one for one in did(ROOT, names) if (one[1], one[2]) not in FOREIGN] == []


ACTS = {
    "a_file": "open(__file__ + '.out', 'w').close()",
    "a_directory": "import os; os.mkdir(__file__ + '.d')",
    "a_socket": "import socket; socket.socket().close()",
    "a_process": "import subprocess; subprocess.run(['true'])",
    "a_thread": "import threading; threading.Thread(target=int).start()",
    "a_handler": "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    "a_variable": "import os; os.environ['MGPU_X'] = '1'",
    "a_mask": "import os; os.umask(0)",
}


@pytest.mark.parametrize("name", ACTS)
def test_what_would_be_found(name: str, tmp_path: Path) -> None:
    (tmp_path / "acting").mkdir()
    (tmp_path / "acting" / "__init__.py").write_text("")
    (tmp_path / "acting" / f"{name}.py").write_text(ACTS[name] + "\n")
    assert {module for module, *_ in did(tmp_path, ["acting", f"acting.{name}"])} == {f"acting.{name}"}
