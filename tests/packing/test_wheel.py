"""Wheel and sdist are a function of the commit: not of place, time, umask, language or what lies about."""

from __future__ import annotations

import hashlib
import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from tests.packing.wheel import ROOT, build

pytestmark = pytest.mark.slow


def clone(to: Path) -> Path:
    subprocess.run(["git", "clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(to)], check=True)
    return to


def digests(paths: list[Path]) -> dict[str, str]:
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


@pytest.mark.timeout(180)
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_two_clones_give_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    first = build(tmp_path / "first", commit, clone(tmp_path / "a"))
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "C")
    before = os.umask(0o077)
    try:
        other = clone(tmp_path / "much" / "longer" / "path")
        (other / "mgpu_agent").mkdir()
        (other / "mgpu_agent" / "left_behind.py").write_text("raise SystemExit\n")
        second = build(tmp_path / "second", commit, other)
    finally:
        os.umask(before)

    assert digests(first) == digests(second)
    assert [path.suffix for path in first] == [".whl", ".gz"]
    with zipfile.ZipFile(first[0]) as wheel:
        assert len({entry.date_time for entry in wheel.infolist()}) == 1


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="not a clone")
def test_a_release_ships_no_extension_of_earlier_sources(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(copy)], check=True)
    with (copy / "labextension/src/index.ts").open("a") as source:
        source.write("// later\n")
    author = ["-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run(["git", *author, "commit", "--quiet", "--all", "--message", "later"], cwd=copy, check=True)
    with pytest.raises(SystemExit, match="run `make ui-release` and commit it"):
        build(tmp_path / "out", "HEAD", copy, for_release=True)
    assert list((tmp_path / "out").iterdir()) == []
