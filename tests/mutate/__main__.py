"""`make mutate`: plants so many faults by a seed, runs the tests on each, prints score and survivors, writes
them to a file.

Each fault meets those tests of its package's folder that run its line; `--wider tests/e2e …` are run on those
that survive. What nobody can tell from the product is listed in `equivalent.json` with why, and is not
counted. The seed says which faults; the tree as it is says the rest.
"""

from __future__ import annotations

import argparse
import queue
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec

from tests.mutate.lines import Map, digests
from tests.mutate.running import ROOT, Copy, Result, files_for, folders_of, has_namespaces
from tests.mutate.sites import Mutant, mutants_of

PACKAGES = ("mgpu_agent", "mgpu_jupyter")
T = TypeVar("T")
SLOWER = 4
"""What takes so many times as long as without a mutant hangs; to note lines may take as much more."""
EQUIVALENT = Path(__file__).with_name("equivalent.json")


class Equivalent(msgspec.Struct, frozen=True):
    """A mutant that does what the product does."""

    path: str
    before: str
    after: str
    why: str


def known_equivalents(path: Path = EQUIVALENT) -> dict[tuple[str, str, str], str]:
    """Return why a change of a line changes nothing."""
    listed = msgspec.json.decode(path.read_bytes(), type=list[Equivalent])
    return {(one.path, one.before, one.after): one.why for one in listed}


def known_results(path: Path) -> dict[Mutant, Result]:
    """Return what an earlier run wrote, if there was one."""
    listed = msgspec.json.decode(path.read_bytes(), type=list[Result]) if path.exists() else []
    return {result.mutant: result for result in listed}


def all_mutants(root: Path, under: list[str]) -> dict[str, list[Mutant]]:
    """Return every mutant by package: the folder that its file is in."""
    found: dict[str, list[Mutant]] = {}
    for top in PACKAGES:
        for file in sorted((root / top).rglob("*.py")):
            name = str(file.relative_to(root))
            if not under or any(name == one or name.startswith(f"{one.rstrip('/')}/") for one in under):
                found.setdefault(package_of(name), []).extend(mutants_of(name, file.read_text()))
    return {package: mutants for package, mutants in found.items() if mutants}


def package_of(path: str) -> str:
    """Return the name under which a file is counted."""
    return "/".join(Path(path).parts[:2]) if path.count("/") > 1 else Path(path).parts[0]


def sample(mutants: dict[str, list[Mutant]], seed: int, count: int) -> list[Mutant]:
    """Return so many of all, each as likely as any other; a larger count begins with the same ones."""
    every = [mutant for package in sorted(mutants) for mutant in mutants[package]]
    chance = random.Random(seed)
    return chance.sample(every, len(every))[:count]


def table(results: list[Result], title: str = "package") -> str:
    """Return the score of each package and of all, in lines."""
    rows = [(title, "mutants", "equivalent", "by folder", "by all", "survived")]
    packages = sorted({package_of(result.mutant.path) for result in results})
    for name in (*packages, "all"):
        own = [result for result in results if name in ("all", package_of(result.mutant.path))]
        counted = [result for result in own if not result.equivalent]
        folder = sum(result.killed_by == "folder" for result in counted)
        killed = sum(bool(result.killed_by) for result in counted)
        percent = [f"{100 * part / len(counted):.0f} %" if counted else "-" for part in (folder, killed)]
        rows.append((name, str(len(own)), str(len(own) - len(counted)), *percent, str(len(counted) - killed)))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def survivors(results: list[Result]) -> str:
    """Return the survivors, each with its line as it is and as it was made."""
    lines = []
    for result in sorted(results, key=lambda one: one.mutant):
        if not result.killed_by:
            mutant = result.mutant
            end = f"\n  equivalent: {result.equivalent}" if result.equivalent else ""
            lines.append(f"{mutant.path}:{mutant.line}\n  - {mutant.before}\n  + {mutant.after}{end}")
    return "\n".join(lines) or "None survived."


def mapped(copies: list[Copy], folders: list[str], known: Map, limit_s: float) -> list[str]:
    """Run the tests of these folders without any mutant, to see which lines each runs; return those that
    fail then, which tell nothing here.
    """
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    for folder in sorted(folders, key=lambda name: -len(list((ROOT / name).rglob("test_*.py")))):
        waiting.put(folder)
    broken: list[str] = []

    def work(copy: Copy) -> None:
        for folder in _taken(waiting):
            begun = time.monotonic()
            ran, notes = copy.map(folder, limit_s)
            failed = [one.test for one in ran if not one.has_passed]
            if failed:  # perhaps only because to note lines takes time
                broken.extend(copy.failing(failed, limit_s))
            known.add(folder, ran, notes)
            print(
                f"{folder} without a mutant: {len(ran)} tests, {time.monotonic() - begun:.0f} s", flush=True
            )

    _side_by_side(work, copies)
    return sorted(broken)


def _taken(waiting: queue.SimpleQueue[T]) -> Iterator[T]:
    """Yield what is left, to whoever asks first."""
    while True:
        try:
            yield waiting.get_nowait()
        except queue.Empty:
            return


def _side_by_side(work: Callable[[Copy], None], copies: list[Copy]) -> None:
    with ThreadPoolExecutor(len(copies)) as pool:
        list(pool.map(work, copies))


def main(words: list[str]) -> int:
    """Run it; the exit code says only whether it could be run."""
    parser = argparse.ArgumentParser(prog="make mutate", description=__doc__)
    parser.add_argument("paths", nargs="*", help="only mutants in these files or folders")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument(
        "--begin", type=int, default=0, help="leave out the first so many, to go on where a run was ended"
    )
    parser.add_argument("--jobs", type=int, default=2, help="how many run at once")
    parser.add_argument(
        "--limit",
        type=float,
        default=300.0,
        help="seconds for the tests of a folder, at least; more is a hang: killed",
    )
    parser.add_argument(
        "--cap",
        type=float,
        default=0.0,
        help="so many seconds of tests for each, the nearest ones; 0 for all that run the line",
    )
    parser.add_argument(
        "--wider", nargs="*", default=[], help="more tests for those that survive, like tests/storm tests/e2e"
    )
    parser.add_argument("--types", action="store_true", help="run mypy on those that survive, before these")
    parser.add_argument("--wider-limit", type=float, default=1800.0)
    parser.add_argument(
        "--map", type=Path, help="a file that keeps which tests run which lines, for the next time"
    )
    parser.add_argument(
        "--trust", action="store_true", help="run no tests without a mutant first: go by --map, or run all"
    )
    parser.add_argument("--out", type=Path, default=Path("mutants.json"))
    parser.add_argument(
        "--go-on", action="store_true", help="take what --out has already of an earlier run that was ended"
    )
    values = parser.parse_args(words)
    chosen = sample(all_mutants(ROOT, values.paths), values.seed, values.count)[values.begin :]
    known = known_equivalents()
    alone = has_namespaces()
    if not alone:
        print(
            "No namespaces here: programs that tests start with an environment of their own may find no "
            "mutant."
        )
    results: list[Result] = []
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    before = known_results(values.out) if values.go_on else {}
    for mutant in chosen:
        if mutant in before:
            results.append(before[mutant])
        elif why := known.get((mutant.path, mutant.before, mutant.after)):
            results.append(Result(mutant=mutant, equivalent=why))
        else:
            waiting.put(mutant)
    lines = Map(sources=digests(ROOT))
    if values.map and values.map.exists():
        lines = msgspec.json.decode(values.map.read_bytes(), type=Map)
    missing = sorted({one for mutant in chosen for one in folders_of(mutant.path)} - set(lines.folders))
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mgpu-mutate-", ignore_cleanup_errors=True) as place:
        copies = [Copy(Path(place) / str(number), alone=alone) for number in range(max(1, values.jobs))]
        if not values.trust:
            for name in mapped(copies, missing, lines, values.limit * SLOWER * SLOWER):
                print(f"Left out, for it fails without a mutant: {name}", flush=True)
                lines.broken.append(name)
            if values.map:
                values.map.write_bytes(msgspec.json.encode(lines))
        left_out = [f"--deselect={name}" for name in lines.broken]

        def work(copy: Copy) -> None:
            for mutant in _taken(waiting):
                files, tests = lines.choose(copy.path, mutant, files_for(copy.path, mutant.path), values.cap)
                limit_s = max(values.limit, SLOWER * lines.seconds(folders_of(mutant.path), tests))
                result = copy.judge(
                    mutant,
                    files,
                    values.wider,
                    limit_s,
                    values.wider_limit,
                    *left_out,
                    chosen=tests,
                    by_types=values.types,
                )
                results.append(result)
                said = f"{result.killed_by}: {result.told}" if result.killed_by else "SURVIVED"
                print(
                    f"{len(results)}/{len(chosen)} {mutant.path}:{mutant.line}: {mutant.after}\n    {said}",
                    flush=True,
                )
                told = msgspec.json.encode(sorted(results, key=lambda one: one.mutant))
                values.out.write_bytes(msgspec.json.format(told, indent=1) + b"\n")

        _side_by_side(work, copies)
    print(
        f"\nSeed {values.seed}, {len(chosen)} mutants, {time.monotonic() - begun:.0f} s; all of it is in "
        f"{values.out}.\n"
    )
    print(table(results))
    print(f"\nSurvivors:\n{survivors(results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
