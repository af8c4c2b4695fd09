"""Rows 1 and 2: masters that are killed at random moments, at every failpoint, and right after they
acknowledged a submit.
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

from mgpu_agent.protocol.failpoints import MASTER
from tests.chaos.past import make_past
from tests.chaos.result import Findings, Row
from tests.chaos.rows.provoking import PURGED, Provoker
from tests.chaos.stage import WITNESS, Busy, Stage
from tests.checker.history import read
from tests.processes import WaitedTooLong, wait_until

GPUS = 4
RANDOM_KILLS = 10
PAUSE_S = 0.15
FULL_FROM = 1000
FULL_JOBS = 21  # of each kill
FULL_PAUSE_S = 0.02
CATCH_UP_S = 5.0
CANCELLED = 0.15
CANCELLED_AFTER = 8  # submits later, so that most of them run by then
FAILPOINT_LIMIT_S = 2.0
LONG_WAY_S = 6.0  # what has to be provoked may need a job that starts, and ends
SELDOM = frozenset(
    {
        "store.setting.before",
        "store.setting.after",
        "master.enrolled",
        "master.bye",
        "master.stop",
        "server.cancel",
    }
)
ROWS_OF_PAST = 100_000
ROWS_TO_PURGE = 400
READY_LIMIT_S = 3.0
SLOW_MACHINE = 20.0  # in `make test` other work may take most of the machine
GRACE_S = 2.0
GRACE = f"--MgpuApp.kill_grace={GRACE_S}"
DRAIN_S = 180.0
LEAST_SPAN_S = 0.001


def kill_masters(directory: Path, kills: int, rng: random.Random) -> Findings:
    """Kill masters while jobs of 0.1 to 2 s are submitted, cancelled and run on 4 to 8 agents."""
    nodes = rng.randint(4, 8)
    plan = [
        *rng.sample(sorted(MASTER), len(MASTER)),
        *[""] * RANDOM_KILLS,
    ]  # a name for each kill; none for a random moment
    reached: set[str] = set()
    ready: list[float] = []
    with Stage(directory, settings={"kill_grace_s": GRACE_S}) as stage:
        make_past(stage.state, ROWS_OF_PAST)
        make_past(
            stage.state, ROWS_TO_PURGE, user=PURGED, first=ROWS_OF_PAST, since=time.time() - 2 * ROWS_OF_PAST
        )
        stage.warm_master(GRACE)
        stage.start_nodes(nodes, GPUS)
        choices = random.Random(rng.random())

        def submit(number: int) -> None:
            stage.submit(f"job-{number}", choices.uniform(0.1, 2.0), gpus=choices.choice([0, 1, 1, 2]))
            earlier = stage.acknowledged.get(f"job-{number - CANCELLED_AFTER}")
            if earlier is not None and choices.random() < CANCELLED:
                stage.client.cancel(earlier)

        is_full = kills >= FULL_FROM
        provoker = Provoker(stage)
        with Busy(stage, submit, pause_s=FULL_PAUSE_S if is_full else PAUSE_S):
            stage.kill("master")
            for number, failpoint in enumerate(itertools.islice(itertools.cycle(plan), kills)):
                if _one_life(stage, rng, failpoint, ready, FULL_JOBS * number if is_full else 0, provoker):
                    reached.add(failpoint)
            stage.fork_master(GRACE)
        provoker.close()
        stage.drain(DRAIN_S)
        stage.survey()
        runs = len(read(stage.record).runs)
        figures = {"kills": kills, "nodes": nodes, "jobs": len(stage.acknowledged), "processes": runs}
        figures |= {"ready_s_most": round(max(ready, default=0.0), 2), "failpoints_reached": len(reached)}
        figures |= {"failpoints_not_reached": sorted(MASTER.keys() - reached), "rows_of_past": ROWS_OF_PAST}
        limit_s = READY_LIMIT_S * (1.0 if is_full else SLOW_MACHINE)
        stage.problems += [f"a master was ready only after {took:.1f} s" for took in ready if took > limit_s]
        return Findings(stage.judge(), figures)


def _one_life(
    stage: Stage, rng: random.Random, failpoint: str, ready: list[float], jobs: int, provoker: Provoker
) -> bool:
    """Let a master live for a moment, at most up to a failpoint, else until so many jobs have come; tell
    whether it died there.
    """
    began = time.monotonic()
    master = stage.fork_master(GRACE, failpoints=_wish(failpoint, rng, SELDOM | provoker.places))
    if stage.wait_for_master_or_end(master):
        ready.append(time.monotonic() - began)
        if not failpoint:
            with contextlib.suppress(WaitedTooLong):
                wait_until(lambda: len(stage.acknowledged) >= jobs, f"{jobs} jobs came", CATCH_UP_S)
            time.sleep(rng.uniform(0.0, 1.0))
        elif failpoint == "master.bye":
            master.terminate()
        elif failpoint == "master.enrolled":
            stage.fork_node(f"late-{len(ready)}", 1)
        else:
            provoker.lead_to(failpoint)
        with contextlib.suppress(WaitedTooLong):
            limit_s = (
                0.0 if not failpoint else LONG_WAY_S if failpoint in provoker.places else FAILPOINT_LIMIT_S
            )
            wait_until(lambda: master.poll() is not None, f"the master dies at {failpoint}", limit_s)
    died_by_itself = master.poll() is not None
    stage.kill("master")
    return died_by_itself


def _wish(failpoint: str, rng: random.Random, seldom: frozenset[str]) -> str:
    """Return what the variable says: death at the first few times that the place is reached."""
    if failpoint in seldom:
        return f"{failpoint}=kill"
    if failpoint == "master.resync":
        return (
            f"store.batch=error:{rng.randint(1, 4)},{failpoint}=kill"  # only a turn that failed leads there
        )
    return f"{failpoint}=kill:{rng.randint(1, 4)}" if failpoint else ""


def kill_after_answers(directory: Path, kills: int, rng: random.Random) -> Findings:
    """Submit, read the answer, `kill -9` within 1 ms; when a node comes at last, every job runs once."""
    spans: list[float] = []
    with Stage(directory) as stage:
        stage.fork_master()
        for number in range(kills):
            key = f"job-{number}"
            stage.write("asked", key=key)
            runtime = wait_until(stage.runtime, "the master answers", 30)
            url = urlsplit(runtime.url)
            connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
            command = [sys.executable, "-IS", str(WITNESS), str(stage.witness), "0.01"]
            headers = {
                "Authorization": f"mgpu {runtime.token}",
                "Content-Type": "application/json",
                "Idempotency-Key": key,
            }
            connection.request(
                "POST",
                f"{url.path}mgpu/api/v1/jobs",
                json.dumps({"command": command, "gpus": 0, "name": key}),
                headers,
            )
            answer = connection.getresponse()
            body = answer.read()
            told_at = time.perf_counter()
            os.kill(runtime.pid, signal.SIGKILL)
            spans.append(time.perf_counter() - told_at)
            connection.close()
            assert answer.status == 201, (answer.status, body)
            job = json.loads(body)["job_id"]
            stage.write("acknowledged", key=key, job=job)
            stage.acknowledged[key] = job
            stage.kill("master")
            stage.fork_master()
        late = sum(span > LEAST_SPAN_S for span in spans)
        wait_until(lambda: stage.client.health().status == "ok", "the master answers", 30)
        stage.look_at_each()
        stage.start_node("n1", GPUS)
        stage.drain(DRAIN_S)
        stage.survey()
        figures = {
            "kills": kills,
            "jobs": len(stage.acknowledged),
            "killed_after_ms_most": round(max(spans) * 1e3, 3),
            "later_than_1_ms": late,
        }
        return Findings(stage.judge(), figures)


ROWS = (
    Row(1, "kill -9 of the master at random moments and at every failpoint", 30, 1000, kill_masters),
    Row(2, "acknowledged, then kill -9 within 1 ms", 100, 3000, kill_after_answers),
)
