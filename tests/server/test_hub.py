"""Who hears how much was read of what they typed: the newest of a writer, until it leaves."""

from __future__ import annotations

import asyncio

from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import InputAck
from mgpu_jupyter.server.hub import Hub

JOB = JobId("AAAA1111")


async def test_a_newer_connection_of_a_writer_replaces_the_older_one():
    hub = Hub(asyncio.get_running_loop())
    heard = []

    async def typed(offset):
        hub.typed([InputAck(key=AttemptKey(JOB, 1, 1), rank=0, writer="w", offset=offset)])
        for _ in range(3):
            await asyncio.sleep(0)

    older = hub.typist(JOB, "w", lambda ack: heard.append(("older", ack.offset)))
    newer = hub.typist(JOB, "w", lambda ack: heard.append(("newer", ack.offset)))
    older.__enter__()
    await typed(1)
    newer.__enter__()
    await typed(2)
    older.__exit__(None, None, None)
    await typed(3)
    newer.__exit__(None, None, None)
    await typed(4)
    assert heard == [("older", 1), ("newer", 2), ("newer", 3)]
