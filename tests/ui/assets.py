"""Builds the JupyterLab extension, and proves that what a release ships of it was built from its sources and
is small.

Usage: python -m tests.ui.assets build|check|release. `build` writes to a folder that git does not see, only
when the sources are others than those of the last build, and lets JupyterLab of this environment serve that.
`release` puts it where wheels and clones take it from. A digest of the sources lies beside each build, so
that it can be told also without Node which sources it is of.
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
SHIPPED = ROOT / "mgpu_jupyter/labextension"
BUILT = SOURCES / "build/assets"
SERVED = Path(sys.prefix) / "share/jupyter/labextensions/@mgpu/labextension"
STAMP = "sources.sha256"
MAX_BYTES = 300_000
BUILT_FROM = (
    "src",
    "style",
    "schema",
    "package.json",
    "tsconfig.json",
    "rspack.config.js",
    "yarn.lock",
    ".yarnrc.yml",
)


def digest(sources: Path = SOURCES) -> str:
    """Return one number for all that the assets are made of."""
    found = hashlib.sha256()
    for name in BUILT_FROM:
        top = sources / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file():
                data = path.read_bytes()
                found.update(f"{path.relative_to(sources)} {len(data)}\n".encode() + data)
    return found.hexdigest()


def is_current(assets: Path, sources: Path = SOURCES) -> bool:
    """Tell whether these assets say that they were built from the sources as they are now."""
    stamp = assets / STAMP
    return stamp.is_file() and stamp.read_text().strip() == digest(sources)


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files below a folder."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def size(assets: Path) -> int:
    """Return what a browser loads, in bytes; JupyterLab's own libraries are not in it."""
    return sum(path.stat().st_size for path in (assets / "static").glob("*.js"))


def build() -> None:
    """Build if the sources changed, and serve what was built."""
    if not is_current(BUILT):
        # A copy at another path, on the same disk: the packages are linked, not copied, and no path can get
        # into the assets unseen.
        BUILT.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=BUILT.parent) as folder:
            before = digest()
            _replace(BUILT, _rebuilt(Path(folder)))
            (BUILT / STAMP).write_text(before + "\n")
    if SERVED.parent.is_dir():
        if SERVED.is_symlink():
            SERVED.unlink()
        if not SERVED.exists():  # else it is a copy that pip made
            SERVED.symlink_to(BUILT)
    print(
        f"The extension is built: {size(BUILT) / 1000:.1f} kB of JavaScript and styles, of at most "
        f"{MAX_BYTES / 1000:.0f} kB."
    )


def _rebuilt(into: Path) -> Path:
    """Build a copy of the sources below `into` with the packages that are installed, and return where the
    assets are.
    """
    copy = into / "labextension"
    copy.mkdir(parents=True)
    for name in BUILT_FROM:
        (shutil.copytree if (SOURCES / name).is_dir() else shutil.copy2)(SOURCES / name, copy / name)
    subprocess.run(["cp", "-al", str(SOURCES / "node_modules"), str(copy / "node_modules")], check=True)
    (into / "mgpu_jupyter").mkdir()
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    for command in (["node_modules/.bin/tsc"], ["jupyter-builder", "build", "."]):
        done = subprocess.run(
            command,
            cwd=copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            sys.exit(done.stdout + "\nThe extension could not be built.")
    return into / "mgpu_jupyter/labextension"


def _replace(old: Path, new: Path) -> None:
    shutil.rmtree(old, ignore_errors=True)
    shutil.copytree(new, old)


def check() -> None:
    """Build, and compare with what is shipped if that claims to be of these sources."""
    build()
    if size(BUILT) > MAX_BYTES:
        sys.exit("The extension is larger than it may be.")
    if not is_current(SHIPPED):
        print("What is shipped is of earlier sources: `make ui-release` before the next release.")
        return
    fresh, shipped = contents(BUILT), contents(SHIPPED)
    differing = sorted(name for name in fresh.keys() | shipped.keys() if fresh.get(name) != shipped.get(name))
    if differing:
        sys.exit(
            f"What is shipped is not what its sources give: make ui-release. Different: "
            f"{', '.join(differing)}"
        )
    print("What is shipped is what these sources give.")


def release() -> None:
    """Build and ship that."""
    build()
    _replace(SHIPPED, BUILT)


if __name__ == "__main__":
    {"build": build, "check": check, "release": release}[sys.argv[1]]()
