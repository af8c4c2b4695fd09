"""The master's life within the server: it starts, it fails without taking the server along, and a second one
stays away.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import socket
import threading

import msgspec
import pytest
from jupyter_server.serverapp import ServerApp
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.places import find_runtime_file, make_private_dir, write_private_file
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.model.policies import POLICIES
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.server import headless
from mgpu_jupyter.server.app import MgpuApp
from mgpu_jupyter.server.local_agents import LocalAgent, plan
from tests.builders import a_spec


async def health_of(jp_fetch):
    return json.loads((await jp_fetch(PREFIX, "health")).body)


@pytest.fixture
def taken_lock(state_dir):
    state_dir.mkdir(mode=0o700)
    descriptor = os.open(state_dir / "master.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    os.write(descriptor, b"4711\n")
    yield
    os.close(descriptor)


async def test_a_second_master_on_one_directory_says_who_has_it(taken_lock, jp_fetch, state_dir):
    health = await health_of(jp_fetch)

    assert health["status"] == "failed"
    assert health["message"] == (
        f"Another server (process 4711) runs the master of {state_dir}: use that one, or set MGPU_STATE_DIR "
        f"to another directory."
    )
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs")
    assert caught.value.code == 503
    assert json.loads(caught.value.response.body)["message"] == health["message"]


async def test_jobs_of_ones_own_server_run_on_when_their_node_is_cut_off(app, jp_fetch):
    """A closed laptop must not end them; under `mgpu_master` they are fenced, which a test of whole clusters
    shows.
    """
    assert app.service.settings.policy == Policy(
        on_disconnect="keep", lease_s=120.0, lease_margin_s=10.0, prepare_s=15.0
    )


@pytest.mark.parametrize(
    "mgpu_config", [{"local_agent": False, "on_disconnect": "fence", "lease": 4.0, "lease_margin": 0.5}]
)
async def test_a_short_lease_makes_agents_speak_often_enough(app, jp_fetch):
    settings = app.service.settings
    assert settings.policy == Policy(on_disconnect="fence", lease_s=4.0, lease_margin_s=0.5)
    assert (settings.link.heartbeat_s, settings.link.timeout_s) == (1.0, 4.0)


@pytest.fixture
def open_keys(state_dir):
    state_dir.mkdir(mode=0o700)
    (state_dir / "keys").mkdir()
    (state_dir / "keys").chmod(0o755)


async def test_keys_that_others_can_read_keep_the_master_from_starting(open_keys, jp_fetch, state_dir):
    health = await health_of(jp_fetch)

    assert (health["status"], health["message"]) == (
        "failed",
        f"{state_dir}/keys must belong to you alone: run  chmod 700 {state_dir}/keys",
    )


@pytest.mark.parametrize(
    ("name", "mode", "fix"),
    [("", 0o755, 700), ("keys", 0o750, 700), ("keys/link.key", 0o644, 600), ("mgpu.db", 0o644, 600)],
)
def test_a_headless_master_does_not_start_at_all_on_what_others_can_read(
    state_dir, monkeypatch, name, mode, fix
):
    monkeypatch.setattr(
        "mgpu_jupyter.server.headless.MgpuApp.launch_instance", lambda *_: pytest.fail("it started")
    )
    make_private_dir(state_dir)
    make_private_dir(state_dir / "keys")
    for file in ("keys/link.key", "mgpu.db"):
        write_private_file(state_dir / file, b"secret")
    path = state_dir / name if name else state_dir
    path.chmod(mode)

    with pytest.raises(InvalidRequest, match=f"run  chmod {fix} {path}$"):
        headless.run("127.0.0.1", 8080, None, [])


def test_where_a_master_cannot_listen_is_one_sentence(state_dir, tmp_path, monkeypatch):
    monkeypatch.setattr(
        "mgpu_jupyter.server.headless.MgpuApp.launch_instance", lambda *_: pytest.fail("it started")
    )
    other = tmp_path / "cluster.conf"
    other.write_text("cluster: {}")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        told = []
        for host, number, config in (
            ("192.0.2.1", 0, None),
            ("127.0.0.1", port, None),
            (None, None, str(tmp_path)),
            (None, None, str(other)),
            (None, None, str(tmp_path / "no.yaml")),
        ):
            with pytest.raises(MgpuError) as refusal:
                headless.run(host, number, config, [])
            told.append(refusal.value.message)
    kinds = ".yaml or .yml for a cluster's file, or in .py or .json for one of Jupyter's own"
    advice = "stop that one, or choose another port by --port."
    everywhere = "use 0.0.0.0 for all that it has, or leave --host out."
    assert told == [
        f"--host 192.0.2.1 is no address of this machine: {everywhere}",
        f"Port {port} of 127.0.0.1 is taken by another program, perhaps a master of yours: {advice}",
        f"--config {tmp_path} is a directory: name the file, like {tmp_path}/cluster_config.yaml.",
        f"--config {other}: its name must end in {kinds}; rename it.",
        f"--config {tmp_path}/no.yaml: there is no such file; look at its path.",
    ]


@pytest.fixture
def broken_store(monkeypatch):
    monkeypatch.setattr("mgpu_jupyter.server.wiring.SqliteStore", lambda *_, **__: 1 / 0)


async def test_a_bug_at_the_start_shows_in_health(broken_store, jp_fetch):
    health = await health_of(jp_fetch)

    assert (health["status"], health["message"]) == (
        "failed",
        "The master did not start (ZeroDivisionError): see the server's log.",
    )


async def test_before_the_start_and_after_a_dead_thread(app, jp_fetch):
    service, app.service = app.service, None
    assert (await health_of(jp_fetch))["status"] == "starting"
    app.service = service
    service.master._stopping.set()
    service.master.link.wake()
    service.master._thread.join()
    assert (await health_of(jp_fetch))["status"] == "degraded"


async def test_the_runtime_file_tells_programs_of_the_same_user_how_to_reach_the_master(
    app, state_dir, jp_serverapp
):
    found = find_runtime_file(state_dir)

    assert found is not None
    assert (found.port, found.token, found.link_address) == (
        jp_serverapp.port,
        app.service.token,
        app.service.link_address,
    )
    assert found.pid == os.getpid()


async def test_the_token_and_the_link_port_stay_over_a_restart(app, jp_serverapp):
    token, address = app.service.token, app.service.link_address
    await app.stop_extension()
    assert "MGPU_TOKEN" not in os.environ

    await app._start_jupyter_server_extension(jp_serverapp)

    assert (app.service.token, app.service.link_address, app.service.master.epoch) == (token, address, 2)


@pytest.mark.parametrize(
    ("simulate", "agents"),
    [("2x4", (LocalAgent("node-1", 4), LocalAgent("node-2", 4))), ("1x0", (LocalAgent("node-1", 0),))],
)
def test_simulated_agents(simulate, agents):
    assert plan(simulate=simulate) == agents


def test_the_machines_own_agent_is_named_after_it(monkeypatch):
    monkeypatch.setattr("mgpu_jupyter.server.local_agents.host_name", lambda: "my host!")
    assert plan(simulate="") == (LocalAgent("my-host-"),)


@pytest.mark.parametrize("simulate", ["two", "0x4", "2x", "100x4", "2x100", "-1x4"])
def test_a_wrong_wish_is_refused_with_an_example(simulate):
    with pytest.raises(InvalidRequest, match="must look like 2x4"):
        plan(simulate=simulate)


@pytest.mark.parametrize(
    ("host", "tls", "secure"),
    [
        ("0.0.0.0", False, True),
        ("gpu.example.com", False, True),
        ("127.0.0.1", True, True),
        ("127.0.0.1", False, False),
    ],
)
def test_mgpu_master_serves_https_beyond_loopback(state_dir, monkeypatch, host, tls, secure):
    made = {}
    monkeypatch.setattr(ServerApp, "instance", classmethod(lambda cls, **traits: made.update(traits)))

    headless.application(host, tls=tls).make_serverapp()

    assert made == ({"certfile": str(state_dir / "keys" / "https.pem")} if secure else {})


async def test_the_server_answers_while_the_master_is_stuck_in_a_commit(app, jp_fetch, monkeypatch):
    """A slow disk holds up submits, and nothing else: notebooks, reads and health go on."""
    begun, go_on = threading.Event(), threading.Event()
    commit = app.service.master.store.commit

    def slow_commit(batch):
        begun.set()
        assert go_on.wait(30)
        commit(batch)

    monkeypatch.setattr(app.service.master.store, "commit", slow_commit)
    submit = asyncio.ensure_future(
        jp_fetch(PREFIX, "jobs", method="POST", body=msgspec.json.encode(a_spec()))
    )
    try:
        await asyncio.get_running_loop().run_in_executor(None, begun.wait, 30)
        for path in (("api", "status"), (PREFIX, "health"), (PREFIX, "nodes"), (PREFIX, "jobs")):
            assert (await jp_fetch(*path)).code == 200
        assert not submit.done()
    finally:
        go_on.set()
    assert (await submit).code == 201


async def test_a_start_that_failed_leaves_the_directory_to_the_next(app, jp_serverapp, monkeypatch):
    await app.stop_extension()
    with monkeypatch.context() as patch:
        patch.setattr("mgpu_jupyter.server.wiring._bind", lambda *_: 1 / 0)
        await app._start_jupyter_server_extension(jp_serverapp)
        assert app.health().status == "failed"

    await app._start_jupyter_server_extension(jp_serverapp)

    assert app.health().status == "ok"


class TestQueuePolicy:
    @pytest.fixture
    def mgpu_config(self, request):
        return {"local_agent": False, "queue_policy": request.param}

    @pytest.mark.parametrize("mgpu_config", ["easy"], indirect=True)
    async def test_the_order_of_the_queue_is_set_by_name(self, jp_fetch, app):
        assert (await health_of(jp_fetch))["status"] == "ok"
        assert app.service.settings.policy.scheduling.planning == POLICIES["easy"]

    @pytest.mark.parametrize("mgpu_config", ["eazy"], indirect=True)
    async def test_a_name_that_nobody_knows_keeps_the_master_from_starting(self, jp_fetch):
        health = await health_of(jp_fetch)

        names = "default, fifo, easy, easy-spare, conservative, sjf, sjf-strict, fair-share"
        sentence = f"There is no policy eazy (did you mean easy?): it is one of {names}."
        assert (health["status"], health["message"]) == ("failed", sentence)


def test_every_setting_that_has_help_can_be_set():
    own = MgpuApp.class_own_traits()
    assert [name for name, trait in own.items() if trait.help and not trait.metadata.get("config")] == []
