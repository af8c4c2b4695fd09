"""The small form of `make fuzz`, and that it would find something."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mgpu_agent.core.machine import Machine
from mgpu_agent.keeper.machine import KeeperMachine
from mgpu_agent.protocol.messages import Resync
from mgpu_jupyter.engines.agents.link import AgentsLink
from tests.fuzz import throwing as fuzz
from tests.fuzz.mutate import Mutator
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.slow

SMALL = {"master": 40_000, "agent": 30_000, "keeper": 30_000}


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(fuzz, "KEPT", tmp_path / "kept")
    return tmp_path / "kept"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("name", SMALL)
def test_it_holds(name: str) -> None:
    part = fuzz.throw(name, 1, SMALL[name])
    assert (part.failure, part.frames, part.is_well) == ("", SMALL[name], True)


def frames(name: str, count: int) -> list[bytes]:
    target = TARGETS[name](5)
    try:
        mutator = Mutator(5, target.envelope)
        mutator.learn(target.true_ones())
        return mutator.frames(count)
    finally:
        target.close()


@pytest.mark.parametrize("name", ["agent", "keeper"])
def test_a_seed_gives_the_same_frames_each_time(name: str) -> None:
    assert frames(name, 2_000) == frames(name, 2_000)


def break_master(monkeypatch: pytest.MonkeyPatch) -> None:
    take = AgentsLink._take_samples

    def broken(self: AgentsLink, node_id: Any, samples: Any) -> None:
        assert all(sample.memory_used_bytes >= 0 for sample in samples)
        take(self, node_id, samples)

    monkeypatch.setattr(AgentsLink, "_take_samples", broken)


def break_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    handle = Machine.handle

    def broken(self: Machine, event: Any) -> Any:
        if isinstance(getattr(event, "message", None), Resync):
            assert event.message.number >= 0
        return handle(self, event)

    monkeypatch.setattr(Machine, "handle", broken)


def break_keeper(monkeypatch: pytest.MonkeyPatch) -> None:
    obey = KeeperMachine.obey

    def broken(self: KeeperMachine, message: Any) -> None:
        assert getattr(message, "grace_s", 0.0) >= 0
        obey(self, message)

    monkeypatch.setattr(KeeperMachine, "obey", broken)


@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("name", "plant"), [("master", break_master), ("agent", break_agent), ("keeper", break_keeper)]
)
def test_a_planted_mistake_is_found_and_its_frames_are_kept(
    name: str, plant: Any, monkeypatch: pytest.MonkeyPatch, kept: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch)
    part = fuzz.throw(name, 1, 60_000)
    assert part.failure.startswith(f"{name} broke after {part.frames} frames of seed 1.")
    assert [path.name for path in kept.iterdir()] == [f"{name}-1-{part.frames}.hex"]
