"""Issue 6, row 5: `mgpu doctor` finds each of ten planted faults on a live cluster and names the fix."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Hello, Leave
from tests.builders import facts
from tests.chaos.rows.clocks import Clock, can_preload
from tests.e2e.attacker import Connection, enrol
from tests.e2e.cluster import BIN, ROOT, Cluster
from tests.processes import free_port

Found = dict[str, list[tuple[str, str, str]]]


@pytest.fixture(scope="module")
def clinic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("clinic") / "cluster") as cluster:
        cluster.start_master(
            "--MgpuApp.heartbeat_interval=0.3",
            "--MgpuApp.timeout=6",
            "--MgpuApp.health_checks={'every_s': 0.3}",
        )
        cluster.start_node("n1", 1)
        yield cluster


def doctor(cluster: Cluster, **env: str) -> tuple[int, Found]:
    """Run `mgpu doctor --json`; return its exit code and what it found, by check."""
    words = [str(BIN / "mgpu"), "doctor", "--json"]
    done = subprocess.run(
        words, env=cluster.env | env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.stderr == ""
    found: Found = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["check"], []).append((one["level"], one["text"], one["fix"]))
    return done.returncode, found


def wait_for(cluster: Cluster, check: str, **env: str) -> tuple[int, Found]:
    """Ask the doctor until this check finds something."""
    return cluster.wait_until(
        lambda: told if check in (told := doctor(cluster, **env))[1] else None,
        f"the doctor finds {check}",
        60,
    )


def reach(cluster: Cluster) -> dict[str, str]:
    """Return the environment of one who knows the server by name and token."""
    runtime = cluster.runtime()
    return {"MGPU_URL": runtime.url, "MGPU_TOKEN": runtime.token}


@contextlib.contextmanager
def removed(cluster: Cluster, node: str) -> Iterator[None]:
    """Take the node away again, so that the next test finds what it expects."""
    try:
        yield
    finally:
        if node in cluster.programs:
            cluster.stop(node)
        cluster.wait_until(lambda: cluster.node_states().get(node) != "online", f"{node} is away")
        cluster.wait_until(lambda: _remove(cluster, node), f"{node} is removed")


def _remove(cluster: Cluster, node: str) -> bool:
    done = subprocess.run(
        [str(BIN / "mgpu"), "node", "remove", node],
        env=cluster.env,
        capture_output=True,
        timeout=120,
        check=False,
    )
    return done.returncode == 0


def test_a_cluster_that_is_well_has_no_finding(clinic: Cluster) -> None:
    code, found = doctor(clinic)

    assert (code, {level for one in found.values() for level, _, _ in one}) == (0, {"ok"}), found
    assert found["nodes"] == [("ok", "n1 is online.", "")]
    text = subprocess.run(
        [str(BIN / "mgpu"), "doctor"], env=clinic.env, capture_output=True, text=True, timeout=120, check=True
    ).stdout
    assert text.endswith("ok    n1 is online.\nAll is well.\n")


def test_1_a_closed_port(clinic: Cluster, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}/"
    code, found = doctor(clinic, MGPU_URL=url, MGPU_TOKEN="any", MGPU_STATE_DIR=str(tmp_path / "elsewhere"))

    ((level, text, fix),) = found["port"]
    assert (code, level) == (1, "error")
    assert url.rstrip("/") in text
    assert "mgpu_master" in fix


def test_2_a_wrong_key_of_a_person_and_of_a_node(clinic: Cluster, tmp_path: Path) -> None:
    code, found = doctor(
        clinic, MGPU_URL=clinic.runtime().url, MGPU_TOKEN="wrong", MGPU_STATE_DIR=str(tmp_path / "elsewhere")
    )
    ((level, _, fix),) = found["key"]
    assert (code, level, "log in again" in fix) == (1, "error", True)

    runtime = clinic.runtime()
    with Connection(runtime.link_address, zmq.curve_keypair(), runtime.link_public_key.encode()) as stranger:
        stranger.send(Hello(node_id=NodeId("n7"), facts=facts("n7")))
        text = "A program at 127.0.0.1 was turned away from the link, since its key is not enrolled."
        fix = "if it is a node of yours, start its mgpu_node with a line of `mgpu join-token`"
        clinic.wait_until(
            lambda: ("warning", text, fix) in doctor(clinic)[1]["server"], "the stranger was turned away"
        )


@pytest.mark.skipif(not can_preload(), reason="there is no gcc to build the clock with")
def test_3_a_clock_that_is_wrong(clinic: Cluster, tmp_path: Path) -> None:
    clock = Clock(tmp_path / "clock")
    command = [
        str(BIN / "mgpu_node"),
        "--node-id",
        "late",
        "--fake-gpus",
        "1",
        "--master-port",
        str(clinic.port),
    ]
    clinic.start_agent("late", command, clock.env)
    with removed(clinic, "late"):
        clock.jump(-3600)
        code, found = wait_for(clinic, "health")

        ((level, text, fix),) = found["health"]
        assert (code, level, fix) == (1, "error", "set it right, best by NTP on both machines")
        assert text.startswith("late gets no jobs: Its clock is 36")


def test_4_a_missing_driver(clinic: Cluster) -> None:
    clinic.start_real_node("bare", {"LD_LIBRARY_PATH": ""})
    with removed(clinic, "bare"):
        _, found = wait_for(clinic, "driver")

        ((level, text, fix),) = found["driver"]
        assert (level, fix) == ("warning", "make nvidia-smi work there, then restart its mgpu_node")
        assert text.startswith("bare offers no GPU. ")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
def test_5_a_full_disk(clinic: Cluster, tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,mode=0700", "mgpu-doctor", str(small)], check=True)
    try:
        code, found = doctor(clinic, MGPU_STATE_DIR=str(small), **reach(clinic))
    finally:
        subprocess.run(["umount", str(small)], check=True)

    text = f"The disk of {small} has 1 MiB left: submits are refused when it is full."
    assert (code, found["disk"]) == (
        1,
        [("error", text, "make room there, or set MGPU_STATE_DIR to another disk")],
    )


def test_6_another_version(clinic: Cluster) -> None:
    runtime = clinic.runtime()
    keys = enrol(runtime, "old")
    with (
        removed(clinic, "old"),
        Connection(runtime.link_address, keys, runtime.link_public_key.encode()) as node,
    ):
        node.send(Hello(node_id=NodeId("old"), facts=facts("old", agent_version="0.0.1")))
        _, found = wait_for(clinic, "version")

        assert [(level, text.split(",")[0]) for level, text, _ in found["version"]] == [
            ("warning", "old runs mgpu 0.0.1")
        ]
        assert (
            found["version"][0][2] == "install the same version on both: pip install --upgrade mgpu-jupyter"
        )
        node.send(Leave())
        clinic.wait_until(lambda: clinic.node_states()["old"] == "offline", "the node has left")


def test_7_a_node_that_cannot_be_reached(clinic: Cluster) -> None:
    clinic.start_node("mute", 1)
    with removed(clinic, "mute"):
        os.kill(clinic.pid("mute"), signal.SIGSTOP)
        try:
            code, found = wait_for(clinic, "unreachable")
        finally:
            os.kill(clinic.pid("mute"), signal.SIGCONT)

        ((level, text, fix),) = found["unreachable"]
        assert (code, level, text.split(":")[0]) == (1, "error", "mute is suspect")
        assert clinic.runtime().link_address in fix


def test_8_what_a_dead_master_left_and_one_that_hangs(clinic: Cluster) -> None:
    runtime = json.loads((clinic.state / "run" / f"master-{clinic.port}.json").read_text())
    stale = clinic.state / "run" / "master-9.json"
    stale.write_text(json.dumps({**runtime, "port": 9, "boot_id": "another"}))
    stale.chmod(0o600)
    _, found = doctor(clinic)
    stale.unlink()
    ((level, text, fix),) = found["lock"]
    assert (level, fix) == ("warning", f"start the master again, or run  rm {stale}")
    assert text.startswith("master-9.json is left of a master that is gone")

    master = clinic.pid("master")
    os.kill(master, signal.SIGSTOP)
    try:
        code, found = doctor(clinic)
    finally:
        os.kill(master, signal.SIGCONT)
    assert code == 1
    ((level, text, fix),) = found["lock"]
    assert (level, text) == ("error", f"Process {master} holds the master's lock and does not answer.")
    assert f"kill {master}" in fix


def test_9_keys_that_others_can_read(clinic: Cluster) -> None:
    key = next(iter(sorted((clinic.state / "keys").iterdir())))
    key.chmod(0o644)
    try:
        code, found = doctor(clinic)
    finally:
        key.chmod(0o600)

    assert (code, found["permissions"]) == (
        1,
        [("error", f"{key} must be readable by you alone.", f"run  chmod 600 {key}")],
    )


def test_10_an_interpreter_that_is_gone(clinic: Cluster, tmp_path: Path) -> None:
    python = tmp_path / "bin" / "python3"
    python.parent.mkdir()
    python.symlink_to(Path(sys.executable).resolve())
    packages = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    words = [
        str(python),
        "-m",
        "mgpu_agent.cli",
        "--node-id",
        "bald",
        "--fake-gpus",
        "1",
        "--master-port",
        str(clinic.port),
    ]
    clinic.start("bald", words, env={"PYTHONPATH": os.pathsep.join(packages)})
    clinic.wait_until(lambda: clinic.node_states().get("bald") == "online", "the node is online")
    with removed(clinic, "bald"):
        python.unlink()
        code, found = wait_for(clinic, "health")

        text = f"bald gets no jobs: Its Python {python} is gone, so that cells cannot run."
        assert (code, found["health"]) == (
            1,
            [("error", text, "install mgpu-jupyter there anew and restart mgpu_node")],
        )
