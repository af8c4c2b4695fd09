"""Starts on a rebuilt disk, and what must be found there. Every point: the master's service and the keeper's
ledger, by their own code in this process. Some points: master, agents, keepers and jobs as processes, until
all is over, judged by the ten rules.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from pathlib import Path

from mgpu_agent.keeper.host import ThisMachine
from mgpu_agent.keeper.ledger import Ledger
from mgpu_agent.keeper.messages import SPOOL_NAME, incarnation
from mgpu_agent.keeper.recovery import end_lost_tasks
from mgpu_agent.protocol.errors import MgpuError, NotFound
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.places import StatePlace
from mgpu_jupyter.model.settings import LinkSettings
from mgpu_jupyter.scheduler.model import Job, Policy
from mgpu_jupyter.server.service import Service
from mgpu_jupyter.server.wiring import ServiceSettings
from tests.chaos.power.facts import Facts
from tests.chaos.power.recording import BOOT_AFTER, BOOT_BEFORE, NODES

DATABASE = "mgpu.db"
KEYS = ("link.key",)
NODE_KEY = "keys/node.json"
UNTOUCHED = (None, "queued", "starting", "running")
LIMIT_S = 30.0


def start_master(state: Path, facts: Facts, finals: dict[str, tuple[str, int, int | None]]) -> list[str]:
    """Start a master's service here, let it take turns, stop it; return all that is wrong with what it
    knows.
    """
    if not (state / DATABASE).exists():
        return (
            [f"the database is gone, and {sorted(facts.acknowledged)} was acknowledged"]
            if facts.acknowledged
            else []
        )
    lost = [name for name in KEYS if facts.enrolled and not (state / "keys" / name).exists()]
    try:
        problems, jobs = asyncio.run(_serve(state, facts))
    except MgpuError as error:
        return [f"the master does not start: {error.message}"]
    problems += [
        f"the key {name}, by which {sorted(facts.enrolled)} know the master, is gone" for name in lost
    ]
    connection = sqlite3.connect(state / DATABASE)
    if (health := connection.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
        problems.append(f"the database is not whole: {health}")
    epoch = int((connection.execute("SELECT value FROM meta WHERE name = 'epoch'").fetchone() or (0,))[0])
    connection.close()
    return problems + _compare(facts, finals, jobs, epoch)


def answered_too_early(state: Path, facts: Facts) -> list[str]:
    """Return what was answered with 201 or 202 and is not in a database from which all that was not synced is
    gone.
    """
    with contextlib.closing(sqlite3.connect(state / DATABASE)) as connection:
        states = dict(connection.execute("SELECT id, state FROM jobs").fetchall())
    early = [
        f"job {job} was acknowledged before its row was safe"
        for job in facts.acknowledged
        if job not in states
    ]
    return early + [
        f"the cancel of job {job} was answered before it was safe"
        for job in facts.cancelled
        if states.get(job) in UNTOUCHED
    ]


async def _serve(state: Path, facts: Facts) -> tuple[list[str], dict[str, Job]]:
    settings = ServiceSettings(link=LinkSettings(cluster="power"), policy=Policy())
    service = Service(StatePlace(state), settings, url="http://127.0.0.1:1/", port=1)
    try:
        service.start()
        await asyncio.wait_for(
            service.write(lambda _: None), LIMIT_S
        )  # a turn after the recovery: it is at work
        problems, jobs = [], {}
        for job in {*facts.acknowledged, *(key[0] for key in facts.launched)}:
            try:
                jobs[job] = service.saved_job(JobId(job)).job
            except NotFound:
                problems.append(
                    f"job {job} was {'acknowledged' if job in facts.acknowledged else 'launched'}, and is "
                    f"gone"
                )
        return problems, jobs
    finally:
        service.stop()


def _compare(
    facts: Facts, finals: dict[str, tuple[str, int, int | None]], jobs: dict[str, Job], epoch: int
) -> list[str]:
    problems = []
    for job_id, attempt, launched in sorted(facts.launched):
        if launched > epoch:
            problems.append(f"job {job_id} was launched with epoch {launched}, and the counter is at {epoch}")
        job = jobs.get(job_id)
        if job is not None and (job.attempt, job.epoch) < (attempt, launched):
            problems.append(
                f"attempt {attempt} of job {job_id} was launched with epoch {launched}, and the row says "
                f"{job.attempt}, {job.epoch}"
            )
    for (job_id, attempt, epoch_), nodes in sorted(facts.forgotten.items()):
        job = jobs.get(job_id)
        is_current = (
            job is not None and not job.state.is_final and (job.attempt, job.epoch) == (attempt, epoch_)
        )
        if (
            job is not None
            and is_current
            and nodes.issuperset(placement.node_id for placement in job.placements)
        ):
            problems.append(
                f"a node let go of attempt {attempt} of job {job_id}, and its end is gone: {job.state}"
            )
    for job_id in sorted(facts.cancelled):
        job = jobs.get(job_id)
        if job is not None and not job.state.is_final and job.state != "stopping":
            problems.append(f"the cancel of job {job_id} was answered, and it is {job.state}")
    for job_id, final in finals.items():
        job = jobs.get(job_id)
        if job is not None and (str(job.state), job.attempt, job.exit_code) != final:
            problems.append(
                f"job {job_id} was told as {final}, and is {(str(job.state), job.attempt, job.exit_code)}"
            )
    return problems


def start_ledgers(state: Path, facts: Facts) -> list[str]:
    """Open each node's ledger as the first keeper after a boot does; nothing from before may count as running
    or be carried out.
    """
    problems = []
    for node in NODES:
        directory = state / "nodes" / node
        if node in facts.enrolled and not (directory / NODE_KEY).exists():
            problems.append(f"the key by which the master knows {node} is gone")
        if not directory.exists():
            continue
        ledger = Ledger(directory / "ledger", BOOT_AFTER)
        known = {key for key, _ in ledger.tasks}
        end_lost_tasks(ledger, ThisMachine(directory / SPOOL_NAME), "lost")
        if left := ledger.unfinished():
            problems.append(f"{node} still counts {left} as running after a boot")
        if incarnation(ledger.boot_id, ledger.ledger_id) == incarnation(BOOT_BEFORE, ledger.ledger_id):
            problems.append(f"{node} would carry out launches from before its boot")
        problems += [f"{node} would start {key} again" for key in known if not _refuses(ledger, key)]
        ledger.close()
        again = Ledger(directory / "ledger", BOOT_AFTER)  # what it wrote must be readable
        if again.unfinished() or {key for key, _ in again.tasks} != known:
            problems.append(f"{node} lost part of its ledger by its own start")
        again.close()
    return problems


def _refuses(ledger: Ledger, key: AttemptKey) -> bool:
    return bool(ledger.known(key)) or ledger.refusal(key) is not None
