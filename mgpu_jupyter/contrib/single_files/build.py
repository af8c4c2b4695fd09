"""Builds the programs of the earlier tools as zip files that Python runs, with all that they need inside.

Usage: python -m mgpu_jupyter.contrib.single_files.build [DIRECTORY]. The content is copied from the
environment that this runs in, so that nothing is downloaded. The small programs share one set of packages and
so one directory in the cache; the master includes the Jupyter server.
"""

from __future__ import annotations

import hashlib
import io
import platform
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from mgpu_agent.protocol.text import tell
from mgpu_agent.protocol.wording import size

ROOT = Path(__file__).parents[3]
LIGHT = ("pyzmq", "msgspec", "psutil", "nvidia-ml-py", "rich")
SERVER = (*LIGHT, "jupyter-server", "cryptography", "PyYAML")
PROGRAMS = {
    "mgpu_srun": LIGHT,
    "mgpu_queue": LIGHT,
    "mgpu_cancel": LIGHT,
    "mgpu_client": LIGHT,
    "mgpu_flush": LIGHT,
    "mgpu": LIGHT,
    "mgpu_node": LIGHT,
    "mgpu_master": SERVER,
}
ENTRIES = {"mgpu_node": ("mgpu_agent.cli", "main")} | {
    name: ("mgpu_jupyter.cli.main", name) for name in PROGRAMS if name != "mgpu_node"
}
OWN = ("mgpu_agent", "mgpu_jupyter")
LEFT_OUT = ("docs", "contrib", "__pycache__", "labextension")
DATE = (2020, 1, 1, 0, 0, 0)
MAIN = Path(__file__).with_name("boot.py")

Files = dict[str, bytes]


def build(out: Path) -> list[Path]:
    """Write all programs and return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    own = dict(_own_files())
    sets: dict[tuple[str, ...], Files] = {}
    written = []
    for program, needs in PROGRAMS.items():
        if needs not in sets:
            sets[needs] = own | dict(_files_of(_closure(needs)))
        written.append(_write(out / program, program, sets[needs]))
    return written


def _own_files() -> Iterator[tuple[str, bytes]]:
    for package in OWN:
        for path in sorted((ROOT / package).rglob("*")):
            relative = path.relative_to(ROOT)
            if path.is_file() and not set(relative.parts) & set(LEFT_OUT):
                yield f"site/{relative.as_posix()}", path.read_bytes()


def _closure(names: Iterable[str]) -> list[Distribution]:
    """Return the distributions of these names and all their dependencies here."""
    found: dict[str, Distribution] = {}
    left = [Requirement(name) for name in names]
    while left:
        wanted = left.pop()
        try:
            one = distribution(wanted.name)
        except PackageNotFoundError:
            continue
        extras = wanted.extras or {""}
        if one.name in found and not wanted.extras:
            continue
        found[one.name] = one
        needs = [Requirement(line) for line in one.requires or ()]
        left += [
            need
            for need in needs
            if need.marker is None or any(need.marker.evaluate({"extra": extra}) for extra in extras)
        ]
    return sorted(found.values(), key=lambda one: one.name.lower())


def _files_of(distributions: Iterable[Distribution]) -> Iterator[tuple[str, bytes]]:
    for one in distributions:
        for file in one.files or ():
            if (
                ".." in file.parts
                or file.suffix == ".pyc"
                or "__pycache__" in file.parts
                or "tests" in file.parts[1:]
            ):
                continue
            path = Path(str(file.locate()))
            if path.is_file():
                yield f"site/{file.as_posix()}", path.read_bytes()


def _write(path: Path, program: str, site: Files) -> Path:
    scripts = {f"bin/{name}": _script(*ENTRIES[name]) for name in PROGRAMS}
    files = site | scripts
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name}\0{len(files[name])}\0".encode() + files[name])
    values = {
        "BUILT_FOR": f"{sys.version_info.major}.{sys.version_info.minor}",
        "MACHINE": platform.machine(),
        "DIGEST": digest.hexdigest()[:16],
        "PROGRAM": program,
    }
    main = MAIN.read_text()
    for name, value in values.items():
        main = main.replace(f"@{name}@", value)
    data = io.BytesIO(b"")
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in [("__main__.py", main.encode()), *sorted(files.items())]:
            info = zipfile.ZipInfo(name, DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    path.write_bytes(b"#!/usr/bin/env python3\n" + data.getvalue())
    path.chmod(0o755)
    return path


def _script(module: str, function: str) -> bytes:
    return f"import sys\n\nfrom {module} import {function}\n\nsys.exit({function}())\n".encode()


if __name__ == "__main__":
    for made in build(Path(sys.argv[1] if len(sys.argv) > 1 else "dist")):
        tell(f"{made}  {size(made.stat().st_size)}")
