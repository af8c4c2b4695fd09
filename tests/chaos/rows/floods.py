"""Row 11: jobs that write as fast as they can, beside one that prints the time."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from pathlib import Path

import psutil

from mgpu_jupyter.api.frames import OutputFrame
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Stage, now

FLOODS = 4
MOST_MEMORY_BYTES = 100 * 1024 * 1024
SLOW_MACHINE_S = 60.0  # in `make test` other work may take most of the machine
MOST_P99_S = 2.0
CAP_BYTES = 256 * 1024 * 1024
FLOOD = "import os, time\nend = time.monotonic() + {seconds}\nblock = b'x' * 65535 + b'\\n'\n"
FLOOD += "while time.monotonic() < end:\n os.write(1, block)"
BEATS = (
    "import time\nfor _ in range({count}):\n print(time.clock_gettime(time.CLOCK_BOOTTIME), "
    "flush=True)\n time.sleep(0.1)"
)


def flood(directory: Path, times: int, rng: random.Random) -> Findings:
    """Flood, and measure the master's memory and how late another job's words arrive."""
    seconds = 20 if times > 1 else 6
    figures: dict[str, object] = {"floods": times, "jobs_each": FLOODS, "seconds_each": seconds}
    grown: list[float] = []
    p99: list[float] = []
    with Stage(directory) as stage:
        master = stage.warm_master(f"--MgpuApp.output_cap={CAP_BYTES}")
        stage.start_nodes(2, FLOODS)
        process = psutil.Process(master.pid)
        for number in range(times):
            before = process.memory_info().rss
            delays, most = _one_flood(stage, process, seconds, number)
            grown.append(round((most - before) / 2**20, 1))
            p99.append(round(sorted(delays)[int(len(delays) * 0.99)], 3))
            if most - before >= MOST_MEMORY_BYTES:
                stage.problems.append(f"the master's memory grew by {grown[-1]} MB")
            if p99[-1] >= (MOST_P99_S if times > 1 else SLOW_MACHINE_S):
                stage.problems.append(f"another job's words came {p99[-1]} s late (p99)")
        stage.drain(180)
        stage.survey()
        written = sum(path.stat().st_size for path in (stage.state / "logs").rglob("*.log"))
        figures |= {
            "memory_grew_mb_most": max(grown),
            "words_late_s_p99": max(p99),
            "output_kept_mb": round(written / 2**20),
        }
        return Findings(stage.judge(), figures)


def _one_flood(stage: Stage, master: psutil.Process, seconds: int, number: int) -> tuple[list[float], int]:
    beats = _submit(stage, f"beats-{number}", BEATS.format(count=10 * seconds), "n0")
    floods = [
        _submit(stage, f"flood-{number}-{one}", FLOOD.format(seconds=seconds), "n0" if one % 2 else "n1")
        for one in range(FLOODS)
    ]
    delays: list[float] = []
    follower = threading.Thread(target=_follow, args=(stage, beats, delays))
    follower.start()
    most = 0
    deadline = time.monotonic() + seconds * 4 + 60
    jobs = {beats, *floods}
    while time.monotonic() < deadline and jobs & {
        job.id for job in stage.client.jobs(state="active", limit=100)
    }:
        with contextlib.suppress(psutil.Error):
            most = max(most, master.memory_info().rss)
        stage.look()
        time.sleep(0.2)
    follower.join(60)
    return delays or [float("inf")], most


def _submit(stage: Stage, key: str, program: str, node: str) -> str:
    stage.write("asked", key=key, witness=False)
    job = stage.client.submit(["python3", "-c", program], gpus=1, name=key, nodelist=node).id
    stage.write("acknowledged", key=key, job=job)
    stage.acknowledged[key] = job
    return job


def _follow(stage: Stage, job_id: str, delays: list[float]) -> None:
    rest = ""
    with stage.client.job(job_id).follow() as frames:
        for frame in frames:
            if isinstance(frame, OutputFrame):
                *lines, rest = (rest + frame.data.decode()).split("\n")
                delays += [now() - float(line) for line in lines]


ROWS = (Row(11, "flood: 4 jobs writing as fast as they can", 1, 10, flood),)
