"""Traces over REST: what is recorded, and what nodes answer when they are asked."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Pong
from mgpu_agent.protocol.model import ProcessSeen
from mgpu_jupyter.scheduler.events import NodeJoined, TaskReported
from mgpu_jupyter.server.tracing import Answered, checks_of
from tests.builders import Cluster, a_spec, ended, facts, status

PONG = Pong(
    number=1,
    node_id=NodeId("n1"),
    host="host-n1",
    address="127.0.0.1",
    agent_version="1",
    python="p",
    pid=7,
    at=1.0,
    link="tcp://127.0.0.1:8790",
)


async def test_a_job_is_traced_with_its_mismatch_and_a_node_that_is_away_is_said(api, tell, app):
    await tell(NodeJoined(at=time.time(), node_id=NodeId("n1"), facts=facts("n1")))
    _, submitted = await api("jobs", "POST", a_spec(gpus=1))
    path = f"jobs/{submitted['job_id']}"
    job = app.service.saved_job(submitted["job_id"]).job
    at = time.time()
    await tell(TaskReported(at=at, status=status(job, started_at=at, host="other")))

    code, trace = await api(f"{path}/trace", params={"verify": "1"})
    assert (code, trace["ok"], trace["state"]) == (200, False, "running")
    assert trace["mismatches"] == (await api(path))[1]["mismatches"]
    assert trace["mismatches"][0].endswith(
        "ran on host other, but was assigned to n1, which said that it is host host-n1."
    )
    wrong = [check for check in trace["checks"] if not check["ok"]]
    assert [(check["what"], check["assigned"], check["actual"]) for check in wrong] == [
        ("host", "host-n1", "other")
    ]
    assert "n1 is online: it is not connected" in wrong[0]["text"]

    assert (await api("jobs/NOSUCH00/trace"))[1]["code"] == "no-such-job"
    assert (await api(f"{path}/trace", params={"verify": "x"}))[0] == 400


@pytest.fixture
def running():
    cluster = Cluster(("n1", 1))
    job = cluster.started()
    cluster.tell(TaskReported(at=5.0, status=status(job)))
    return cluster.job(job.id)


def seen_of(job, **changes):
    values = {
        "rank": 0,
        "pid": 1000,
        "alive": True,
        "host": "host-n1",
        "node_id": "n1",
        "job_id": job.id,
        "attempt": "1",
        "cwd": "/",
    }
    return ProcessSeen(
        **{**values, "user": "ann", "ports": ("0.0.0.0:5000",), "master_port": "29500", **changes}
    )


def found(job, told, link_port=8790):
    return {
        check.what: (check.ok, check.actual, check.text)
        for check in checks_of(job, job.placements[0], 0, told, link_port)
    }


def test_what_is_there_as_assigned_passes(running):
    told = found(running, Answered(replace(PONG, processes=(seen_of(running),)), 0.01))
    assert all(ok for ok, _, _ in told.values())
    assert told["pid"] == (True, "1000", f"job {running.id}, attempt 1, of ann, in /")
    assert told["ports"] == (True, "link 8790", "listens on 0.0.0.0:5000, MASTER_PORT 29500")


@pytest.mark.parametrize(
    ("changes", "wrong"),
    [
        ({"node_id": "n2"}, "node"),
        ({"host": "other"}, "host"),
        ({"alive": False}, "pid"),
        ({"attempt": "2"}, "pid"),
        ({"job_id": "OTHER000"}, "pid"),
    ],
)
def test_what_is_there_otherwise_fails(running, changes, wrong):
    told = found(running, Answered(replace(PONG, processes=(seen_of(running, **changes),)), 0.01))
    assert [what for what, (ok, *_) in told.items() if not ok] == [wrong]


def test_another_port_and_address_fail_and_what_may_not_be_seen_passes(running):
    other = replace(PONG, link="tcp://127.0.0.1:9999", address="192.0.2.9", processes=(seen_of(running),))
    assert [what for what, (ok, *_) in found(running, Answered(other, 0.01)).items() if not ok] == [
        "address",
        "ports",
    ]
    hidden = replace(PONG, processes=(seen_of(running, note="The node may not look."),))
    assert found(running, Answered(hidden, 0.01))["pid"] == (True, "1000", "The node may not look.")


def test_without_an_answer_what_was_told_at_the_start_is_compared(running):
    told = found(running, Unavailable("no-answer", "n1 did not answer."))
    assert told["host"] == (True, "host-n1", "as its node told when it started; n1 did not answer.")
    assert "ports" not in told
    over = replace(running, tasks=(ended(running),))
    assert found(over, None)["pid"] == (True, "1000", "it has ended")
    assert found(replace(running, tasks=()), None) == {}


async def test_a_ping_compares_with_what_the_node_joined_with(api, tell, app, monkeypatch):
    await tell(NodeJoined(at=time.time(), node_id=NodeId("n1"), facts=facts("n1")))
    assert (await api("nodes/n1/ping", "POST"))[1]["code"] == "node-away"
    assert (await api("nodes/n9/ping", "POST"))[1]["code"] == "no-such-node"

    async def answered(node_id, key=None):
        return Answered(replace(PONG, at=app.service.clock() + 3.0, host="other"), 0.5)

    monkeypatch.setattr(app.service, "ping", answered)
    code, told = await api("nodes/n1/ping", "POST")
    assert (code, told["seconds"], told["pid"], told["link"]) == (200, 0.5, 7, "tcp://127.0.0.1:8790")
    assert told["clock_skew_s"] == pytest.approx(3.25, abs=0.5)
    assert [text.partition(":")[0] for text in told["warnings"]] == [
        "Its agent says host other, and it joined as host-n1.",
        f"Its agent is version 1, and the master is {__version__}",
    ]
