"""The world that tests of the engine share."""

from __future__ import annotations

import pytest

from tests.engines.world import World


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path / "logs")
    yield world
    world.link.close()
