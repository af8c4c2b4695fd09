"""Acceptance of distributed jobs, row 2: nodes of which only the second interface leads to the others, and a
firewall between two.
"""

from __future__ import annotations

import shutil

import pytest

from tests.e2e import network
from tests.e2e.test_join import Hosts, hosts, join_line

__all__ = ["hosts"]

NEEDS_IPTABLES = pytest.mark.skipif(
    shutil.which("iptables") is None, reason="a firewall needs the program `iptables`"
)
SHOW = ["bash", "-c", "echo $MASTER_ADDR $GLOO_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"]


@network.NEEDS
@NEEDS_IPTABLES
def test_the_interface_that_leads_to_the_others_is_found_and_a_pair_that_cannot_talk_is_avoided(
    hosts: Hosts,
) -> None:
    cluster, net = hosts.cluster, hosts.net
    second = net.join_second(*net.hosts)
    for name in net.hosts:  # the first interface leads to the master, and to no other node
        for other in net.hosts:
            if other != name:
                net.block(name, net.hosts[other])
    cluster.start_master()
    for name in net.hosts:
        hosts.start(name, join_line(cluster, "--listen", net.master, "--node-id", name), "--fake-gpus", "1")

    job = cluster.client.submit(SHOW, nodes=2, nodelist="east,west", distributed=True).wait(60)
    assert (str(job.state), job.info.attempt) == ("completed", 1)
    first = job.info.placements[0].node
    assert [job.output(rank) for rank in (0, 1)] == [f"{second[first]} eth1 eth1\n"] * 2

    net.block("east", second["third"])
    apart = cluster.client.submit(SHOW, nodes=2, nodelist="east,third", distributed=True)
    found = cluster.wait_until(
        lambda: apart.info if apart.info.reason_code == "cannot-talk" else None, "the pair is named"
    )
    told = [f"{one} cannot reach {other}" for one, other in (("east", "third"), ("third", "east"))]
    assert str(found.state) == "queued"
    assert any(text in found.reason for text in told), found.reason
    assert "eth1 172." in found.reason
    assert all(gpu.job_id is None for node in cluster.client.nodes() for gpu in node.gpus)

    free = cluster.client.submit(SHOW, nodes=2, distributed=True).wait(60)
    assert (str(free.state), free.info.attempt, "west" in free.info.nodes) == ("completed", 1, True)
    apart.cancel()

    net.block("west", second["third"])  # not known yet: the next job finds out, and goes elsewhere
    moved = cluster.client.submit(SHOW, nodes=2, prefer="third,west", distributed=True).wait(60)
    assert (str(moved.state), moved.info.attempt, sorted(moved.info.nodes)) == (
        "completed",
        2,
        ["east", "west"],
    )
