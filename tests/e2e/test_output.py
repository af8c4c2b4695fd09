"""Issue 3, row 4: output at any rate. A flood arrives whole or cut with a marker, and disturbs neither the
server nor its neighbours.
"""

from __future__ import annotations

import hashlib
import http.client
import socket
import threading
import time
from pathlib import Path

import psutil

from mgpu_jupyter.api.frames import OutputFrame
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.store.logs import cut_marker
from tests.e2e.cluster import Cluster, bash

MB = 1_000_000
FLOOD_BYTES = 200 * MB
GROWTH_BYTES = 64 * MB
LEAST_LINES = 5
SLOW_BYTES_PER_S = 1 * MB

# Bytes of all kinds, no newline for 100 MB, then short lines; the same bytes can be made here.
FLOOD = """
import os, sys
block = bytes(range(256)).replace(b"\\n", b"\\r") * 4096
left = 100_000_000
while left:
    left -= os.write(1, block[:left])
line = b"a short line \\xff\\xfe\\n"
block = line * 50_000
left = 100_000_000
while left:
    left -= os.write(1, block[:left])
"""


def flood_hash() -> str:
    digest = hashlib.sha256()
    for block in (bytes(range(256)).replace(b"\n", b"\r") * 4096, b"a short line \xff\xfe\n" * 50_000):
        whole, rest = divmod(FLOOD_BYTES // 2, len(block))
        for _ in range(whole):
            digest.update(block)
        digest.update(block[:rest])
    return digest.hexdigest()


class Neighbour:
    """Follows a job that prints a number as soon as the one before has arrived, and counts."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        script = (
            "n=0; until [ -e {place}/stop ]; do "
            "if [ -e {place}/$n ]; then echo $n; n=$((n + 1)); else sleep 0.01; fi; done"
        )
        self._place = place
        self.arrived = 0
        (place / "0").touch()
        self.job = cluster.client.submit(bash(script, place=place), gpus=1, name="neighbour")
        self._thread = threading.Thread(target=self._follow)
        self._thread.start()

    def _follow(self) -> None:
        with self.job.follow() as frames:
            for frame in frames:
                if isinstance(frame, OutputFrame):
                    self.arrived += frame.data.count(b"\n")
                    (self._place / str(self.arrived)).touch()

    def end(self) -> None:
        (self._place / "stop").touch()
        self._thread.join(60)


class SlowReader:
    """A raw socket that asks for frames and takes about 1 MB/s of them, or nothing at all."""

    def __init__(self, cluster: Cluster, job_id: str, bytes_per_s: int) -> None:
        self.received = 0
        self.ended_at: float | None = None
        self._rate = bytes_per_s
        self._stop = threading.Event()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        self._socket.connect(("127.0.0.1", cluster.port))
        path = f"/{PREFIX}/jobs/{job_id}/output?follow=1"
        token = cluster.runtime().token
        request = (
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{cluster.port}\r\nAuthorization: mgpu {token}\r\n\r\n"
        )
        self._socket.sendall(request.encode())
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        self._socket.settimeout(0.5)
        while not self._stop.wait(0.05):
            if not self._rate:
                continue
            try:
                data = self._socket.recv(self._rate // 20)
            except TimeoutError:
                continue
            except OSError:
                data = b""
            if not data:
                self.ended_at = time.monotonic()
                return
            self.received += len(data)

    def close(self) -> None:
        self._stop.set()
        self._thread.join()
        self._socket.close()


def rss(cluster: Cluster) -> int:
    return int(psutil.Process(cluster.pid("master")).memory_info().rss)


def hash_of(cluster: Cluster, job_id: str) -> tuple[int, str]:
    """Read a job's output to its end and return its size and hash."""
    digest, size = hashlib.sha256(), 0
    with cluster.client.job(job_id).follow() as frames:
        for frame in frames:
            if isinstance(frame, OutputFrame):
                assert frame.offset == size
                digest.update(frame.data)
                size += len(frame.data)
    return size, digest.hexdigest()


def test_a_flood_arrives_unaltered_while_everything_else_goes_on(two_nodes: Cluster, tmp_path: Path) -> None:
    """200 MB as fast as a job can write them, with a neighbour on the same node, a slow reader and one that
    takes nothing.
    """
    two_nodes.client.submit(["true"], gpus=1).wait(60).output()
    before = rss(two_nodes)
    neighbour = Neighbour(two_nodes, tmp_path)
    two_nodes.wait_until(lambda: neighbour.arrived, "the neighbour prints")
    began = time.monotonic()
    flood = two_nodes.client.submit(["python3", "-c", FLOOD], gpus=1, name="flood")
    two_nodes.wait_until(lambda: flood.state == "running", "the flood runs")
    arrived_before = neighbour.arrived
    readers = [SlowReader(two_nodes, flood.id, rate) for rate in (SLOW_BYTES_PER_S, 0)]
    peak = before
    try:
        result: list[tuple[int, str]] = []
        fast = threading.Thread(target=lambda: result.append(hash_of(two_nodes, flood.id)))
        fast.start()
        while fast.is_alive():
            fast.join(0.05)
            peak = max(peak, rss(two_nodes))
        took_s = time.monotonic() - began
        slow_bytes, arrived = readers[0].received, neighbour.arrived - arrived_before
    finally:
        neighbour.end()
        for reader in readers:
            reader.close()
    print(
        f"{took_s:.1f} s, memory +{(peak - before) / MB:.0f} MB, {arrived} lines of the neighbour, "
        f"slow {slow_bytes / MB:.1f} MB"
    )

    assert result == [(FLOOD_BYTES, flood_hash())]
    assert peak - before < GROWTH_BYTES
    # Each line of the neighbour came all the way before the next was printed: one that had to wait for the
    # flood would not get so far before that is over.
    assert arrived >= LEAST_LINES
    assert 0 < slow_bytes < 3 * SLOW_BYTES_PER_S * took_s
    assert flood.wait(60).state == "completed"


def test_a_cap_is_marked_the_job_goes_on_and_the_node_keeps_nothing(cluster: Cluster, tmp_path: Path) -> None:
    cap = 3 * MB
    cluster.start_master(f"--MgpuApp.output_cap={cap}")
    cluster.start_node("n1")
    go = tmp_path / "go"
    script = (
        "head -c 60000000 /dev/zero | tr '\\0' 'x'; echo >&2 unseen; touch {go}.wrote; while [ ! -e "
        "{go} ]; do sleep 0.05; done; exit 3"
    )
    job = cluster.client.submit(bash(script, go=go), gpus=1)
    stalled = SlowReader(cluster, job.id, 0)
    expected = b"x" * cap + cut_marker(cap)
    try:
        spool = cluster.state / "nodes" / "n1" / "spool"
        cluster.wait_until(Path(f"{go}.wrote").exists, "the job wrote everything")
        cluster.wait_until(
            lambda: sum(path.stat().st_blocks * 512 for path in spool.glob("*.out")) < 20 * MB,
            "the spool gave it back",
        )
        assert sum(path.stat().st_size for path in spool.glob("*.out")) == 60 * MB
        restarted = _restart(cluster, cap)
        assert restarted == expected.decode()
    finally:
        stalled.close()
    go.touch()
    ended = job.wait(60)

    assert (str(ended.state), ended.exit_code, ended.output()) == ("failed", 3, expected.decode())
    assert sum(path.stat().st_size for path in (cluster.state / "logs").rglob("*.log")) == len(expected)


def _restart(cluster: Cluster, cap: int) -> str:
    """Start the master anew: it knows from the file that the output was cut."""
    (job,) = cluster.client.jobs()
    cluster.kill("master")
    cluster.start_master(f"--MgpuApp.output_cap={cap}")
    cluster.wait_until(lambda: cluster.node_states() == {"n1": "online"}, "the node is back")
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=120)
    token = cluster.runtime().token
    connection.request(
        "GET", f"/{PREFIX}/jobs/{job.id}/output?limit={64 << 20}", headers={"Authorization": f"mgpu {token}"}
    )
    text = connection.getresponse().read().decode()
    connection.close()
    return text


def test_a_reader_that_takes_nothing_is_cut_off(cluster: Cluster) -> None:
    cluster.start_master("--MgpuApp.follower_timeout=1")
    cluster.start_node("n1")
    job = cluster.client.submit(bash("head -c 20000000 /dev/zero; sleep 60"), gpus=1)
    reader = SlowReader(cluster, job.id, 0)
    try:
        cluster.wait_until(
            lambda: "took nothing for 1 s and was cut off" in cluster.log("master"), "the log says so"
        )
    finally:
        reader.close()
    job.cancel()


LINES = 100_000  # ten seconds' worth of 10,000 a second, as fast as they come


def test_many_short_lines_of_both_streams_from_many_ranks(two_nodes: Cluster) -> None:
    script = (
        f"import sys\nfor n in range({LINES // 4}): print(n, flush=n % 10 == 0); print(n, file=sys.stderr)"
    )
    job = two_nodes.client.submit(["python3", "-c", script], nodes=2, gpus_per_node=1)
    streams: dict[tuple[int, str], bytes] = {}
    with job.follow() as frames:
        for frame in frames:
            if isinstance(frame, OutputFrame):
                place = (frame.rank, frame.stream)
                streams[place] = streams.get(place, b"") + frame.data

    expected = "".join(f"{number}\n" for number in range(LINES // 4)).encode()
    assert streams == {(rank, stream): expected for rank in (0, 1) for stream in ("stdout", "stderr")}
