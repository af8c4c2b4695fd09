"""Acceptance of joining, row 1: machines with addresses of their own join by a line that works once, and one
is revoked.
"""

from __future__ import annotations

import contextlib
import getpass
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import zmq
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.join import read_join, write_join
from mgpu_agent.protocol.messages import Check, Enrol, Enrolled, Heartbeat, Refuse, Welcome
from mgpu_jupyter.client.job import Job
from tests.e2e import network
from tests.e2e.attacker import ANSWER_MS, Connection, hello
from tests.e2e.cluster import BIN, Cluster, bash
from tests.processes import processes_of

WAITS = "echo {name} $$; while [ ! -e {go} ]; do sleep 0.05; done; echo done"


def mgpu(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(BIN / "mgpu"), *words], env=cluster.env, capture_output=True, text=True, timeout=120, check=False
    )


def join_line(cluster: Cluster, *words: str) -> str:
    """Return what `mgpu join-token` printed: exactly one line."""
    answer = mgpu(cluster, "join-token", *words)
    assert answer.returncode == 0, answer
    (line,) = answer.stdout.splitlines()
    return line


class Hosts:
    """A master beyond whose loopback address only the bridge is bound, and machines that join it."""

    def __init__(self, cluster: Cluster, net: network.Network) -> None:
        self.cluster, self.net = cluster, net

    def command(self, name: str, line: str, *words: str) -> list[str]:
        """Return the pasted line as it runs on that machine, with a state directory of its own below the
        cluster's.
        """
        program, *arguments = shlex.split(line)
        state = self.cluster.state / f"host-{name}"
        return self.net.inside(name, [str(BIN / program), *arguments, "--state-dir", str(state), *words])

    def start(self, name: str, line: str, *words: str) -> None:
        """Run the pasted line and wait until its node is online."""
        self.cluster.start_agent(name, self.command(name, line, *words))

    def refused(self, name: str, line: str) -> str:
        """Run the pasted line to its end and return the last thing that it says."""
        answer = subprocess.run(
            self.command(name, line, "--fake-gpus", "1"),
            env=self.cluster.env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert answer.returncode == 1, answer
        assert "Traceback" not in answer.stderr
        return answer.stderr.splitlines()[-1]


@pytest.fixture
def hosts(cluster: Cluster) -> Iterator[Hosts]:
    with network.Network("east", "west", "third") as net:
        try:
            yield Hosts(cluster, net)
        finally:
            cluster.close_programs()


def running(cluster: Cluster, job: Job, node: str) -> int:
    """Wait until the job runs on that node and return its pid."""

    def pid() -> int | None:
        placement = next(iter(job.refresh().placements), None)
        return (
            placement.pid
            if job.state == "running" and placement is not None and placement.node == node
            else None
        )

    return cluster.wait_until(pid, f"the job runs on {node}")


@network.NEEDS
def test_two_machines_join_a_third_is_refused_and_a_revoked_ones_job_runs_elsewhere(
    hosts: Hosts, tmp_path: Path
) -> None:
    cluster, net = hosts.cluster, hosts.net
    cluster.start_master("--MgpuApp.heartbeat_interval=0.5")
    listen = ("--listen", net.master)
    used = join_line(cluster, "--node-id", "east", *listen)
    hosts.start("east", used, "--fake-gpus", "1")
    hosts.start("west", join_line(cluster, *listen), "--node-id", "west", "--fake-gpus", "3")

    nodes = {node.id: (node.address, node.address_method) for node in cluster.client.nodes()}
    assert nodes == {
        "east": (net.hosts["east"], "way-to-master"),
        "west": (net.hosts["west"], "way-to-master"),
    }
    where = {
        name: cluster.client.submit(["bash", "-c", "echo $MGPU_NODE_ID"], gpus=1, nodelist=[name])
        .wait(60)
        .output()
        for name in nodes
    }
    assert where == {"east": "east\n", "west": "west\n"}
    assert "mgpu1." not in _command_lines(cluster)

    _assert_bad_lines_are_refused(hosts, used)

    go = tmp_path / "go"
    lost = cluster.client.submit(
        bash(WAITS, name="lost", go=go), gpus=1, nodelist=["east", "west"], nodes=1, name="lost"
    )
    # Placed by first fit, east comes first; the other job is sent to west by name.
    stays = cluster.client.submit(bash(WAITS, name="stays", go=go), gpus=1, nodelist=["west"])
    lost_pid, stays_pid = running(cluster, lost, "east"), running(cluster, stays, "west")

    revoked = mgpu(cluster, "node", "revoke", "east", "--reason", "stolen")
    sentence = f"Revoked by {getpass.getuser()}: stolen."
    assert (revoked.returncode, revoked.stdout, revoked.stderr) == (0, f"east: {sentence}\n", "")
    east = cluster.client.nodes()[0]
    assert (str(east.state), east.reason) == ("offline", sentence)
    cluster.wait_until(
        lambda: "is not part of this cluster any more" in cluster.log("east"), "the next frame is refused"
    )
    assert cluster.wait("east") == 1
    running(cluster, lost, "west")
    cluster.wait_until(lambda: not Path(f"/proc/{lost_pid}").exists(), "the refused node ended its job")
    assert (lost.refresh().attempt, str(lost.state)) == (2, "running")
    assert (running(cluster, stays, "west"), stays.refresh().attempt) == (stays_pid, 1)
    assert cluster.log("west").count("joined") == 1
    go.touch()
    assert [str(job.wait(60).state) for job in (lost, stays)] == ["completed", "completed"]

    cluster.stop("west")
    hosts.start("west", "mgpu_node --node-id west", "--fake-gpus", "3")
    hosts.start("east", join_line(cluster, "--node-id", "east"), "--fake-gpus", "1")
    assert (
        cluster.client.submit(["bash", "-c", "echo $MGPU_NODE_ID"], gpus=1, nodelist=["east"])
        .wait(60)
        .output()
        == "east\n"
    )
    assert mgpu(cluster, "nodes").stdout.count("(its end of the way to the master)") == 2

    cluster.kill("master")
    cluster.start_master()
    both = {"east": "online", "west": "online"}
    cluster.wait_until(
        lambda: cluster.node_states() == both, "both find the master again where it listened before"
    )
    assert [address.rpartition(":")[0] for address in cluster.client.health().link_addresses] == [
        f"tcp://{net.master}"
    ]


def _assert_bad_lines_are_refused(hosts: Hosts, used: str) -> None:
    """A third machine gets in by none of these, and the log names each once."""
    cluster = hosts.cluster
    refused = "The master refused this join line: it was used already, has expired, or is not this master's;"
    assert hosts.refused("third", used.replace("east", "third")).startswith(
        "This join line is for east, not for third"
    )
    text = shlex.split(used)[2]
    nobodys = replace(read_join(text), node_id=None)
    assert hosts.refused("third", f"mgpu_node --node-id third --join {write_join(nobodys)}").startswith(
        refused
    )

    expiring = join_line(cluster, "--node-id", "third", "--ttl", "1s")
    time.sleep(1.1)  # the line's own life, not a wait for luck
    assert hosts.refused("third", expiring).startswith(refused)

    fresh = join_line(cluster, "--node-id", "third")
    line = shlex.split(fresh)[2]
    middle = len(line) // 2
    other = "A" if line[middle] != "A" else "B"
    assert "damaged" in hosts.refused(
        "third", fresh.replace(line, line[:middle] + other + line[middle + 1 :])
    )
    public, secret = (key.decode() for key in zmq.curve_keypair())
    forged = write_join(replace(read_join(line), public_key=public, secret_key=secret))
    assert hosts.refused("third", fresh.replace(line, forged)).startswith(refused)

    # A machine that is refused by the line's key also tries its own, once per machine.
    told = {"join line was used already": 1, "join line has expired": 1, "key is not enrolled": 2}
    cluster.wait_until(
        lambda: all(cluster.log("master").count(what) >= count for what, count in told.items()),
        "all is in the log",
    )
    assert {what: cluster.log("master").count(what) for what in told} == told
    assert "third" not in cluster.node_states()


def _command_lines(cluster: Cluster) -> str:
    lines = []
    for process in processes_of(cluster.state):
        with contextlib.suppress(psutil.NoSuchProcess):  # it ended while it was looked at
            lines.append(" ".join(process.cmdline()))
    return "\n".join(lines)


def test_the_next_frame_of_a_revoked_key_is_refused_and_a_second_use_of_a_line(two_nodes: Cluster) -> None:
    """On one machine with raw connections: the very next frame, on a connection that was let in before."""
    join = two_nodes.client.admin.join_token(listen=["127.0.0.1"])
    line, keys = read_join(join.line), zmq.curve_keypair()
    pair = (line.public_key.encode(), line.secret_key.encode())
    with Connection(line.addresses[0], pair, line.server_key.encode()) as enrolling:
        enrolling.send(Enrol(node_id=NodeId("eve"), public_key=keys[0].decode()))
        assert enrolling.receive(ANSWER_MS) == [Enrolled(node_id=NodeId("eve"))]
        enrolling.send(Enrol(node_id=NodeId("eve2"), public_key=zmq.curve_keypair()[0].decode()))
        assert [(type(answer), answer.code) for answer in enrolling.receive(ANSWER_MS)] == [
            (Refuse, "join-refused")
        ]  # type: ignore[union-attr]
    with Connection(line.addresses[0], keys, line.server_key.encode()) as eve:
        eve.send(hello("eve"))
        assert [type(answer) for answer in eve.receive(ANSWER_MS)] == [Welcome, Check]
        two_nodes.client.admin.revoke_node("eve", "test")
        eve.send(Heartbeat(at=0.0))
        (refusal,) = eve.receive(ANSWER_MS)
        assert isinstance(refusal, Refuse)
        assert refusal.code == "revoked"
    states = two_nodes.node_states()
    assert (states["n1"], states["n2"], states["eve"]) == ("online", "online", "offline")
