"""Small sizes of the chaos rows: faults on real processes, judged by the checker alone. `make chaos` runs the
full sizes.
"""

from __future__ import annotations

import random
from pathlib import Path

import psutil
import pytest

from tests.chaos.nodes import NodeStage, can_boot
from tests.chaos.power.trace import can_record
from tests.chaos.result import perform
from tests.chaos.rows.clocks import can_preload
from tests.chaos.rows.disks import can_mount
from tests.chaos.rows.gangs import FENCE_S, GRACE_S, TRAITS
from tests.chaos.rows.table import ROWS
from tests.processes import LIMIT_S, wait_until

SEED = 1


@pytest.mark.parametrize("number", [number for number, row in sorted(ROWS.items()) if row.small])
def test_row(number: int, tmp_path: Path) -> None:
    if number == 8 and not can_mount():
        pytest.skip("Only root can mount the small disks that are filled.")
    if number == 10 and not can_preload():
        pytest.skip("There is no gcc to build the clock that jumps.")
    if number in (4, 15, 18, 19) and not can_boot():
        pytest.skip("There is no gcc to build what shows a program another boot.")
    if number == 13 and not can_record():
        pytest.skip("There is no gcc to build the recorder of writes and sends.")
    result = perform(ROWS[number], ROWS[number].small, SEED, tmp_path / "row")
    assert result.violations == []


class LateStage(NodeStage):
    """A stage on which a job begins at the very moment at which its node or its agent is taken away."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, random.Random(SEED), settings={"kill_grace_s": GRACE_S})
        self.go = directory / "go"
        self.job = ""

    def submit_late(self) -> None:
        """Submit a job whose prolog waits for the moment."""
        asked = self.directory / "asked"
        prolog = f"touch {asked}; until [ -e {self.go} ]; do sleep 0.05; done"
        self.job = self.submit("late", 0.1, gpus=1, prolog=prolog)
        wait_until(asked.exists, "the prolog runs")

    def begin(self) -> None:
        """Let the job begin, and wait until it has."""
        self.go.touch()
        wait_until(
            lambda: any(path.stat().st_size for path in self.witness.glob(f"{self.job}.*")),
            "the job has begun",
        )

    def judged(self) -> tuple[bool, list[str]]:
        """Bring the agent back and wait for the end of the job; return whether it ran again, and what the
        judge says.
        """
        self.fork_node("n0", 1)
        self.drain(LIMIT_S)
        self.survey()
        return self.client.job(self.job).info.attempt > 1, self.judge()


class NodeGoes(LateStage):
    """It begins while keeper and jobs of its node are looked for."""

    def keeper_of(self, node_id: str) -> psutil.Process | None:
        self.begin()
        return super().keeper_of(node_id)


class AgentGoes(LateStage):
    """It begins when its agent is gone."""

    def kill(self, name: str) -> None:
        super().kill(name)
        self.begin()


def test_a_job_that_begins_while_its_node_is_being_killed_is_lost_with_it(tmp_path: Path) -> None:
    with NodeGoes(tmp_path / "stage") as stage:
        stage.warm_master()
        stage.start_nodes(1, 1)
        stage.submit_late()
        stage.kill_node("n0")
        assert stage.judged() == (True, [])


def test_a_job_that_begins_after_its_agent_is_gone_for_long_is_lost_with_it(tmp_path: Path) -> None:
    with AgentGoes(tmp_path / "stage") as stage:
        stage.warm_master(*TRAITS)
        stage.start_nodes(1, 1)
        stage.submit_late()
        stage.lose_agent("n0", FENCE_S + 1.0)
        assert stage.judged() == (True, [])
