"""A real Jupyter server with the extension, its master and one agent's worth of simulated GPUs told over a real link."""

from __future__ import annotations

import getpass

import pytest

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
    return {"ServerApp": {"jpserver_extensions": {"mgpu_jupyter": True}}, "MgpuApp": mgpu_config}


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
