"""`make wheel`: wheel and sdist of the last commit, the same bytes wherever and whenever they are built.

Built from what git has, not from what lies about, with the time of the commit in every entry. Must not fetch
anything: what builds is in this environment, at the versions of mgpu_jupyter/contrib/constraints/gate.txt.
Refuses a commit whose built JupyterLab extension is of other sources than the commit has.
"""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from tests.ui import assets

ROOT = Path(__file__).parents[2]
BUILD = """
import sys
from hatchling import build
print(build.build_wheel(sys.argv[1]))
print(build.build_sdist(sys.argv[1]))
"""


def build(
    out: Path, commit: str = "HEAD", repository: Path = ROOT, *, for_release: bool = False
) -> list[Path]:
    """Build both from a commit and return where they are; for a release, only if all that it ships is of this
    commit.
    """
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mgpu-wheel-") as place:
        archive = subprocess.run(
            ["git", "archive", "--format=tar", commit], cwd=repository, check=True, stdout=subprocess.PIPE
        ).stdout
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(place, filter="fully_trusted")  # our own commit, with the modes that git has
        if for_release and not assets.is_current(
            Path(place, "mgpu_jupyter/labextension"), Path(place, "labextension")
        ):
            sys.exit(
                "The built JupyterLab extension is of earlier sources than this commit has: run `make "
                "ui-release` and commit it."
            )
        at = subprocess.run(
            ["git", "log", "-1", "--format=%ct", commit],
            cwd=repository,
            check=True,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        environment = {**os.environ, "SOURCE_DATE_EPOCH": at.strip(), "PYTHONHASHSEED": "0"}
        command = [sys.executable, "-I", "-c", BUILD, str(out.resolve())]
        told = subprocess.run(
            command, cwd=place, env=environment, check=True, stdout=subprocess.PIPE, text=True, umask=0o022
        ).stdout
    return [out / name for name in told.split()]


if __name__ == "__main__":
    for made in build(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "dist", for_release=True):
        print(f"{hashlib.sha256(made.read_bytes()).hexdigest()}  {made}")
