"""Proves that the shipped assets of the JupyterLab extension were built from its sources, and that they are small.

Usage: python -m tests.ui.assets (`stamp`: write the digest after a build). Builds a copy of the sources at another path and compares
every byte. A digest of the sources lies beside the assets, so that `tests/ui/test_assets.py` tells also without Node that somebody
forgot to build.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "labextension"
ASSETS = ROOT / "mgpu_jupyter/labextension"
STAMP = "sources.sha256"
MAX_BYTES = 300_000
BUILT_FROM = ("src", "style", "schema", "package.json", "tsconfig.json", "rspack.config.js", "yarn.lock", ".yarnrc.yml")


def digest() -> str:
    """Return one number for all that the assets are made of."""
    found = hashlib.sha256()
    for name in BUILT_FROM:
        top = SOURCES / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                data = path.read_bytes()
                found.update(f"{path.relative_to(SOURCES)} {len(data)}\n".encode() + data)
    return found.hexdigest()


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def size() -> int:
    """Return what a browser loads, in bytes; JupyterLab's own libraries are not in it."""
    return sum(path.stat().st_size for path in (ASSETS / "static").glob("*.js"))


def rebuild(into: Path) -> Path:
    """Build a copy of the sources below `into` with the packages that are installed, and return where the assets are."""
    copy = into / "labextension"
    copy.mkdir(parents=True)
    for name in BUILT_FROM:
        (shutil.copytree if (SOURCES / name).is_dir() else shutil.copy2)(SOURCES / name, copy / name)
    subprocess.run(["cp", "-al", str(SOURCES / "node_modules"), str(copy / "node_modules")], check=True)
    (into / "mgpu_jupyter").mkdir()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (["node_modules/.bin/tsc"], ["jupyter-builder", "build", "."]):
        subprocess.run(command, cwd=copy, check=True, env=environment, stdout=subprocess.DEVNULL)
    return into / "mgpu_jupyter/labextension"


def main() -> int:
    """Return 0 when the assets are what the sources give."""
    (SOURCES / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=SOURCES / "build") as folder:  # the same disk: the packages are linked, not copied
        fresh = contents(rebuild(Path(folder)))
    shipped = contents(ASSETS)
    shipped.pop(STAMP, None)
    differing = sorted(name for name in fresh.keys() | shipped.keys() if fresh.get(name) != shipped.get(name))
    if differing:
        print(f"The shipped assets are not what the sources give: make ui. Different: {', '.join(differing)}", file=sys.stderr)
        return 1
    print(f"The shipped assets are what the sources give: {size() / 1000:.1f} kB, of at most {MAX_BYTES / 1000:.0f} kB.")
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["stamp"]:
        (ASSETS / STAMP).write_text(digest() + "\n")
    else:
        sys.exit(main())
