"""Row 17: very many agents on one master: all join, all stay online while every one of them runs a job, none
runs one twice.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil

from tests.chaos.light import LightAgents
from tests.chaos.result import Findings, Row
from tests.chaos.stage import Stage

GPUS = 8
LOOK_S = 1.0
LIMIT_S = 240.0
MEMORY_LIMIT_BYTES = 500 * 1024 * 1024


def serve_many(directory: Path, count: int, rng: random.Random) -> Findings:
    """Let `count` agents join a real master, give each of them a job that takes all its GPUs, and watch the
    master.
    """
    with Stage(directory) as stage:
        master = psutil.Process(stage.warm_master().pid)
        before = master.memory_info().rss
        runtime = stage.runtime()
        with LightAgents(runtime, count, GPUS) as agents:
            began = time.monotonic()
            _until(agents, lambda: agents.welcome == count, stage, "all agents joined")
            joined_s = time.monotonic() - began
            cpu = sum(master.cpu_times()[:2])
            began = time.monotonic()
            ids = _submit(stage, count, rng)
            answers: list[float] = []
            _until(agents, lambda: _all_over(stage, answers), stage, "every job is over")
            ran_s = time.monotonic() - began
            cpu = sum(master.cpu_times()[:2]) - cpu
            states = Counter(stage.node_states().values())
        launches = Counter(key for agent in agents.agents for key in agent.launched)
        grown = master.memory_info().rss - before
        ends = Counter(
            (str(job.state), job.info.attempt) for job in (stage.client.job(job_id) for job_id in ids)
        )
        if states != {"online": count}:
            stage.problems.append(f"of {count} nodes these are: {dict(states)}")
        if ends != {("completed", 1): count}:
            stage.problems.append(f"of {count} jobs these are: {dict(ends)}")
        if len(launches) != count or set(launches.values()) != {1}:
            stage.problems.append(
                f"{count} jobs were launched {sum(launches.values())} times as {len(launches)} attempts"
            )
        if (idle := sum(not agent.launched for agent in agents.agents)) > 0:
            stage.problems.append(f"{idle} agents were given nothing, although each could run one job only")
        if grown > MEMORY_LIMIT_BYTES:
            stage.problems.append(f"the master grew by {grown >> 20} MiB")
        figures = {
            "agents": count,
            "joined_s": round(joined_s, 1),
            "jobs_s": round(ran_s, 1),
            "master_cpu_s": round(cpu, 1),
        }
        figures |= {"grown_mib": grown >> 20, "slowest_list_s": round(max(answers, default=0.0), 2)}
        return Findings(stage.problems, figures)


def _submit(stage: Stage, count: int, rng: random.Random) -> list[str]:
    requests = [
        {"command": ["true"], "gpus": GPUS, "name": f"job-{number}"}
        for number in rng.sample(range(count), count)
    ]
    return [job.id for job in stage.client.submit_many(requests)]


def _all_over(stage: Stage, answers: list[float]) -> bool:
    began = time.monotonic()
    is_over = not list(stage.client.jobs(state="active", limit=1))
    answers.append(time.monotonic() - began)
    return is_over


def _until(agents: LightAgents, condition: Callable[[], bool], stage: Stage, what: str) -> None:
    """Let the agents live until a condition holds, which is asked for once in a while."""
    give_up_at = time.monotonic() + LIMIT_S
    look_at = 0.0
    while time.monotonic() < give_up_at:
        agents.turn()
        if time.monotonic() >= look_at:
            if condition():
                return
            look_at = time.monotonic() + LOOK_S
    stage.problems.append(f"{LIMIT_S:.0f} s were not enough: {what}")


ROWS = (Row(17, "very many agents on one master (beyond the table)", 60, 1000, serve_many),)
