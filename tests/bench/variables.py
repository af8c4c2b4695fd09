"""`make bench-variables`: an array there and back by `--in/--out` in a real kernel, against the same bytes
over a bare CURVE connection.

Ours is the time of a cell with the array less that of the same cell with eight bytes; bare is the array in
frames of 1 MB to another process and, when all of it is there, back. Alternating rounds in one run, medians.
Every round has new content: what a master has seen before is not sent again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import psutil
import zmq

from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

FRAME = 1_000_000
LIMIT_S = 120.0
CELL = "%%mgpu_srun --gpus 1 --in a --out b\nb = a"


def main() -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-variables", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("bench-variables.json"))
    options = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="mgpu-bench-") as directory,
        Cluster(Path(directory) / "cluster") as cluster,
    ):
        cluster.start_master()
        cluster.start_node("n1", 2)
        with Notebook(cluster.env, cluster.directory) as notebook, bare_echo() as echo:
            check(notebook.run("%load_ext mgpu_jupyter\nimport numpy as np"))
            result = measure(cluster, notebook, echo, options.rounds, options.megabytes * 1_000_000)
    for name, value in result.items():
        print(f"{name:24} {value}")
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    return 0


def measure(cluster: Cluster, notebook: Notebook, echo: Echo, rounds: int, size: int) -> dict[str, object]:
    """Return medians of alternating rounds, each figure of each round, and how much the master's memory grew
    at most.
    """
    there_and_back(notebook, -1, 8)
    echo.seconds(size)
    bare, large, small, grown = [], [], [], []
    for number in range(rounds):
        bare.append(echo.seconds(size))
        with memory_of(cluster.pid("master")) as peak:
            large.append(there_and_back(notebook, number, size))
        grown.append(peak[0])
        small.append(there_and_back(notebook, number, 8))
    ours = statistics.median(large) - statistics.median(small)
    return {
        "bytes": size,
        "bare_s": round(statistics.median(bare), 3),
        "cell_s": round(statistics.median(large), 3),
        "small_cell_s": round(statistics.median(small), 3),
        "ours_s": round(ours, 3),
        "ratio": round(statistics.median(bare) / ours, 3),
        "server_grew_mb": round(max(grown) / 1e6, 1),
        "rounds": [[round(one, 3) for one in row] for row in zip(bare, large, small, strict=True)],
    }


def there_and_back(notebook: Notebook, seed: int, size: int) -> float:
    """Return the seconds of a cell that is given an array and leaves it."""
    check(
        notebook.run(
            f"a = np.frombuffer(np.random.default_rng({seed + 1}).bytes({size}), dtype='u1'); b = None",
            LIMIT_S,
        )
    )
    started = time.perf_counter()
    check(notebook.run(CELL, LIMIT_S))
    seconds = time.perf_counter() - started
    told = notebook.run("print(np.array_equal(a, b))", LIMIT_S)
    if told.text() != "True\n":
        raise AssertionError(f"the array came back changed: {told}")
    return seconds


def check(ran: object) -> None:
    """Fail with what a cell says."""
    if getattr(ran, "error", None) is not None:
        raise AssertionError(ran)


@contextmanager
def memory_of(pid: int) -> Iterator[list[int]]:
    """Yield a list whose one entry is by how much the memory of a process grew at most meanwhile."""
    process, over = psutil.Process(pid), threading.Event()
    before = process.memory_info().rss
    peak = [0]

    def look() -> None:
        while not over.wait(0.01):
            peak[0] = max(peak[0], process.memory_info().rss - before)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


class Echo:
    """The near end of a bare CURVE connection to a process that keeps what it gets and sends it back."""

    def __init__(self, address: str, server_key: bytes) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        public, secret = zmq.curve_keypair()
        self._socket.curve_publickey, self._socket.curve_secretkey, self._socket.curve_serverkey = (
            public,
            secret,
            server_key,
        )
        self._socket.set(zmq.SNDHWM, 0)
        self._socket.connect(address)

    def seconds(self, size: int) -> float:
        """Return how long so many bytes take there and back."""
        frames = [os.urandom(min(FRAME, size - start)) for start in range(0, size, FRAME)]
        started = time.perf_counter()
        self._socket.send(str(len(frames)).encode())
        for frame in frames:
            self._socket.send(frame, copy=False)
        back = [self._socket.recv() for _ in frames]
        seconds = time.perf_counter() - started
        assert back == frames
        return seconds

    def close(self) -> None:
        self._socket.close(0)
        self._context.term()


@contextmanager
def bare_echo() -> Iterator[Echo]:
    """Yield a bare connection to a process of its own."""
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,), daemon=True)
    process.start()
    echo = Echo(*here.recv())
    try:
        yield echo
    finally:
        echo.close()
        process.kill()
        process.join()


def _serve(told: Connection) -> None:
    socket = zmq.Context().socket(zmq.DEALER)
    public, secret = zmq.curve_keypair()
    socket.curve_server, socket.curve_publickey, socket.curve_secretkey = True, public, secret
    socket.set(zmq.SNDHWM, 0)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    told.send((f"tcp://127.0.0.1:{port}", public))
    while True:
        kept = [socket.recv() for _ in range(int(socket.recv()))]
        for frame in kept:
            socket.send(frame, copy=False)


if __name__ == "__main__":
    sys.exit(main())
