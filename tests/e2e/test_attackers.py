"""Acceptance, row 5: who is not an enrolled node gets nothing, and a dishonest node harms no other. The log
says so once.

ZeroMQ reconnects by itself several times a second, so "once" also means that a stranger cannot fill the disk.
"""

from __future__ import annotations

import time
from pathlib import Path

import zmq

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import (
    Check,
    Heartbeat,
    Launch,
    LaunchRefused,
    Output,
    Refuse,
    TaskReport,
    Welcome,
)
from mgpu_agent.protocol.model import STDOUT, TaskStatus
from tests.e2e.attacker import ANSWER_MS, Connection, enrol, hello
from tests.e2e.cluster import Cluster, bash


def _warnings(cluster: Cluster) -> list[str]:
    return [
        line for line in cluster.log("master").splitlines() if "Further ones like it are not logged" in line
    ]


def _runs_on(cluster: Cluster, node: str) -> str:
    """Return what a job for `node` printed: proof that the node still gets its own work and may still
    speak.
    """
    job = cluster.client.submit(["bash", "-c", "echo $MGPU_NODE_ID"], gpus=1, nodelist=[node])
    return job.wait(60).output()


def _assert_told_once(cluster: Cluster, before: list[str], *words: str) -> None:
    """Wait for the line, then long enough for ten reconnects, and see exactly one."""

    def told() -> list[str]:
        return [line for line in _warnings(cluster)[len(before) :] if all(word in line for word in words)]

    cluster.wait_until(told, f"the log says: {words}")
    time.sleep(1.0)
    assert len(told()) == 1, told()


def test_unknown_key(two_nodes: Cluster) -> None:
    runtime, before = two_nodes.runtime(), _warnings(two_nodes)
    with Connection(runtime.link_address, zmq.curve_keypair(), runtime.link_public_key.encode()) as stranger:
        stranger.send(hello("stranger"))
        assert stranger.receive() == []
        _assert_told_once(two_nodes, before, "is not enrolled")
    assert "stranger" not in two_nodes.node_states()


def test_wrong_server_key(two_nodes: Cluster) -> None:
    runtime, before = two_nodes.runtime(), _warnings(two_nodes)
    keys = enrol(runtime, "n3")
    with Connection(runtime.link_address, keys, zmq.curve_keypair()[0]) as stranger:
        stranger.send(hello("n3"))
        assert stranger.receive() == []
        _assert_told_once(two_nodes, before, "another server key")


def test_no_curve(two_nodes: Cluster) -> None:
    runtime, before = two_nodes.runtime(), _warnings(two_nodes)
    with Connection(runtime.link_address, None, None) as stranger:
        stranger.send(hello("n1"))
        assert stranger.receive() == []
        _assert_told_once(two_nodes, before, "did not use CURVE")
    assert _runs_on(two_nodes, "n1") == "n1\n"


def test_valid_key_that_claims_another_node(two_nodes: Cluster) -> None:
    runtime, before = two_nodes.runtime(), _warnings(two_nodes)
    keys = enrol(runtime, "mallory")
    with Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as mallory:
        mallory.send(hello("n1"))
        answers = mallory.receive_all(first_ms=ANSWER_MS)
        assert [type(answer) for answer in answers] == [Refuse]
        _assert_told_once(two_nodes, before, "mallory", "n1")
        assert _runs_on(two_nodes, "n1") == "n1\n"
        assert [answer for answer in mallory.receive_all() if isinstance(answer, Launch)] == []
    assert two_nodes.node_states()["n1"] == "online"


def test_enrolled_node_with_another_nodes_routing_id(two_nodes: Cluster) -> None:
    """Connections are told apart by their keys; one that names itself is not listened to, and gets nothing of
    the other's.
    """
    runtime, before = two_nodes.runtime(), _warnings(two_nodes)
    keys = enrol(runtime, "trudy")
    for routing_id in (b"n1", b"n2"):
        with Connection(runtime.link_address, keys, runtime.link_public_key.encode(), routing_id) as trudy:
            trudy.send(hello("trudy"))
            assert [_runs_on(two_nodes, node) for node in ("n1", "n2")] == ["n1\n", "n2\n"]
            assert trudy.receive_all() == []
    _assert_told_once(two_nodes, before, "trudy", "routing id")
    states = two_nodes.node_states()
    assert (states["n1"], states["n2"]) == ("online", "online")


def _ended(key: AttemptKey, node_id: str) -> TaskStatus:
    return TaskStatus(
        key=key,
        rank=0,
        node_id=NodeId(node_id),
        host="h",
        address="127.0.0.1",
        pid=1,
        started_at=1.0,
        ended_at=2.0,
        exit_code=7,
        stdout_bytes=7,
    )


def test_enrolled_node_that_speaks_for_anothers_job(two_nodes: Cluster, tmp_path: Path) -> None:
    """Reports and output about an attempt that was not given to the sender change nothing."""
    runtime, go = two_nodes.runtime(), tmp_path / "go"
    keys = enrol(runtime, "sybil")
    job = two_nodes.client.submit(
        bash("echo mine; while [ ! -e {go} ]; do sleep 0.05; done", go=go), gpus=1, nodelist=["n1"]
    )
    two_nodes.wait_until(lambda: job.state == "running", "the job runs")
    with Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as sybil:
        sybil.send(hello("sybil"))
        assert [type(answer) for answer in sybil.receive(ANSWER_MS)] == [Welcome, Check]
        for key in (AttemptKey(JobId(job.id), 1, epoch) for epoch in range(1, 4)):
            sybil.send(Output(key=key, rank=0, stream=STDOUT, offset=0, data=b"forged\n"))
            sybil.send(
                LaunchRefused(key=key, code="forged", message="It cannot run.", fault="request", exit_code=7)
            )
            for node in ("sybil", "n1"):
                sybil.send(TaskReport(status=_ended(key, node)))
        sybil.receive_all(500)
        assert job.state == "running"
    go.touch()
    job.wait(60)
    assert (str(job.state), job.exit_code, job.output()) == ("completed", 0, "mine\n")


def test_frames_of_another_master_epoch(two_nodes: Cluster) -> None:
    """A node that names ever newer masters neither stops this one nor fills its log."""
    runtime, before = two_nodes.runtime(), _warnings(two_nodes)
    keys = enrol(runtime, "oscar")
    with Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as oscar:
        for epoch in range(1000, 1020):
            oscar.send(hello("oscar"), epoch=epoch)
        oscar.receive_all(500)
    _assert_told_once(two_nodes, before, "oscar", "newer master")
    assert _runs_on(two_nodes, "n1") == "n1\n"


def test_frames_that_are_no_messages(two_nodes: Cluster) -> None:
    """An enrolled node that sends rubbish is refused; the master and the other nodes go on."""
    runtime = two_nodes.runtime()
    keys = enrol(runtime, "chuck")
    with Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as chuck:
        chuck.send_frames(b"", b"\xff" * 1000, b"\x93\x01\x00\x81\xa4type\xa3bye")
        chuck.send(Heartbeat(at=0.0))
        chuck.receive_all(500)
        assert [_runs_on(two_nodes, node) for node in ("n1", "n2")] == ["n1\n", "n2\n"]
    assert two_nodes.client.health().status == "ok"
