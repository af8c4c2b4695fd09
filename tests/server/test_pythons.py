"""Which Python a cell would find: only nodes that the asker may use are asked, and one that does not answer
is not an error.
"""

from __future__ import annotations

import pytest

from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.scheduler.events import NodeJoined
from tests.builders import facts

QUESTION = {"python": "/home/ann/trap", "kernel_python_version": "3.11"}


@pytest.fixture
def mgpu_config():
    partitions = {
        "open": {"nodes": ["n1", "n2", "n3"], "default": True},
        "own": {"nodes": ["n4"], "allow_users": ["bob"]},
    }
    return {"local_agent": False, "partitions": partitions}


async def test_nodes_that_the_asker_may_not_use_are_not_asked(app, ask, add, tell, monkeypatch):
    ann, bob = await add("ann"), await add("bob")
    await tell(
        *(NodeJoined(at=1.0, node_id=NodeId(name), facts=facts()) for name in ("n1", "n2", "n3", "n4"))
    )
    order = {"action": "only", "users": ["bob"], "accounts": []}
    assert (await ask("nodes/n2", app.service.token, "PATCH", order))[0] == 200
    asked = []

    async def ping(node, **what):
        asked.append((node, what["cell"].user))
        raise Unavailable("away", "It does not answer.")

    monkeypatch.setattr(app.service, "ping", ping)
    assert await ask("pythons", ann, "POST", QUESTION) == (200, {"nodes": []})
    assert asked == [("n1", "ann"), ("n3", "ann")]
    asked.clear()
    assert await ask("pythons", bob, "POST", QUESTION) == (200, {"nodes": []})
    assert asked == [("n1", "bob"), ("n2", "bob"), ("n3", "bob"), ("n4", "bob")]
