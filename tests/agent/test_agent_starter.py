"""How soon the agent of a node is started again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.keeper import agent_starter
from mgpu_agent.keeper.agent_starter import AgentStarter, order_agent


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for end in ends:
        os.close(end)


def test_agents_that_keep_dying_are_started_less_often_but_never_late(
    pipe: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a killed agent was given is settled within 5 s, however often it was killed before."""
    now = 1000.0
    monkeypatch.setattr(agent_starter.time, "monotonic", lambda: now)
    starter = AgentStarter(pipe[0], tmp_path / "agent.log")
    order_agent(pipe[1], ["/bin/true"])
    assert starter.take_order()
    delays: list[float] = []
    for lived_s in (1.0, 1.0, 1.0, 1.0, 1.0, 60.0, 1.0, 0.0):
        wait_s = starter.wait_s()
        assert wait_s is not None
        delays.append(round(wait_s, 3))
        now += wait_s
        starter.start_if_due()
        assert starter.pid is not None
        os.waitpid(starter.pid, 0)
        now += lived_s
        starter.note_end(is_killed=lived_s > 0)

    assert delays == [0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 0.2, 0.4]
    assert starter.wait_s() is None  # it ended by itself and stays away
