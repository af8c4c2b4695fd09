"""Row 8: a full disk under the database, under the logs, and under an agent; freed again, all goes on without
a restart.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from tests.chaos.result import Findings, Row
from tests.chaos.stage import WITNESS, Stage
from tests.processes import WaitedTooLong, wait_until

NODE = "n0"
OUTPUT_BYTES = 1_000_000
BULKY = "x" * 100_000  # no page that happens to be free takes this
REFUSED = (503, 507)
TRIES = 5
GOES_ON_S = 60.0
QUIET_S = 60.0
SIZES = {"database": "48m", "logs": "64m", "agent": "20m"}


def can_mount() -> bool:
    """Tell whether this process may mount a small file system."""
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
    )


def fill_disks(directory: Path, times: int, rng: random.Random) -> Findings:
    """Fill each of the three places so many times, in any order."""
    findings = Findings(figures={"database": 0, "logs": 0, "agent": 0})
    with _disks(directory) as places, Stage(directory, settings={"kill_grace_s": 2.0}) as stage:
        master = stage.warm_master(
            "--MgpuApp.kill_grace=2", "--MgpuApp.probe_after=0.5", "--MgpuApp.probe_cap=1"
        )
        stage.start_node(NODE, 4)
        for number in range(times):
            for name in rng.sample(sorted(places), len(places)):
                trial = {"database": _full_database, "logs": _full_logs, "agent": _full_agent}[name]
                statuses = trial(stage, places[name], number)
                findings.figures[name] += 1
                findings.figures[f"{name}_answers"] = dict(
                    Counter(findings.figures.get(f"{name}_answers", {})) + Counter(statuses)
                )
        stage.drain(GOES_ON_S)
        stage.survey()
        if master.poll() is not None:
            stage.problems.append("the master ended")
        with contextlib.closing(sqlite3.connect(stage.state / "mgpu.db")) as database:
            answer = database.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            stage.problems.append(f"the database is broken: {answer}")
        findings.violations = stage.judge()
        findings.figures["integrity_check"] = answer
    return findings


def _full_database(stage: Stage, place: Path, number: int) -> list[str]:
    """A submit is refused, what runs goes on, and its end is recorded when there is room again."""
    stage.submit(f"through-{number}", 1.0, gpus=1)
    with _filled(place):
        statuses = [_try_submit(stage, f"full-{number}-{attempt}", BULKY) for attempt in range(TRIES)]
        if wrong := [status for status in statuses if status not in REFUSED]:
            stage.problems.append(f"with a full database a submit was answered {wrong}")
    _goes_on(stage, f"after-{number}")
    return [str(status) for status in statuses]


def _full_logs(stage: Stage, place: Path, number: int) -> list[str]:
    """A job that talks goes on, and its output is complete when there is room again."""
    program = f"import sys; sys.stdout.write('0123456789' * {OUTPUT_BYTES // 10})"
    with _filled(place):
        status = _try_submit(stage, f"talk-{number}", "", [sys.executable, "-c", program])
        try:
            quiet = _try_submit(stage, f"quiet-{number}", "", ["sleep", "0.1"])
            wait_until(
                lambda: not list(stage.client.jobs(state="active", limit=1)), "both jobs are over", QUIET_S
            )
        except WaitedTooLong as error:
            stage.problems.append(f"with full logs, a quiet job was answered {quiet}: {error}")
    job_id = stage.acknowledged.get(f"talk-{number}")
    if status == 201 and job_id is not None:
        job = stage.client.job(job_id)
        with contextlib.suppress(WaitedTooLong):
            wait_until(lambda: len(job.output()) == OUTPUT_BYTES, "its output is complete", GOES_ON_S)
        if job.output() != "0123456789" * (OUTPUT_BYTES // 10):
            stage.problems.append(
                f"after a full log disk {len(job.output())} of {OUTPUT_BYTES} bytes were there"
            )
    elif status not in REFUSED:
        stage.problems.append(f"with full logs a submit was answered {status}")
    _goes_on(stage, f"logs-{number}")
    return [str(status)]


def _full_agent(stage: Stage, place: Path, number: int) -> list[str]:
    """Nothing can start there; the job waits and runs when there is room again."""
    with _filled(place):
        stage.submit(f"spool-{number}", 0.1, gpus=1)
        job = stage.client.job(stage.acknowledged[f"spool-{number}"])
        wait_until(lambda: job.refresh().reason_code, "the job says why it waits", 10.0)
        state = str(job.info.state)
        if state != "queued":
            stage.problems.append(f"on a full disk of the node a job was {state}")
    _goes_on(stage, f"spooled-{number}")
    return [state]


def _goes_on(stage: Stage, key: str) -> None:
    """A new job runs to its end, with the same master."""
    job = stage.submit(key, 0.05, gpus=1)
    try:
        wait_until(lambda: str(stage.client.job(job).state) == "completed", "a job runs again", GOES_ON_S)
    except WaitedTooLong as error:
        stage.problems.append(f"{key}: {error}")


def _try_submit(stage: Stage, key: str, bulk: str, command: list[str] | None = None) -> int:
    """Submit once, without the client's patience, and return the status."""
    runtime = stage.runtime()
    url = urlsplit(runtime.url)
    words = command or [sys.executable, "-IS", str(WITNESS), str(stage.witness), "0.05"]
    body = json.dumps({"command": words, "gpus": 1, "name": key, "env": {"BULK": bulk}})
    headers = {
        "Authorization": f"mgpu {runtime.token}",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    with contextlib.closing(
        http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    ) as connection:
        connection.request("POST", f"{url.path}mgpu/api/v1/jobs", body, headers)
        answer = connection.getresponse()
        told = json.loads(answer.read())
    if answer.status == 201:
        stage.write("asked", key=key, witness=command is None)
        stage.write("acknowledged", key=key, job=told["job_id"])
        stage.acknowledged[key] = told["job_id"]
    return answer.status


@contextlib.contextmanager
def _disks(directory: Path) -> Iterator[dict[str, Path]]:
    """Mount a small disk for each place: the state directory, logs and node within it."""
    state = directory / "cluster" / "state"
    places = {"database": state, "logs": state / "logs", "agent": state / "nodes" / NODE}
    mounted: list[Path] = []
    try:
        for name, path in places.items():
            for missing in reversed([path, *path.parents]):
                missing.mkdir(mode=0o700, exist_ok=True)
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", f"size={SIZES[name]},mode=0700", "mgpu-chaos", str(path)],
                check=True,
            )
            mounted.append(path)
        yield places
    finally:
        for path in reversed(mounted):
            subprocess.run(["umount", str(path)], check=True)


@contextlib.contextmanager
def _filled(place: Path) -> Iterator[None]:
    """Leave no room for a byte on the disk of `place`."""
    filler = place / "filler"
    descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    os.write(descriptor, bytes(size))
        yield
    finally:
        os.close(descriptor)
        filler.unlink()


ROWS = (Row(8, "disk full on each of three places, freed again", 1, 20, fill_disks),)
