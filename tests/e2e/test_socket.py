"""A master that serves a UNIX socket: clients, agents and a relaying Jupyter server find it by its runtime
file.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_agent.protocol.places import find_runtime_file
from mgpu_jupyter import Client
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.connecting import unix_url
from tests.e2e.cluster import BIN, START_LIMIT_S, Cluster
from tests.processes import LIMIT_S, free_port

TOKEN = "of-the-second-server"


@pytest.fixture
def path(cluster: Cluster) -> Path:
    path = cluster.directory / "m.sock"
    traits = ["--MgpuApp.link_port=0", "--MgpuApp.simulate=1x2"]
    cluster.start("master", [str(BIN / "mgpu_master"), "--socket", str(path), "--", *traits])
    cluster.wait_until(
        lambda: find_runtime_file(cluster.state) is not None, "the master tells where it is", START_LIMIT_S
    )
    return path


def test_a_job_by_client_and_command_line(cluster: Cluster, path: Path) -> None:
    assert path.stat().st_mode & 0o777 == 0o600
    job = cluster.client.submit(["echo", "over", "a", "socket"], gpus=1, wait_for_nodes=True)
    assert job.wait(60).output() == "over a socket\n"
    for url in ({}, {"MGPU_URL": unix_url(str(path))}):
        run = subprocess.run(
            [str(BIN / "mgpu_srun"), "--", "echo", "hi"],
            env=cluster.env | url,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert (run.returncode, run.stdout) == (0, "hi\n"), run.stderr


def test_a_second_server_relays_to_it(cluster: Cluster, path: Path) -> None:
    port = free_port()
    words = [
        str(BIN / "jupyter"),
        "server",
        "--no-browser",
        "--allow-root",
        f"--port={port}",
        "--ServerApp.port_retries=0",
    ]
    cluster.start("second", [*words, f"--IdentityProvider.token={TOKEN}"])
    own = f"http://127.0.0.1:{port}/"
    token = (cluster.state / "keys" / "token").read_text()
    with Client(own, token, env=cluster.env) as client:
        cluster.wait_until(
            lambda: client.health().relays_to == unix_url(str(path)),
            "the second server relays",
            START_LIMIT_S,
        )
        job = client.submit(["echo", "relayed"], gpus=1, wait_for_nodes=True)
        assert job.wait(60).output() == "relayed\n"

    async def first_event() -> str:
        socket = await websocket_connect(
            HTTPRequest(f"ws://127.0.0.1:{port}/{PREFIX}/events?since=0&token={TOKEN}")
        )
        try:
            message = await asyncio.wait_for(socket.read_message(), LIMIT_S)
        finally:
            socket.close()
        assert isinstance(message, str)
        return str(json.loads(message)["type"])

    assert asyncio.run(first_event()) in ("job", "node")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--socket", "/nowhere/at/all/m.sock"], "there is no directory /nowhere/at/all: make it first."),
        (["--socket", f"/{'x' * 120}"], "the path is over 107 bytes: use a shorter one."),
        (["--socket", "m.sock", "--tls"], "--socket and --tls exclude each other"),
    ],
)
def test_a_socket_that_cannot_be_is_one_sentence(cluster: Cluster, words: list[str], sentence: str) -> None:
    run = subprocess.run(
        [str(BIN / "mgpu_master"), *words],
        env=cluster.env,
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode != 0, run.stdout) == (True, "")
    assert sentence in run.stderr
    assert len(run.stderr.strip().splitlines()) == 1
