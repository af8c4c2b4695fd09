"""What is found, read and written for a user, and which Python is there."""

from __future__ import annotations

import hashlib
import os
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_agent.run_as import found_files
from mgpu_agent.run_as.file_work import carry_out
from mgpu_agent.run_as.requests import (
    ClearFolder,
    Compare,
    Content,
    Done,
    Failed,
    FindResults,
    FolderPart,
    Found,
    FoundAround,
    FoundFile,
    LayOut,
    LookAround,
    ReadResult,
    Versions,
    WriteValues,
)
from tests.agent.test_user_files import HERE, nothing, place

__all__ = ("place",)  # fixtures

pytestmark = pytest.mark.slow

# --- what is found and read
# -----------------------------------------------------------------------------------


def found(place: Path, *patterns: str, limit: int = 0) -> tuple[list[str], list[str]]:
    answer = carry_out(FindResults(root=str(place), patterns=patterns, uid=-1, limit_bytes=limit), nothing)
    assert isinstance(answer, Found)
    return [file.path for file in answer.files], list(answer.problems)


def test_patterns_mean_what_they_did(tmp_path: Path) -> None:
    for path in ("a.pt", "out/b.pt", "out/deep/c.pt", ".hidden", "out/.hidden/d.txt", "x[1]"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(path)
    (tmp_path / "link").symlink_to("a.pt")
    everything = ["a.pt", "out/b.pt", "out/deep/c.pt", ".hidden", "out/.hidden/d.txt", "x[1]"]
    table: dict[tuple[str, ...], list[str]] = {
        ("*.pt",): ["a.pt"],
        ("**/*.pt",): ["a.pt", "out/b.pt", "out/deep/c.pt"],
        ("out",): ["out/.hidden/d.txt", "out/b.pt", "out/deep/c.pt"],
        ("out/",): ["out/.hidden/d.txt", "out/b.pt", "out/deep/c.pt"],
        ("o*/*",): ["out/.hidden/d.txt", "out/b.pt", "out/deep/c.pt"],
        ("**/**/c.pt", "a.pt", "a.pt"): ["out/deep/c.pt", "a.pt"],
        ("./out/../a.pt",): ["a.pt"],
        ("x[[]1]",): ["x[1]"],
        ("nothing", "/etc/*", "../*"): [],
    }
    assert {patterns: found(tmp_path, *patterns)[0] for patterns in table} == table
    for whole in (".", "**"):
        files, problems = found(tmp_path, whole)
        assert (sorted(files), problems) == (sorted(everything), ["link: Too many levels of symbolic links"])


def test_a_file_over_the_limit_is_refused_by_its_size_before_anything_is_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(60 * 1000**3)
    (tmp_path / "small").write_bytes(b"x" * 600)
    (tmp_path / "small2").write_bytes(b"x" * 600)
    begun_at = time.monotonic()
    files, problems = found(tmp_path, "*", limit=1000)
    assert time.monotonic() - begun_at < 5
    assert files == ["small"]
    assert problems == [
        "small2: it has 600 bytes, and results are kept up to 1000 bytes",
        "sparse: it has 60000000000 bytes, and results are kept up to 1000 bytes",
    ]


def test_a_tree_without_end_is_looked_at_up_to_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found_files, "MAX_VISITS", 50)
    for number in range(100):
        (tmp_path / f"{number}").write_text("")
    assert found(tmp_path, "**/x") == (
        [],
        ["The patterns mean too much to be looked through: name the files more exactly"],
    )


def test_pipes_and_strange_names_keep_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pyvenv.cfg")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "python").chmod(0o755)
    (tmp_path / os.fsdecode(b"n\xff")).write_text("x")
    files, problems = found(tmp_path, "pipe", "n*")
    assert files == []
    assert [problem.partition(": ")[2][:20] for problem in problems] == [
        "it is no plain file",
        "'utf-8' codec can't ",
    ]
    look = LookAround(needs_python=True, kernel=str(tmp_path / "bin" / "python"), kernel_version=HERE)
    assert carry_out(look, nothing) == FoundAround(python=sys.executable, version=HERE)


def test_a_part_is_read_and_a_piece_of_variables_is_written_where_it_belongs(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"....")
    assert carry_out(WriteValues(path=f"{tmp_path}/in", offsets=(0, 3), data=b"x"), nothing) == Done()
    part = ReadResult(root=str(tmp_path), path="in", uid=os.getuid(), offset=1, size=100)
    assert carry_out(part, nothing) == Content(data=b"..x")
    whole = carry_out(FindResults(root=str(tmp_path), patterns=("in",), uid=-1), nothing)
    assert whole == Found(
        files=(
            FoundFile("in", 4, hashlib.sha256(b"x..x").hexdigest(), (tmp_path / "in").stat().st_mode & 0o777),
        )
    )
    (tmp_path / "link").symlink_to("in")
    refused = carry_out(WriteValues(path=f"{tmp_path}/link", offsets=(0,), data=b"x"), nothing)
    assert refused == Failed(why=f"Too many levels of symbolic links ({tmp_path}/link)")


def test_a_folder_is_laid_out_and_cleared(tmp_path: Path) -> None:
    parts = (
        FolderPart("d", "directory", 0o500, 0),
        FolderPart("d/f", "file", 0o640, 10**18, data=b"ab", is_last=False),
        FolderPart("d/f", "file", 0o640, 10**18, offset=2, data=b"cd"),
        FolderPart("d/l", "link", 0o777, 0, target="f"),
        FolderPart("d", "settle", 0o500, 10**18),
    )
    assert carry_out(LayOut(place=str(tmp_path), parts=parts), nothing) == Done()
    file = tmp_path / "d" / "f"
    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode), file.stat().st_mtime_ns) == (
        b"abcd",
        0o640,
        10**18,
    )
    assert os.readlink(tmp_path / "d" / "l") == "f"
    assert carry_out(ClearFolder(place=str(tmp_path)), nothing) == Done()
    assert list(tmp_path.iterdir()) == []


# --- which Python
# ------------------------------------------------------------------------------------------------


def fake_python(place: Path, *, named: str = "python", config: str = "", library: str = "") -> str:
    path = place / "bin" / named
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {place}/it-ran\necho 3.7\n")
    path.chmod(0o755)
    if config:
        (place / "pyvenv.cfg").write_text(config)
    if library:
        (place / "lib" / library).mkdir(parents=True)
    return str(path)


@pytest.mark.parametrize(
    ("make", "version"),
    [
        (lambda place: fake_python(place, named="python3.7"), "3.7"),
        (lambda place: fake_python(place, config="home = /usr/bin\nversion = 3.8.1\n"), "3.8"),
        (lambda place: fake_python(place, config="home = /usr/bin\nversion_info = 3.9.1.final.0\n"), "3.9"),
        (lambda place: fake_python(place, library="python3.10"), "3.10"),
        (fake_python, ""),
        (lambda place: f"{place}/bin/nothing", ""),
    ],
)
def test_the_version_of_an_interpreter_is_read_and_never_asked_for(
    tmp_path: Path, make: Callable[[Path], str], version: str
) -> None:
    path = make(tmp_path)
    told = carry_out(Compare(is_cell=True, wished=path), nothing)
    assert told == Versions(python=version) or (not Path(path).exists() and isinstance(told, Versions))
    chosen = carry_out(LookAround(needs_python=True, kernel=path, kernel_version=version or "3.7"), nothing)
    is_kernels = bool(version)
    assert chosen == FoundAround(
        python=path if is_kernels else sys.executable, version=version if is_kernels else HERE
    )
    assert not (tmp_path / "it-ran").exists()


def test_torch_is_read_off_what_pip_wrote(tmp_path: Path) -> None:
    path = fake_python(tmp_path, config="version = 3.9.1\ninclude-system-site-packages = false\n")
    packages = tmp_path / "lib" / "python3.9" / "site-packages"
    packages.mkdir(parents=True)
    assert carry_out(Compare(argv=(path, "x.py")), nothing) == Versions(python="3.9")
    (packages / "torch").mkdir()
    (packages / "torch" / "version.py").write_text("__version__: str = '2.1.0+cu118'\n")
    assert carry_out(Compare(argv=(path, "x.py")), nothing) == Versions(python="3.9", torch="2.1.0+cu118")
    (packages / "torch-2.2.0+cpu.dist-info").mkdir()
    assert carry_out(Compare(argv=(path, "x.py")), nothing) == Versions(python="3.9", torch="2.2.0+cpu")
    assert not (tmp_path / "it-ran").exists()
