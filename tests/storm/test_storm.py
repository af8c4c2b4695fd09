"""The storm itself: a seed is a history, the same each time; and bugs that are planted are found."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.storm.__main__ import main
from tests.storm.cluster import run
from tests.storm.mutants import MUTANTS, planted

SEEDS = 400
"""At most this many are tried for each planted bug; most show within the first few, some in one of 25."""


def digest_in_another_process(seed: int, hash_seed: str) -> str:
    words = [sys.executable, "-c", f"from tests.storm.cluster import run; print(run({seed}).digest)"]
    env = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(
        words, env=env, capture_output=True, text=True, check=True, timeout=120
    ).stdout.strip()


@pytest.mark.parametrize("seed", [2, 7])
def test_a_seed_is_one_history_in_every_process(seed: int) -> None:
    first = run(seed)

    assert run(seed).digest == first.digest
    assert {digest_in_another_process(seed, hash_seed) for hash_seed in ("1", "4242")} == {first.digest}
    assert run(seed + 1).digest != first.digest
    assert (first.jobs > 0, first.processes > 0, first.violations) == (True, True, [])


@pytest.mark.parametrize("seed", [4076])
def test_a_requeue_is_a_cause_from_when_the_master_carries_it_out(seed: int) -> None:
    """Here it is asked for while its job waits, and comes through a slow disk after the job has started."""
    assert run(seed).violations == []


@pytest.mark.parametrize("name", [mutant.__name__ for mutant in MUTANTS])
def test_a_planted_bug_is_found(name: str) -> None:
    with planted(name):
        assert any(run(seed).violations for seed in range(SEEDS)), f"{SEEDS} seeds did not find it"


def test_a_failing_seed_is_told_with_the_command_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    with planted("epochs_are_not_kept"):
        assert main(["--seeds", "3", "--processes", "1"]) == 1
        told = capsys.readouterr().out
        seed = told.partition("--seed ")[2].split()[0]
        assert (
            f"seed {seed} failed; see it all with: .venv/bin/python -m tests.storm --seed {seed}\n  rule 7: "
            f"epoch" in told
        )
        assert main(["--seed", seed]) == 1
        assert "  rule 7: epoch" in capsys.readouterr().out
    assert main(["--seed", seed]) == 0
