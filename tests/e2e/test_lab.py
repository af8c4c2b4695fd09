"""Acceptance, rows 1 and 2: JupyterLab has the extension with no further step, the make targets clean up, and
pip needs no Node.js.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from mgpu_agent.protocol.places import find_runtime_file
from mgpu_jupyter import Client, __version__
from tests.e2e.cluster import BIN, ROOT, START_LIMIT_S, Cluster
from tests.e2e.notebook import Attached
from tests.e2e.test_event_log import events, has_times
from tests.processes import describe, end_all, free_port, processes_of, wait_until, wait_until_gone

LAB_TOKEN = "a-token-for-tests"


def _request(method: str, url: str, token: str, body: bytes | None = None) -> tuple[int, str]:
    request = urllib.request.Request(url, body, {"Authorization": f"token {token}"}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def _get(url: str) -> tuple[int, str]:
    return _request("GET", url, LAB_TOKEN)


def test_lab_serves_the_extension(cluster: Cluster) -> None:
    port = free_port()
    arguments = [
        "--no-browser",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={LAB_TOKEN}",
        "--allow-root",
    ]
    cluster.start("lab", [str(BIN / "jupyter"), "lab", *arguments, "--MgpuApp.simulate=2x4"])
    url = f"http://127.0.0.1:{port}"

    def nodes_online() -> int:
        nodes = json.loads(_get(f"{url}/mgpu/api/v1/nodes")[1])["nodes"]
        return [(node["state"], len(node["gpus"])) for node in nodes].count(("online", 4))

    cluster.wait_until(lambda: nodes_online() == 2, "two nodes with four GPUs each are online", START_LIMIT_S)
    status, health = _get(f"{url}/mgpu/api/v1/health")
    assert (status, json.loads(health)["status"]) == (200, "ok")
    status, page = _get(f"{url}/lab")
    assert (status, "<title>JupyterLab</title>" in page) == (200, True)
    assert cluster.client.submit(["true"], gpus=1, name="quick").wait(60).exit_code == 0
    assert cluster.stop("lab") == 0
    assert wait_until_gone(cluster.state) == []
    has_times(cluster, "lab")
    assert sorted(events(cluster, "lab")[:2]) + events(cluster, "lab")[2:] == [
        "INFO node_id=node-1 joined: host HOST, address 127.0.0.1, 4 GPUs, simulated",
        "INFO node_id=node-2 joined: host HOST, address 127.0.0.1, 4 GPUs, simulated",
        'INFO job_id=ID submitted USER  "quick", 1 GPU',
        "INFO job_id=ID USER started on node-1 (GPU 0), SOME TIME after it was submitted",
        "INFO job_id=ID USER completed on node-1 (GPU 0) after SOME TIME",
    ]


def test_a_server_that_is_stopped_at_once_leaves_no_agents(cluster: Cluster) -> None:
    """Its agents may not have joined yet, so it cannot count on telling them."""
    command = [
        str(BIN / "mgpu_master"),
        "--host",
        "127.0.0.1",
        "--port",
        str(cluster.port),
        "--",
        "--MgpuApp.simulate=2x4",
    ]
    cluster.start("master", command)
    cluster.wait_until(lambda: len(processes_of(cluster.state)) > 1, "an agent is starting", START_LIMIT_S)
    assert cluster.stop("master") == 0
    left = wait_until_gone(cluster.state)
    assert left == [], describe(left)


def test_the_token_of_a_kernel(cluster: Cluster) -> None:
    """A kernel's token can do only mgpu things, survives a `kill -9` of the server, and never reaches a
    job.
    """
    port = free_port()
    arguments = [
        "--no-browser",
        f"--port={port}",
        "--ServerApp.port_retries=0",
        f"--IdentityProvider.token={LAB_TOKEN}",
        "--allow-root",
    ]
    # A port of its own: the one that is taken by itself may be another's before the server is back.
    command = [
        str(BIN / "jupyter"),
        "lab",
        *arguments,
        "--MgpuApp.simulate=1x1",
        f"--MgpuApp.link_port={free_port()}",
    ]
    cluster.start("lab", command)
    url = f"http://127.0.0.1:{port}/"
    cluster.wait_until(lambda: cluster.client.health().status == "ok", "the server is up", START_LIMIT_S)
    started = json.loads(_request("POST", f"{url}api/kernels", LAB_TOKEN, b"{}")[1])
    connection_file = cluster.directory / "jupyter-runtime" / f"kernel-{started['id']}.json"
    with Attached(connection_file) as kernel:
        ran = kernel.run("import os; print(os.environ['MGPU_URL'], os.environ['MGPU_TOKEN'])")
        found_url, token = ran.text().split()
        ran = kernel.run(
            '%load_ext mgpu_jupyter\n%mgpu_srun --gpus 1 -- bash -c \'env | grep -E "TOKEN|_KEY" || echo '
            "clean'"
        )
        assert (ran.error, ran.text()) == (None, "clean\n")
    assert found_url in (url, f"http://localhost:{port}/")
    assert [
        _request("GET", f"{url}{path}", token)[0] for path in ("api/contents", "api/kernels", "api/sessions")
    ] == [403] * 3
    cluster.kill("lab")
    cluster.start("lab", command)
    with Client(url, token) as client:
        cluster.wait_until(lambda: client.health().status == "ok", "the server is back", START_LIMIT_S)
        assert client.submit(["echo", "again"], gpus=1).wait(60).output() == "again\n"


def test_the_extension_is_listed_as_enabled_and_valid(cluster: Cluster) -> None:
    done = subprocess.run(
        [str(BIN / "jupyter"), "server", "extension", "list"],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    text = re.sub(r"\x1b\[\d*m", "", done.stdout + done.stderr)
    lines = [line.strip() for line in text.splitlines() if "mgpu_jupyter" in line]
    assert lines == ["mgpu_jupyter enabled", "- Validating mgpu_jupyter...", f"mgpu_jupyter {__version__} OK"]


def beside(home: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `mgpu_queue` in another shell of the same user, which knows of no server."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MGPU_", "JUPYTER_", "XDG_"))
    }
    env = plain | {"HOME": str(home), "COLUMNS": "200"} | variables
    return subprocess.run(
        [str(BIN / "mgpu_queue")], env=env, cwd=home, capture_output=True, text=True, check=False, timeout=120
    )


def shows_the_queue(done: subprocess.CompletedProcess[str]) -> None:
    assert (done.returncode, done.stderr) == (0, "")
    assert "--- Running Jobs ---" in done.stdout


def is_told_of_both(home: Path, port: int, state: Path) -> None:
    """With a second master of the same user another shell is told of both, and how to choose."""
    other, other_port = home / "other", free_port()
    plain = {name: value for name, value in os.environ.items() if not name.startswith(("MGPU_", "XDG_"))}
    with (home / "other.log").open("wb") as log:
        master = subprocess.Popen(
            [str(BIN / "mgpu_master"), "--port", str(other_port), "--", "--MgpuApp.local_agent=False"],
            env=plain | {"HOME": str(home), "MGPU_STATE_DIR": str(other)},
            stdout=log,
            stderr=log,
        )
    try:
        wait_until(lambda: find_runtime_file(other, other_port), "the second master is up", START_LIMIT_S)
        several = beside(home)
        assert (several.returncode, several.stdout) == (1, "")
        assert re.sub(r"//[^/]*:", "//HOST:", several.stderr) == (
            f"2 masters of yours run on this machine, http://HOST:{other_port}/ (its state is in {other}) "
            f"and http://HOST:{port}/ (its state is in {state}): name the port of one by "
            f"MGPU_MASTER_PORT={other_port}, or its directory by MGPU_STATE_DIR.\n"
        )
        shows_the_queue(beside(home, MGPU_MASTER_PORT=str(port)))
        shows_the_queue(beside(home, MGPU_STATE_DIR=str(other)))
    finally:
        master.terminate()
        master.wait()
    shows_the_queue(beside(home))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_make_lab_leaves_no_process(number: signal.Signals, tmp_path: Path) -> None:
    """`make lab` in a copy of the tree's top level, with its own state; the signal goes where a terminal or a
    service sends it.
    """
    tree = tmp_path / "tree"
    tree.mkdir()
    for path in ROOT.iterdir():
        if path.name in (
            "Makefile",
            "pyproject.toml",
            "mgpu_agent",
            "mgpu_jupyter",
            "notebooks",
            "tests",
            ".venv",
        ):
            (tree / path.name).symlink_to(path)
    port, state = free_port(), tree / ".mgpu" / "lab"
    arguments = (
        f"--no-browser --port={port} --ServerApp.port_retries=0 --allow-root "
        f"--IdentityProvider.token={LAB_TOKEN}"
    )
    with (tmp_path / "make.log").open("wb") as log:
        # `-o`: the environment is the one in use; installing this tree into it would turn it away from its
        # own.
        make = subprocess.Popen(
            ["make", "-o", ".venv/.mgpu-setup", "lab", f"ARGS={arguments}"],
            cwd=tree,
            env=os.environ | {"HOME": str(tmp_path)},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        wait_until(lambda: find_runtime_file(state, port), "the master is up", START_LIMIT_S)
        assert _get(f"http://127.0.0.1:{port}/lab")[0] == 200
        shows_the_queue(beside(tmp_path))
        if number is signal.SIGINT:  # the demo cluster ends with its server, whatever it runs
            with Client(env={"MGPU_STATE_DIR": str(state)}) as client:
                job = client.submit(["sleep", "4321"], gpus=4)
                wait_until(lambda: job.state == "running", "the job runs")
            os.killpg(make.pid, number)
        else:
            is_told_of_both(tmp_path, port, state)
            make.send_signal(number)
        make.wait(120)
        assert wait_until_gone(state) == []
        assert (beside(tmp_path).returncode, list(tmp_path.glob(".local/state/mgpu-running/*"))) == (1, [])
    finally:
        make.kill()
        end_all(state)


def test_pip_install_without_node(tmp_path: Path) -> None:
    """A fresh environment and a PATH that has no Node.js; what is already downloaded serves as its
    dependencies.
    """
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True, timeout=120)
    python = venv / "bin" / "python"
    env = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))
    } | {"PATH": str(venv / "bin")}
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--no-deps", str(ROOT)],
        env=env,
        check=True,
        timeout=120,
    )
    site = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    own_site = next((venv / "lib").glob("python*/site-packages"))
    for package in ("zmq", "msgspec", "psutil", "pynvml.py"):
        (own_site / package).symlink_to(site / package)
    if (site / "pyzmq.libs").exists():
        (own_site / "pyzmq.libs").symlink_to(site / "pyzmq.libs")

    code = (
        "import mgpu_agent, mgpu_jupyter, os; print(os.path.dirname(mgpu_jupyter.__file__), "
        "mgpu_jupyter.Client.__name__)"
    )
    done = subprocess.run(
        [str(python), "-c", code],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (f"{own_site / 'mgpu_jupyter'} Client\n", "")
    config = json.loads((venv / "etc/jupyter/jupyter_server_config.d/mgpu_jupyter.json").read_text())
    assert config == {"ServerApp": {"jpserver_extensions": {"mgpu_jupyter": True}}}
    assert not (own_site / "mgpu_jupyter" / "docs").exists()
    for program in ("mgpu", "mgpu_srun", "mgpu_queue", "mgpu_cancel", "mgpu_node"):
        helped = subprocess.run(
            [str(venv / "bin" / program), "--help"],
            env=env,
            cwd=tmp_path,
            capture_output=True,
            check=False,
            timeout=120,
        )
        assert (program, helped.returncode, helped.stderr) == (program, 0, b"")
