"""Row 14: the master of one's own Jupyter server is away for longer than a lease, as on a laptop that was
closed; with all defaults but the lengths of time.
"""

from __future__ import annotations

import random
import subprocess
import time
from functools import partial
from pathlib import Path

from tests.chaos.result import Findings, Row
from tests.chaos.stage import Stage
from tests.checker.history import read
from tests.e2e.cluster import BIN, START_LIMIT_S
from tests.processes import wait_until

LEASE_S, GRACE_S, MARGIN_S = 1.0, 0.5, 0.5
AWAY_S = LEASE_S + GRACE_S + MARGIN_S
JOBS = 4
PLACES = "2x2"
"""Agents of the server itself, with simulated GPUs: as many as there are jobs."""


def _start_server(stage: Stage) -> float:
    """Start a Jupyter server as its user would (that this keeps jobs is its own default); return how long
    that took.
    """
    began = time.monotonic()
    traits = [
        f"--MgpuApp.lease={LEASE_S}",
        f"--MgpuApp.kill_grace={GRACE_S}",
        f"--MgpuApp.lease_margin={MARGIN_S}",
    ]
    traits += [f"--MgpuApp.simulate={PLACES}", "--MgpuApp.heartbeat_interval=0.5"]
    # Other extensions would only make its starts slower.
    others = dict.fromkeys(("jupyterlab", "jupyter_lsp", "jupyter_server_terminals", "notebook_shim"), False)
    traits += [f"--MgpuApp.link_port={stage.link_port}", f"--ServerApp.jpserver_extensions={others}"]
    jupyter = [
        "--no-browser",
        f"--port={stage.port}",
        "--ServerApp.port_retries=0",
        "--IdentityProvider.token=of-a-test",
        "--allow-root",
    ]
    program: subprocess.Popen[bytes] = stage.start(
        "master", [str(BIN / "jupyter"), "server", *jupyter, *traits]
    )
    stage.wait_for_master(program)
    return time.monotonic() - began


def leave_alone(directory: Path, times: int, rng: random.Random) -> Findings:
    """Kill the server while jobs print, and bring it back late: every job goes on, and nothing that it said
    is missing.
    """
    away: list[float] = []
    lines = 0
    with Stage(directory, settings={"kill_grace_s": GRACE_S}) as stage:
        start_s = _start_server(stage)
        for number in range(times):
            wait_until(
                lambda: list(stage.node_states().values()) == ["online", "online"],
                "both agents are online",
                START_LIMIT_S,
            )
            away_s = AWAY_S + rng.uniform(0.5, 1.5)
            # Some end while nobody is there, some after.
            lives_s = [away_s * 0.7 if one % 2 else away_s + 1.2 * start_s + 1.0 for one in range(JOBS)]
            jobs = [
                stage.submit(f"job-{number}-{one}", life_s, gpus=1, words=("talk",))
                for one, life_s in enumerate(lives_s)
            ]
            wait_until(partial(_have_begun, stage, jobs), "all jobs have begun", 60)
            time.sleep(rng.uniform(0.0, 0.5))
            stage.kill("master")
            time.sleep(away_s)
            away.append(away_s + _start_server(stage))
            stage.drain(180)
            lines += sum(_compare(stage, job) for job in jobs)
        stage.survey()
        runs = read(stage.record).runs
        figures = {
            "times": times,
            "jobs": len(stage.acknowledged),
            "processes": len(runs),
            "lease_s": LEASE_S,
        }
        figures |= {
            "away_s_least": round(min(away), 1),
            "killed": sum(run.code != 0 for run in runs),
            "lines": lines,
        }
        return Findings(stage.judge(), figures)


def _have_begun(stage: Stage, jobs: list[str]) -> bool:
    return set(jobs) <= {path.name.partition(".")[0] for path in stage.witness.iterdir()}


def _compare(stage: Stage, job: str) -> int:
    """See that a job ran once and to its end, and that all it printed is here; return how many lines that
    are.
    """
    info = stage.client.job(job).info
    if (str(info.state), info.attempt) != ("completed", 1):
        stage.problems.append(
            f"the job {job} is {info.state} with attempt {info.attempt} although it was to be left alone"
        )
    return stage.compare_output(job, 0)


ROWS = (Row(14, "master of one's own server away longer than the lease", 2, 20, leave_alone),)
