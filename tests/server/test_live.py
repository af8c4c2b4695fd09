"""Live figures: events with readings and the queue as differences, and histories, over the real server."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Heartbeat, Hello
from mgpu_agent.protocol.model import GpuSample
from mgpu_agent.protocol.places import find_runtime_file
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.scheduler.events import NodeJoined, NodeLeft, TaskReported
from tests.builders import ended, facts, status
from tests.e2e.attacker import Connection, enrol

LIMIT_S = 60.0


async def read_until(socket, wanted):
    """Return the frames up to the first of which `wanted` is true."""
    frames = []
    while not frames or not wanted(frames[-1]):
        message = await asyncio.wait_for(socket.read_message(), LIMIT_S)
        assert message is not None, frames
        frames.append(json.loads(message))
    return frames


def is_a(kind):
    return lambda frame: frame["type"] == kind


class Agent:
    """What the master hears of one node, over the real link; it starts nothing."""

    def __init__(self, service, node_id, gpus):
        self._service, self._id, self._facts = service, NodeId(node_id), facts(node_id, gpus)
        runtime = find_runtime_file(service.place.path)
        self._link = Connection(
            runtime.link_address, enrol(runtime, node_id), runtime.link_public_key.encode()
        )

    async def join(self):
        self._link.send(Hello(node_id=self._id, facts=self._facts))
        await self._until(lambda node: node.state is NodeState.ONLINE)

    async def read(self, busy, cpu=10.0):
        """Tell of one reading, and wait until the master has it."""
        samples = tuple(
            GpuSample(
                uuid=gpu.uuid,
                utilisation_percent=busy[gpu.index],
                memory_used_bytes=2**30,
                temperature_c=50.0,
                power_w=100.0,
            )
            for gpu in self._facts.gpus
        )
        before = self._service.master.node(self._id).samples
        self._link.send(
            Heartbeat(at=time.time(), samples=samples, cpu_percent=cpu, memory_available_bytes=2**30)
        )
        await self._until(lambda node: node.samples == samples and node.samples is not before)

    async def _until(self, holds):
        async def look():
            while (node := self._service.master.node(self._id)) is None or not holds(node):
                await asyncio.sleep(0.01)

        await asyncio.wait_for(look(), LIMIT_S)

    def close(self):
        self._link.close()


@pytest.fixture
def joined(app):
    """Let a node join that tells of its GPUs as an agent does."""
    agents = []

    async def join(node_id, gpus):
        agents.append(Agent(app.service, node_id, gpus))
        await agents[-1].join()
        return agents[-1]

    yield join
    for agent in agents:
        agent.close()


async def submit(api, **more):
    status_, body = await api("jobs", "POST", {"command": ["true"], "gpus": 1, **more})
    assert status_ == 201, body
    return body["job_id"]


async def test_readings_come_as_differences_and_nodes_only_when_more_changed(api, jp_ws_fetch, tell, joined):
    node = await joined("n1", 2)
    await tell(NodeJoined(at=1.0, node_id=NodeId("n2"), facts=facts("n2", 2)))
    await node.read([0.0, 0.0])
    socket = await jp_ws_fetch(PREFIX, "events", params={"samples": "1"})
    first = await read_until(socket, is_a("ready"))
    await node.read([50.4, 0.0])
    (changed,) = await read_until(socket, is_a("samples"))
    await tell(NodeLeft(at=2.0, node_id=NodeId("n2"), reason="stopped"))
    (left,) = await read_until(socket, is_a("node"))
    socket.close()

    assert [frame["type"] for frame in first] == ["samples", "ready"]
    assert first[0]["nodes"] == {
        "n1": {
            "cpu": 10,
            "memory_available_mib": 1024,
            "gpus": {"0": [0, 1024, 50, 100], "1": [0, 1024, 50, 100]},
        },
        "n2": {},
    }
    assert changed["nodes"] == {"n1": {"gpus": {"0": [50, 1024, 50, 100]}}}
    assert (left["node"]["id"], left["node"]["state"]) == ("n2", "offline")


async def test_the_queue_comes_whole_and_then_as_differences(api, jp_ws_fetch, tell):
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 1)))
    running = await submit(api)
    waiting = [await submit(api, name=f"w{number}") for number in range(5)]
    socket = await jp_ws_fetch(PREFIX, "events", params={"queue": "1"})
    frames = await read_until(socket, is_a("queue"))
    whole = frames[-1]
    await api(f"jobs/{waiting[0]}/cancel", "POST")
    less = (await read_until(socket, is_a("queue")))[-1]
    await api(f"jobs/{waiting[4]}", "PATCH", {"priority": 100})
    moved = (await read_until(socket, is_a("queue")))[-1]
    socket.close()
    again = await jp_ws_fetch(PREFIX, "events", params={"queue": str(less["version"])})
    resumed = (await read_until(again, is_a("queue")))[-1]
    again.close()
    stranger = await jp_ws_fetch(PREFIX, "events", params={"queue": "77"})
    anew = (await read_until(stranger, is_a("queue")))[-1]
    stranger.close()

    assert whole["inserted"] == [[0, waiting]]
    assert running not in whole["why"]
    assert set(whole["why"]) == set(waiting)
    (number,) = set(whole["why"].values())
    assert whole["reasons"][str(number)][0] == "busy"
    assert "Waits for 1 GPU" in whole["reasons"][str(number)][1]
    assert {key: value for key, value in less.items() if key not in ("version", "expected")} == {
        "type": "queue",
        "base": whole["version"],
        "removed": [waiting[0]],
    }
    assert (moved["base"], moved["removed"], moved["inserted"]) == (
        less["version"],
        [waiting[4]],
        [[0, [waiting[4]]]],
    )
    assert (resumed["base"], resumed["removed"], resumed["inserted"]) == (
        less["version"],
        [waiting[4]],
        [[0, [waiting[4]]]],
    )
    assert ("base" in anew, anew["inserted"]) == (False, [[0, [waiting[4], *waiting[1:4]]]])


async def test_who_comes_back_hears_what_is_gone_or_that_it_must_begin_anew(app, api, jp_ws_fetch, tell):
    app.service.master.store.bind_node_key(NodeId("n1"), "k" * 40)
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts()))
    _, cluster = await api("cluster")
    job_id = await submit(api, hold=True)
    await api(f"jobs/{job_id}/cancel", "POST")
    await tell(NodeLeft(at=2.0, node_id=NodeId("n1"), reason="stopped"))
    await api("nodes/n1", "DELETE")
    await api("jobs/purge", "POST", {"older_than_s": 0})
    back = await jp_ws_fetch(PREFIX, "events", params={"since": str(cluster["seq"]), "samples": "1"})
    frames = await read_until(back, is_a("ready"))
    old = await jp_ws_fetch(PREFIX, "events", params={"since": "5", "samples": "1"})
    anew = await read_until(old, is_a("ready"))
    ahead = await jp_ws_fetch(PREFIX, "events", params={"since": str(2**50), "queue": "1"})
    also = await read_until(ahead, is_a("ready"))
    for socket in (back, old, ahead):
        socket.close()

    assert [(frame["type"], frame.get("nodes"), frame.get("jobs")) for frame in frames] == [
        ("gone", ["n1"], None),
        ("gone", None, [job_id]),
        ("ready", None, None),
    ]
    assert [frame["type"] for frame in (anew[0], also[0])] == ["reset", "reset"]
    assert anew[0]["seq"] == anew[-1]["seq"] == frames[-1]["seq"]


@pytest.mark.parametrize("query", [{"samples": "2"}, {"queue": "-1"}, {"since": "x"}])
async def test_wrong_wishes_are_refused_before_the_upgrade(jp_ws_fetch, query):
    with pytest.raises(HTTPClientError) as refused:
        await jp_ws_fetch(PREFIX, "events", params=query)
    assert refused.value.code == 400


async def test_histories_of_nodes_jobs_and_the_cluster(app, api, tell, joined):
    live, clock = app.service.live, app.service.clock
    node = await joined("n1", 4)
    job_id = await submit(api, gpus=4)
    job = app.service.saved_job(job_id).job
    await tell(TaskReported(at=clock(), status=status(job)))
    start = clock() + 10.0
    for second in range(0, 20, 2):
        await node.read([90.0, 40.0, 0.0, 0.0])
        live.feed(start + second)
    _, running = await api(f"jobs/{job_id}/usage")
    app.service.master.clock = lambda: start + 30.0
    _, past = await api("nodes/n1/history", params={"span": "60", "points": "5"})
    await tell(TaskReported(at=start + 20.0, status=ended(job, at=start + 20.0)))
    _, over = await api(f"jobs/{job_id}/usage", params={"points": "3"})
    _, cluster = await api("cluster/history", params={"span": "600", "points": "4"})

    assert (running["asked"], running["used"], running["hint"]) == (
        4,
        1.3,
        "GPUs 2 and 3 are idle so far. --gpus 2 would do.",
    )
    assert (running["energy_wh"], over["energy_wh"]) == (
        2.0,
        2.0,
    )  # 4 GPUs with 100 W, from the first to the last reading
    assert (over["used"], over["hint"]) == (1.3, "GPUs 2 and 3 were idle. --gpus 2 would have done.")
    assert [
        (gpu["index"], gpu["rank"], gpu["busy_mean"], gpu["memory_peak_mib"], gpu["idle"])
        for gpu in over["gpus"]
    ] == [
        (0, 0, 90.0, 1024, False),
        (1, 0, 40.0, 1024, False),
        (2, 0, 0.0, 1024, True),
        (3, 0, 0.0, 1024, True),
    ]
    assert len(over["times"]) <= 3
    assert over["gpus"][1]["busy"] == [40] * len(over["times"])
    assert 1 <= len(past["times"]) <= 5
    assert (set(past["cpu"]), set(past["gpus"][0]["busy"]), set(past["gpus"][1]["power"])) == (
        {10},
        {90},
        {100},
    )
    assert cluster["ended"] == {
        "cancelled": [0] * 4,
        "completed": [0, 0, 0, 1],
        "failed": [0] * 4,
        "timeout": [0] * 4,
    }
    assert (cluster["succeeded_percent"], cluster["ended_total"]) == (100.0, 1)
    assert 0 < cluster["gpus"][-1] <= 4
    assert cluster["in_use"][-1] > 0
    assert cluster["mine"] == cluster["in_use"]
    assert 0 < cluster["busy"][-1] <= 1.3, "90 and 40 percent of two GPUs, and nothing before"
    assert [(box["gpus"], box["jobs"]) for box in cluster["waits"]] == [("3-4", 1)]


@pytest.mark.parametrize(
    ("path", "query", "status_", "code"),
    [
        ("nodes/none/history", {}, 404, "no-such-node"),
        ("jobs/NONE0000/usage", {}, 404, "no-such-job"),
        ("cluster/history", {"span": "9"}, 400, "invalid"),
        ("cluster/history", {"points": "2001"}, 400, "invalid"),
        ("cluster/history", {"points": "many"}, 400, "invalid"),
    ],
)
async def test_wrong_questions_get_one_sentence(api, path, query, status_, code):
    answer = await api(path, params=query)
    assert (answer[0], answer[1]["code"]) == (status_, code)


async def test_a_job_without_readings_says_so(api, tell):
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 1)))
    no_gpu, waits = await submit(api, gpus=0), await submit(api, hold=True)

    assert (await api(f"jobs/{no_gpu}/usage"))[1]["message"] == "It asked for no GPU."
    assert (await api(f"jobs/{waits}/usage"))[1] | {"job_id": ""} == {
        "job_id": "",
        "state": "queued",
        "attempt": 0,
        "asked": 1,
        "used": None,
        "energy_wh": None,
        "hint": "",
        "readings": 0,
        "step_s": 0.0,
        "times": [],
        "gpus": [],
        "message": "",
    }
