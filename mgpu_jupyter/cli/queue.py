"""`mgpu_queue`: jobs and nodes, with the headings and lines that scripts written for the earlier tool look for."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help, Parser
from mgpu_jupyter.client.words import ending, printable
from mgpu_jupyter.model.job import JobState

JSON_FIELDS = (
    *("id", "state", "user", "name", "command", "nodes", "gpus", "exit_code", "attempt"),
    *("submitted_at", "started_at", "ended_at", "reason"),
)
WATCH_S = 2.0
CLEAR = "\x1b[H\x1b[2J"


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Show the queue once, or again and again."""
    values = parser("mgpu_queue").read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    if values.json and values.watch:
        raise InvalidRequest("contradiction", "--json and --watch exclude each other: leave one out.")
    with make_client() as client:
        while True:
            jobs = [job.snapshot for job in client.jobs(state=None if values.all else "active", user=values.user) if job.snapshot]
            if values.json:
                print(as_json(jobs))
                return 0
            text = as_text(jobs, client.nodes())
            print((CLEAR if values.watch and sys.stdout.isatty() else "") + text, flush=True)
            if not values.watch:
                return 0
            time.sleep(WATCH_S)


def parser(prog: str) -> Parser:
    """Return the flags."""
    result = Parser(prog, f"{prog} [--all] [-u USER] [--json | --watch]", "Show running and waiting jobs, and the nodes.")
    add_selection(result)
    result.add_argument("--json", action="store_true", help="print one JSON document")
    result.add_argument("--watch", action="store_true", help=f"show it again every {WATCH_S:.0f} s until Ctrl-C")
    return result


def add_selection(parser: Parser) -> None:
    """Add the flags that choose jobs, which the magic has too."""
    parser.add_argument("--all", action="store_true", help="jobs that ended as well")
    parser.add_argument("-u", "--user", metavar="USER", help="only jobs of this user")


def as_json(jobs: Sequence[models.Job]) -> str:
    """Return the document of `--json`."""
    return msgspec.json.encode({"jobs": [{field: getattr(job, field) for field in JSON_FIELDS} for job in jobs]}).decode()


def as_text(jobs: Sequence[models.Job], nodes: Sequence[models.Node]) -> str:
    """Return the sections as text; running jobs in the order of their start, waiting ones in their place."""
    running = sorted((job for job in jobs if _is_under_way(job)), key=lambda job: job.started_at or job.submitted_at)
    queued = sorted((job for job in jobs if job.state is JobState.QUEUED), key=lambda job: (job.place or sys.maxsize, job.submitted_at))
    over = [job for job in jobs if job.state.is_final]
    lines = ["--- Running Jobs ---"]
    lines += [line for job in running for line in _job_lines(job)] or ["No running jobs"]
    lines += ["--- Queue ---"]
    lines += [line for job in queued for line in _job_lines(job)] or ["No queued jobs"]
    if over:
        lines += ["--- Finished Jobs ---", *(line for job in over for line in _job_lines(job))]
    lines += ["--- Cluster Status ---"]
    lines += [f"Node {node.id}: {node.state}{f' ({printable(node.reason)})' if node.reason else ''}" for node in nodes] or [
        "No node information available"
    ]
    return "\n".join(lines)


def _is_under_way(job: models.Job) -> bool:
    return job.state in (JobState.STARTING, JobState.RUNNING, JobState.STOPPING)


def _job_lines(job: models.Job) -> list[str]:
    kind = "single" if len(job.nodes) <= 1 else "multinode"
    queued = job.state is JobState.QUEUED
    lines = [
        f"ID: {job.id} | User: {printable(job.user)} | GPUs: {job.gpus} | Type: {kind}{f' | Priority: {job.priority}' if queued else ''}"
    ]
    if job.name:
        lines.append(f"  Name: {printable(job.name)}")
    lines += [f"  Nodes: {', '.join(job.nodes) or 'none yet'}", f"  CMD: {printable(job.command)}", f"  Status: {job.state}"]
    if job.state.is_final:
        lines.append(f"  End: {printable(ending(job))}")
    elif job.reason or queued:
        lines.append(f"  Reason: {printable(job.reason) or 'it is the next to be looked at'}")
    return [*lines, ""]
