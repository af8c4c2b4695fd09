"""Issue 3, row 6: connections that are held open and say nothing, or nonsense, do not disturb the agents."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, bash

CONNECTIONS = 500


@pytest.fixture
def many_files() -> Iterator[None]:
    """Let this process have as many open files as it holds connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 4 * CONNECTIONS)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_five_hundred_connections_to_the_link_disturb_nobody(two_nodes: Cluster, many_files: None) -> None:
    host, port = two_nodes.runtime().link_address.removeprefix("tcp://").split(":")
    running = two_nodes.client.submit(
        bash("for i in $(seq 30); do echo $i; sleep 0.1; done"), gpus=1, nodelist=["n1"]
    )
    two_nodes.wait_until(running.output, "a job runs")
    with contextlib.ExitStack() as held:
        for number in range(CONNECTIONS):
            stranger = held.enter_context(socket.create_connection((host, int(port)), timeout=120))
            if number % 3 == 1:
                stranger.sendall(os.urandom(64))
            elif number % 3 == 2:
                stranger.sendall(b"\xff\0\0\0\0\0\0\0\1\x7f\3\1NULL")  # half a greeting
        outputs = [
            two_nodes.client.submit(["bash", "-c", "echo $MGPU_NODE_ID"], gpus=1, nodelist=[node])
            .wait(60)
            .output()
            for node in ("n1", "n2")
        ]
        states = two_nodes.node_states()

    assert outputs == ["n1\n", "n2\n"]
    assert (states["n1"], states["n2"]) == ("online", "online")
    assert running.wait(60).output() == "".join(f"{number}\n" for number in range(1, 31))
    refusals = [
        line
        for line in two_nodes.log("master").splitlines()
        if "A connection to the link was refused" in line
    ]
    assert len(refusals) <= 2, "the log says it once for each kind"
