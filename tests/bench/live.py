"""`make bench-live`: what live figures cost: bytes for each kind of frame, CPU of the server with and without
readers, CPU of a kernel.

A real master with agents that speak the real protocol and start no process, one reading of every GPU a
second, and jobs that wait. The kernel's figures are those of the model behind `client/live.py`, fed with the
frames that came. No thresholds on times; the small form, which is part of `make test`, checks sizes: an
update is as large as what changed.
"""

from __future__ import annotations

import argparse
import json
import random
import select
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
from msgspec.structs import replace

from mgpu_agent.protocol.messages import Heartbeat
from mgpu_agent.protocol.model import GpuInfo, GpuSample
from mgpu_jupyter import Client
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import EventFrame
from mgpu_jupyter.client.live import LiveState, mirror_of
from mgpu_jupyter.client.live_view import Model
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.client.websocket import WebSocket
from mgpu_jupyter.model.job import JobSpec
from tests.chaos.light import LightAgent, LightAgents
from tests.e2e.cluster import Cluster

GPUS = 8
MAX_BYTES_PER_GPU = 40
MAX_BYTES_PER_START = 600


def reading(gpu: GpuInfo, load: float) -> GpuSample:
    """Return what a GPU with this load tells."""
    return GpuSample(
        uuid=gpu.uuid,
        utilisation_percent=round(load, 1),
        memory_used_bytes=int(gpu.memory_bytes * load / 100),
        temperature_c=40 + load / 3,
        power_w=100 + 4 * load,
    )


def readings(seed: int):
    """Return what gives heartbeats readings that move."""
    draw = random.Random(seed)
    busy: defaultdict[str, float] = defaultdict(lambda: draw.uniform(0, 100))

    def read(agent: LightAgent, beat: Heartbeat) -> Heartbeat:
        samples = []
        for gpu in agent.facts.gpus:
            busy[gpu.uuid] = load = min(100.0, max(0.0, busy[gpu.uuid] + draw.gauss(0, 4)))
            samples.append(reading(gpu, load))
        return replace(
            beat,
            samples=tuple(samples),
            cpu_percent=draw.uniform(5, 90),
            memory_available_bytes=draw.randrange(1 << 38),
        )

    return read


@contextmanager
def turning(agents: LightAgents) -> Iterator[None]:
    """Let agents live in a thread of their own."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.is_set():
            agents.turn()

    thread = threading.Thread(target=run, name="light-agents")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


class Watcher:
    """Reads the events of a server and keeps the frames."""

    def __init__(self, client: Client, query: dict[str, str]) -> None:
        status, body, socket = client.caller.transport.upgrade(Request(path="events", query=query))
        assert socket is not None, (status, body)
        self.socket: WebSocket = socket
        self.frames: list[bytes] = []

    def read(self, seconds: float) -> list[bytes]:
        """Return the frames of this long."""
        until, found = time.monotonic() + seconds, []
        while (left := until - time.monotonic()) > 0:
            if self.socket.has_data or select.select([self.socket], [], [], left)[0]:
                found += self.socket.receive() or []
        self.frames += found
        return found


def cpu_share(pid: int, seconds: float, watchers: list[Watcher]) -> tuple[float, list[list[bytes]]]:
    """Return how much of a core the server took meanwhile, and what the watchers read."""
    process = psutil.Process(pid)
    before, begun = sum(process.cpu_times()[:2]), time.monotonic()
    found: list[list[bytes]] = [[] for _ in watchers]
    threads = [
        threading.Thread(target=lambda index=index, one=one: found[index].extend(one.read(seconds)))
        for index, one in enumerate(watchers)
    ]
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    for thread in threads:
        thread.join()
    return (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - begun), found


def by_kind(frames: list[bytes]) -> dict[str, dict[str, float]]:
    """Return how many frames and bytes there were of each kind."""
    counts, sizes = Counter[str](), Counter[str]()
    for frame in frames:
        kind = msgspec.json.decode(frame, type=dict[str, msgspec.Raw])["type"]
        name = msgspec.json.decode(kind, type=str)
        counts[name] += 1
        sizes[name] += len(frame)
    return {name: {"frames": counts[name], "bytes": sizes[name]} for name in sorted(counts)}


def kernel_costs_ms(
    snapshot: tuple[models.Cluster, tuple[models.Node, ...], list[models.Job]], frames: list[bytes]
) -> list[float]:
    """Return what each frame costs a kernel: decode, apply, view."""
    model, decoder = Model(), msgspec.json.Decoder(EventFrame)
    model.begin(*snapshot)
    model.view(LiveState.LIVE)
    costs = []
    for frame in frames:
        begun = time.thread_time()
        model.take(decoder.decode(frame))
        if model.take_changes():
            model.view(LiveState.LIVE)
        costs.append(1000 * (time.thread_time() - begun))
    return costs


def measure(cluster: Cluster, nodes: int, jobs: int, seconds: float, readers: int) -> dict[str, object]:
    """Return all figures."""
    client = cluster.client
    runtime = cluster.start_master("--MgpuApp.heartbeat_interval=1")
    pid = cluster.pid("master")
    with LightAgents(runtime, nodes, GPUS, runs_s=86_400.0, read=readings(7)) as agents, turning(agents):
        cluster.wait_until(lambda: agents.welcome == nodes, "all agents are welcome", 120)
        holders = client.submit_many(
            [JobSpec(command=("true",), gpus=GPUS, name=f"holder-{number}") for number in range(nodes)]
        )
        cluster.wait_until(lambda: client.cluster().jobs.get("running") == nodes, "all GPUs are held", 120)
        client.submit_many(
            [
                JobSpec(command=("true",), gpus=1 + number % GPUS, name=f"job-{number}")
                for number in range(jobs)
            ]
        )
        idle, _ = cpu_share(pid, seconds, [])
        with mirror_of(client).reader(per_second=10.0) as reader:
            begun = time.monotonic()
            cluster.wait_until(
                lambda: reader.view.state is LiveState.LIVE and len(reader.view.queue) == jobs,
                "the mirror is live",
                60,
            )
            first_paint_s = time.monotonic() - begun
            view = reader.view
        assert view.cluster is not None
        query = {"since": str(client.cluster().seq), "samples": "1", "queue": "1"}
        watchers = [Watcher(client, query)]
        watchers[0].read(3.0)
        one, (frames,) = cpu_share(pid, seconds, watchers)
        holders[0].cancel()
        changed = watchers[0].read(5.0)
        watchers += [Watcher(client, query) for _ in range(readers - 1)]
        for watcher in watchers:
            watcher.read(1.0)
        many, _ = cpu_share(pid, seconds, watchers)
        old = Watcher(client, {"since": query["since"]})
        old.read(1.0)
        plain = old.read(seconds)
        for watcher in (*watchers, old):
            watcher.socket.close()
        costs = kernel_costs_ms(
            (view.cluster, tuple(view.nodes.values()), list(view.jobs.values())), watchers[0].frames
        )
    return {
        "nodes": nodes,
        "gpus": nodes * GPUS,
        "jobs": jobs,
        "seconds": seconds,
        "server_cpu_percent": {
            "no reader": 100 * idle,
            "1 reader": 100 * one,
            f"{readers} readers": 100 * many,
        },
        "live_frames": by_kind(frames),
        "frames_when_a_job_is_cancelled": by_kind(changed),
        "frames_without_samples": by_kind(plain),
        "kernel_ms": {"median": statistics.median(costs), "max": max(costs)},
        "first_paint_s": first_paint_s,
        "largest_queue_difference": max(
            (len(frame) for frame in changed if b'"type":"queue"' in frame), default=0
        ),
    }


def check(result: dict[str, object]) -> None:
    """See that updates are as large as what changed."""
    frames: dict[str, dict[str, float]] = result["live_frames"]  # type: ignore[assignment]
    samples = frames["samples"]
    assert samples["bytes"] / samples["frames"] <= MAX_BYTES_PER_GPU * int(str(result["gpus"])), frames
    assert "node" not in frames, frames
    assert 0 < int(str(result["largest_queue_difference"])) <= MAX_BYTES_PER_START + 60 * GPUS, result


def main() -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-live", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--small", action="store_true", help="a quick run that checks sizes")
    parser.add_argument("--out", type=Path, default=Path("bench-live.json"))
    options = parser.parse_args()
    nodes, jobs, seconds, readers = (10, 300, 3.0, 2) if options.small else (100, 5_000, 20.0, 10)
    with (
        tempfile.TemporaryDirectory(prefix="mgpu-bench-live-") as directory,
        Cluster(Path(directory) / "cluster") as cluster,
    ):
        result = measure(cluster, nodes, jobs, seconds, readers)
    check(result)
    print(json.dumps(result, indent=2, default=lambda value: round(value, 3)))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"Written to {options.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
