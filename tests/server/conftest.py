"""A real Jupyter server with the extension, its master and one agent's worth of simulated GPUs told over a
real link.
"""

from __future__ import annotations

import asyncio
import getpass
import json

import msgspec
import pytest
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.client.login import read_line
from mgpu_jupyter.scheduler.events import NodeJoined, TaskReported
from tests.builders import a_spec, facts, status
from tests.processes import free_port

LIMIT_S = 60.0
pytest_plugins = ["pytest_jupyter.jupyter_server"]


@pytest.fixture
def state_dir(tmp_path, monkeypatch):
    path = tmp_path / "state"
    monkeypatch.setenv("MGPU_STATE_DIR", str(path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MGPU_URL", raising=False)
    monkeypatch.delenv("MGPU_TOKEN", raising=False)
    return path


@pytest.fixture
def mgpu_config():
    return {"local_agent": False}


@pytest.fixture
def jp_server_config(jp_server_config, state_dir, mgpu_config):
    return {
        "ServerApp": {"jpserver_extensions": {"mgpu_jupyter": True}},
        "MgpuApp": {"link_port": free_port(), **mgpu_config},
    }


@pytest.fixture
def jp_serverapp(jp_serverapp, jp_asyncio_loop):
    """pytest-jupyter runs the stop hook but never the start hook."""
    jp_asyncio_loop.run_until_complete(jp_serverapp.extension_manager.start_all_extensions())
    return jp_serverapp


@pytest.fixture
def app(jp_serverapp):
    return jp_serverapp.web_app.settings["mgpu_extension"]


@pytest.fixture
def os_user():
    return getpass.getuser()


@pytest.fixture
def api(jp_fetch):
    """Ask and return (status, body); errors come back like answers."""

    async def ask(path, method="GET", body=None, **options):
        query = options.pop("params", {})
        data = body if isinstance(body, bytes) or body is None else msgspec.json.encode(body)
        if method == "POST" and data is None:
            data = b""
        try:
            answer = await jp_fetch(
                PREFIX, *path.split("/"), method=method, body=data, params=query, **options
            )
        except HTTPClientError as error:
            return error.code, json.loads(error.response.body)
        is_json = answer.headers["Content-Type"].startswith("application/json")
        return answer.code, json.loads(answer.body) if is_json else answer.body

    return ask


@pytest.fixture
def tell(app):
    """Let the master hear events as if an agent had told them."""

    async def tell(*events):
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        def call(master, turn):
            for event in events:
                master.apply(turn, event)
            turn.replies.append(done.set)

        app.service.master.post(call, lambda error: loop.call_soon_threadsafe(done.set))
        await asyncio.wait_for(done.wait(), LIMIT_S)

    return tell


@pytest.fixture
def ask(http_server_client, jp_base_url):
    async def ask(path, token, method="GET", body=None):
        response = await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/{path}",
            method=method,
            headers={"Authorization": f"mgpu {token}"},
            body=None if body is None else msgspec.json.encode(body),
            raise_error=False,
        )
        return response.code, json.loads(response.body)

    return ask


@pytest.fixture
def add(app, ask):
    async def add(name, **more):
        code, answer = await ask("users", app.service.token, "POST", {"name": name, **more})
        assert code == 201, answer
        return read_line(answer["line"]).token

    return add


async def submit(api, **spec):
    code, body = await api("jobs", "POST", a_spec(**spec))
    assert code == 201
    return body["job_id"]


@pytest.fixture
def run_job(api, tell, app):
    """Submit a job and let it start on n1."""

    async def run(**spec):
        await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))
        job_id = await submit(api, **spec)
        job = app.service.saved_job(job_id).job
        await tell(TaskReported(at=2.0, status=status(job)))
        return app.service.saved_job(job_id).job

    return run


async def read_until(socket, condition):
    frames = []
    while not (frames and condition(frames[-1])):
        frames.append(json.loads(await asyncio.wait_for(socket.read_message(), LIMIT_S)))
    return frames
