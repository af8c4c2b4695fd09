"""The edges: two masters on one directory, databases of the future, disks that turn read-only, a laptop that
sleeps, a cold start, viewers that read nothing.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import shutil
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.store.migrations import STEPS
from tests.chaos.past import make_past
from tests.chaos.rows.clocks import Clock, ClockStage, can_preload
from tests.chaos.rows.disks import can_mount
from tests.e2e.cluster import BIN, ROOT, Cluster, bash
from tests.processes import free_port, wait_until

NEEDS_GCC = pytest.mark.skipif(
    not can_preload(), reason="There is no gcc to build what stands in front of the disk or the clock."
)
ROWS = 100_000
COLD_START_CPU_S = 3.0
A_NIGHT_S = 8 * 3600


def health(cluster: Cluster, port: int) -> dict[str, str] | None:
    """Ask a server for its health without a token's help; None while it does not answer."""
    token = (
        (cluster.state / "keys" / "token").read_text().strip()
        if (cluster.state / "keys" / "token").exists()
        else ""
    )
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.request("GET", "/mgpu/api/v1/health", headers={"Authorization": f"mgpu {token}"})
        answer = connection.getresponse()
        body = json.loads(answer.read())
        return {"status": body.get("status", body.get("code")), "message": body.get("message", "")}
    except OSError:
        return None
    finally:
        connection.close()


def start_another(cluster: Cluster, name: str, port: int) -> subprocess.Popen[bytes]:
    command = [str(BIN / "mgpu_master"), "--port", str(port), "--", "--MgpuApp.local_agent=False"]
    return cluster.start(name, command)


def test_of_two_masters_on_one_directory_one_works_and_the_other_says_so(cluster: Cluster) -> None:
    ports = {"first": cluster.port, "second": free_port()}
    for name, port in ports.items():  # at the same moment
        start_another(cluster, name, port)

    def settled() -> dict[str, str] | None:
        found = {name: health(cluster, port) for name, port in ports.items()}
        known = {name: answer["status"] for name, answer in found.items() if answer is not None}
        return (
            known if len(known) == 2 and "starting" not in known.values() and "ok" in known.values() else None
        )

    states = wait_until(settled, "one of them works and both answer", 60)
    winner = next(name for name, status in states.items() if status == "ok")
    loser = next(name for name in ports if name != winner)
    database = sqlite3.connect(cluster.state / "mgpu.db")
    epoch = database.execute("SELECT value FROM meta WHERE name = 'master_epoch'").fetchone()
    database.close()

    assert states[loser] != "ok"
    assert (
        "Another server (process" in cluster.log(loser)
        or "Another server (process" in (health(cluster, ports[loser]) or {})["message"]
    )
    assert epoch == ("1",)
    cluster.port = ports[winner]
    assert str(cluster.client.submit(["true"], gpus=0).state) == "queued"


def test_a_database_from_the_future_keeps_the_master_from_starting_and_stays_as_it_is(
    cluster: Cluster,
) -> None:
    cluster.state.mkdir(mode=0o700)
    database = sqlite3.connect(cluster.state / "mgpu.db")
    database.executescript(f"CREATE TABLE jobs (dreams TEXT); PRAGMA user_version = {len(STEPS) + 9};")
    database.close()
    (cluster.state / "mgpu.db").chmod(0o600)
    before = (cluster.state / "mgpu.db").read_bytes()
    master = start_another(cluster, "master", cluster.port)
    wait_until(
        lambda: "written by a newer mgpu" in cluster.log("master") or master.poll() is not None, "it says so"
    )

    assert (
        f"The database was written by a newer mgpu (step {len(STEPS) + 9}, known: {len(STEPS)})"
        in cluster.log("master")
    )
    assert "Traceback" not in cluster.log("master")
    assert ((cluster.state / "mgpu.db").read_bytes(), list(cluster.state.glob("mgpu.db-*"))) == (before, [])


class ReadOnlyCluster(Cluster):
    """A cluster whose master's disk can turn read-only while it runs."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        directory.mkdir(parents=True)
        self.flag = directory / "read-only"
        self._library = directory / "readonly.so"
        source = ROOT / "tests" / "chaos" / "readonly.c"
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-O1", "-o", str(self._library), str(source), "-ldl"], check=True
        )

    @property
    def disk(self) -> dict[str, str]:
        """What the master needs to see this disk."""
        return {
            "LD_PRELOAD": str(self._library),
            "MGPU_TEST_READONLY": str(self.flag),
            "MGPU_TEST_ROOT": f"{self.state}/mgpu.db",
        }


@NEEDS_GCC
def test_a_disk_that_turns_read_only_refuses_submits_and_nothing_else(tmp_path: Path) -> None:
    with ReadOnlyCluster(tmp_path / "cluster") as cluster:
        command = [str(BIN / "mgpu_master"), "--port", str(cluster.port), "--", "--MgpuApp.local_agent=False"]
        master = cluster.start("master", command, env=cluster.disk)
        cluster.wait_for_master(master)
        cluster.start_node("n1")
        go = tmp_path / "go"
        before = cluster.client.submit(bash("until [ -e {go} ]; do sleep 0.05; done", go=go), gpus=1)
        wait_until(lambda: str(before.refresh().state) == "running", "it runs")
        cluster.flag.touch()
        with pytest.raises(MgpuError) as refused:
            cluster.client.submit_spec(JobSpec(command=("true",), gpus=1), key="refused", retry_s=0.0)
        listed = [job.id for job in cluster.client.jobs()]
        cluster.flag.unlink()
        go.touch()
        after = cluster.client.submit(["true"], gpus=1)

        assert (refused.value.code, refused.value.message) == (
            "store-error",
            "The queue's database does not answer (disk I/O error): see the server's log.",
        )
        assert listed == [before.id]
        assert [str(job.wait(60).state) for job in (before, after)] == ["completed", "completed"]
        assert (master.poll(), before.info.attempt) == (None, 1)


@pytest.mark.skipif(not can_mount(), reason="Only root can mount a directory read-only.")
def test_a_master_on_a_read_only_directory_says_what_to_do(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    words = (
        f"mount --bind {state} {state} && mount -o remount,ro,bind {state} && exec "
        f"{BIN / 'mgpu_master'} --port {free_port()}"
    )
    run = subprocess.run(
        ["unshare", "-m", "sh", "-c", words],
        env={**os.environ, "MGPU_STATE_DIR": str(state)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (run.returncode, run.stderr.strip().splitlines()[-1]) == (
        2,
        f"MGPU_STATE_DIR={state} is not writable: point it at a directory of your own.",
    )
    assert "Traceback" not in run.stderr
    assert list(state.iterdir()) == []
    shutil.rmtree(state)


@NEEDS_GCC
def test_a_laptop_that_sleeps_goes_on_where_it_was(tmp_path: Path) -> None:
    """For master, agent and keeper eight hours pass at once by the clock from boot and the time of day, and
    none by what they wait for.
    """
    clock = Clock(tmp_path / "clock")
    with ClockStage(tmp_path, clock) as stage:
        stage.warm_master("--MgpuApp.on_disconnect=keep", "--MgpuApp.timeout=10")
        stage.start_nodes(2, 4)
        go = tmp_path / "go"
        waits = bash("until [ -e {go} ]; do sleep 0.05; done", go=go)
        plain = stage.client.submit(waits, gpus=1)
        limited = stage.client.submit(waits, gpus=1, time_limit=600)
        gang = stage.client.submit(waits, nodes=2, gpus_per_node=1)
        wait_until(
            lambda: all(str(job.refresh().state) == "running" for job in (plain, limited, gang)), "all run"
        )
        clock.sleep(A_NIGHT_S)
        later = stage.client.submit(["true"], gpus=1)
        wait_until(lambda: str(later.refresh().state) == "completed", "the cluster is awake")
        go.touch()
        ends = [(str(job.wait(60).state), job.info.attempt) for job in (plain, limited, gang, later)]

        assert ends == [("completed", 1)] * 4
        assert set(stage.node_states().values()) == {"online"}


@pytest.fixture(scope="module")
def long_past(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, float]]:
    """A master that was started cold on a database with a long past, and the processor time that it took
    until it answered.
    """
    with Cluster(tmp_path_factory.mktemp("past") / "cluster") as cluster:
        make_past(cluster.state, ROWS)
        cluster.start_master("--MgpuApp.follower_timeout=1")
        times = psutil.Process(cluster.pid("master")).cpu_times()
        yield cluster, times.user + times.system


def test_a_cold_master_with_a_long_past_is_ready_soon(long_past: tuple[Cluster, float]) -> None:
    cluster, took_s = long_past
    print(f"ready after {took_s:.2f} s of processor time")

    assert took_s < COLD_START_CPU_S
    assert len(list(itertools.islice(cluster.client.jobs(), 5))) == 5


def test_a_viewer_that_takes_nothing_is_cut_off_and_costs_little(long_past: tuple[Cluster, float]) -> None:
    """It asks for all changes of 100,000 jobs, about 60 MB, and reads none of them."""
    cluster, _ = long_past
    master = psutil.Process(cluster.pid("master"))
    before = master.memory_info().rss
    with socket.socket() as viewer:
        viewer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 * 1024)
        viewer.connect(("127.0.0.1", cluster.port))
        lines = [
            "GET /mgpu/api/v1/events?since=0 HTTP/1.1",
            f"Host: 127.0.0.1:{cluster.port}",
            f"Authorization: mgpu {cluster.runtime().token}",
            "Upgrade: websocket",
            "Connection: Upgrade",
            "Sec-WebSocket-Key: bm9ib2R5IHJlYWRzIHRoaXM=",
            "Sec-WebSocket-Version: 13",
        ]
        viewer.sendall("\r\n".join([*lines, "", ""]).encode())
        wait_until(
            lambda: "a reader of EventsHandler took nothing for 1 s" in cluster.log("master"),
            "it is cut off",
            60,
        )
        grown = master.memory_info().rss - before

    assert grown < 50 * 1024 * 1024
    assert cluster.client.health().status == "ok"
