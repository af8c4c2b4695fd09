"""Issue 3, row 8: the OpenAPI document says exactly what the live server does; schemathesis finds no
difference.

The node of this cluster is enrolled and greets, and runs nothing: what schemathesis makes up must not be
started anywhere.
"""

from __future__ import annotations

import subprocess

import pytest

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Hello
from mgpu_jupyter.api.route import PREFIX, Kind
from mgpu_jupyter.api.routes import ROUTES
from tests.builders import facts
from tests.e2e.attacker import Connection, enrol
from tests.e2e.cluster import BIN, ROOT, Cluster

EXAMPLES = 6
# Schemathesis speaks HTTP only: the streams have tests of their own. And a join line makes the link listen
# beyond loopback, which a test does in network namespaces only. The one node that there is stays: after its
# removal, all about nodes would be a 404; and it answers no ping.
LEFT_OUT = ("addJoinToken", "removeNode", "pingNode")
LIMIT_S = 1100.0  # most of it is the work of schemathesis, of which a busy machine does little


@pytest.mark.timeout(LIMIT_S + 100)
def test_schemathesis_finds_nothing(cluster: Cluster) -> None:
    runtime = cluster.start_master()
    keys = enrol(runtime, "n1")
    words = [str(BIN / "schemathesis"), "run", f"{runtime.url}{PREFIX}/openapi.json", "--url", runtime.url]
    words += [
        "--checks",
        "all",
        "--seed",
        "1",
        "--generation-deterministic",
        "--max-examples",
        str(EXAMPLES),
        "--no-color",
    ]
    words += ["--warnings", "off"]  # that no job has a result yet: nothing runs here
    words += ["-H", f"Authorization: mgpu {runtime.token}"]
    for route in ROUTES:
        if route.kind is Kind.WEBSOCKET or route.operation in LEFT_OUT:
            words += ["--exclude-operation-id", route.operation]
    env = {**cluster.env, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.e2e.api_hooks"}
    with Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as node:
        node.send(Hello(node_id=NodeId("n1"), facts=facts("n1", gpus=64, cpus=100_000)))
        cluster.wait_until(lambda: cluster.node_states() == {"n1": "online"}, "the node is online")
        run = subprocess.run(
            words,
            env=env,
            cwd=cluster.directory,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
    print(run.stdout, run.stderr)

    assert (run.returncode, "No issues found" in run.stdout) == (0, True), (
        f"{run.stdout[-6000:]}\n{run.stderr[-2000:]}"
    )
    assert cluster.client.health().status == "ok"
    assert "Traceback" not in cluster.log("master")
