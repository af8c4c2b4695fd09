"""What is measured: rates and latencies of one running cluster, and of the bare system calls beside it.
Prints nothing.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from mgpu_jupyter import Client, Job
from mgpu_jupyter.model.job import JobSpec

NO_OP = "/bin/true"
BULK = 100
THREADS = 8
LIMIT_S = 300.0


def bare_spawn_rate(count: int) -> float:
    """Return how many no-op processes a second `os.posix_spawn` starts and reaps, two at a time."""
    started = time.perf_counter()
    running = 0
    left = count
    while left or running:
        while left and running < 2:
            os.posix_spawn(NO_OP, [NO_OP], {})
            running += 1
            left -= 1
        os.waitpid(0, 0)  # of our own process group: the cluster has others
        running -= 1
    return count / (time.perf_counter() - started)


def bulk_rate(client: Client, count: int) -> float:
    """Return jobs a second, from the first request to the last end, in requests of 100."""
    specs = [_no_op() for _ in range(count)]
    started = time.perf_counter()
    jobs: list[Job] = []
    for start in range(0, count, BULK):
        jobs += client.submit_many(specs[start : start + BULK])
    wait_for_all(client, jobs)
    return count / (time.perf_counter() - started)


def threads_rate(client: Client, count: int) -> float:
    """Return jobs a second when 8 threads submit one job a request."""
    work: queue.SimpleQueue[JobSpec] = queue.SimpleQueue()
    for _ in range(count):
        work.put(_no_op())
    jobs: list[Job] = []

    def submit() -> None:
        while True:
            try:
                spec = work.get_nowait()
            except queue.Empty:
                return
            jobs.append(client.submit_spec(spec))

    started = time.perf_counter()
    threads = [threading.Thread(target=submit, daemon=True) for _ in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(jobs) == count, "a submit failed"
    wait_for_all(client, jobs)
    return count / (time.perf_counter() - started)


def one_by_one_rate(client: Client, count: int) -> float:
    """Return jobs a second when one thread sends one request after the other."""
    started = time.perf_counter()
    jobs = [client.submit_spec(_no_op()) for _ in range(count)]
    wait_for_all(client, jobs)
    return count / (time.perf_counter() - started)


def job_latencies_ms(client: Client, count: int) -> list[float]:
    """Return the times from submit to having the whole output of an `echo`."""

    def once(word: str) -> str:
        job = client.submit_spec(JobSpec(command=("echo", word), gpus=1))
        text = b""
        with job.follow() as frames:
            for frame in frames:
                text += getattr(frame, "data", b"")
                if text.endswith(b"\n"):
                    break
        return text.decode()

    return _timed(once, count)


def subprocess_latencies_ms(count: int) -> list[float]:
    """Return the times of `subprocess.check_output` of the same `echo`."""
    return _timed(lambda word: subprocess.check_output(["echo", word], text=True), count)


def wait_for_all(client: Client, jobs: Sequence[Job]) -> None:
    """Wait until all are over, and see that each was completed."""
    deadline = time.monotonic() + LIMIT_S
    while next(iter(client.jobs(state="active", limit=1)), None) is not None:
        assert time.monotonic() < deadline, f"jobs still run after {LIMIT_S:.0f} s"
        time.sleep(0.02)
    failed = [job.id for job in _sample(jobs) if job.exit_code != 0]
    assert failed == [], f"jobs failed: {failed}"


def _sample(jobs: Sequence[Job]) -> Iterable[Job]:
    return jobs[:: max(1, len(jobs) // 10)]


def _no_op() -> JobSpec:
    return JobSpec(command=(NO_OP,), gpus=1)


def _timed(action: Callable[[str], str], count: int) -> list[float]:
    times = []
    for number in range(count):
        started = time.perf_counter()
        answer = action(f"word-{number}")
        times.append((time.perf_counter() - started) * 1000)
        assert answer == f"word-{number}\n"
    return times
