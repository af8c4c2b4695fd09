"""Selects the jobs of a command, and gives orders about them: shared by the command line and the magics."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.api import models, requests
from mgpu_jupyter.client import slurm, squeue
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.client import Client, job_id_of
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.model.job import JobState


def add_selection(parser: Parser) -> None:
    """Add the flags that choose jobs."""
    parser.add_argument("--all", action="store_true", help="jobs that ended as well")
    parser.add_argument("-u", "--user", metavar="USER", help="only jobs of this user")
    parser.add_argument("--me", action="store_true", help="only your own jobs")
    parser.add_argument(
        "-j", "--jobs", metavar="ID,…", help="only these jobs or arrays, those that ended as well"
    )
    parser.add_argument(
        "-t", "--states", metavar="STATES", help="only these states, like queued,running or PD,R; all for all"
    )
    parser.add_argument("-p", "--partition", metavar="NAMES", help="only jobs of these partitions")
    parser.add_argument("-w", "--nodelist", metavar="NODES", help="only jobs on these, like n[1-2]")
    parser.add_argument("-n", "--name", metavar="NAMES", help="only jobs of these names")


def selected(client: Client, values: argparse.Namespace) -> list[models.Job]:
    """Return the jobs that the flags of `add_selection` choose, newest first."""
    if values.me and values.user is not None:
        raise InvalidRequest("contradiction", "--me and -u exclude each other: leave one out.")
    wanted = tuple(map(job_id_of, kinds.names(values.jobs))) if values.jobs is not None else ()
    if values.jobs is not None and not wanted:
        raise InvalidRequest("usage", "-j names no job: write it like -j R4T8W2ZB,A1B2C3D4.")
    state: str | tuple[str, ...] | None = "active"
    if values.states is not None:
        state = squeue.states(values.states)
    elif values.all or wanted:
        state = None
    user = client.cluster().user if values.me else values.user
    found = [job.snapshot for job in client.jobs(state=state, user=user) if job.snapshot]
    if wanted:
        found = [job for job in found if job.id in wanted or job.array_id in wanted]
    for given, told in (
        (values.partition, lambda job: (job.partition,)),
        (values.nodelist, lambda job: job.nodes),
        (values.name, lambda job: (job.name,)),
    ):
        if given is not None:
            kept = set(kinds.names(slurm.names(given) if given is values.nodelist else given))
            found = [job for job in found if kept.intersection(told(job))]
    return found


def cancel_parser(prog: str) -> Parser:
    """Return the flags of `mgpu_cancel`."""
    examples = [f"{prog} R4T8W2ZB", f"{prog} --all", f"{prog} -u ann --name sweep"]
    result = Parser(
        prog,
        f"{prog} JOB… | --all | -u USER | --name NAME",
        "Cancel jobs, with all their processes.",
        examples=examples,
    )
    result.add_argument("jobs", nargs="*", metavar="JOB", help="ids of jobs, or of arrays")
    result.add_argument("--all", action="store_true", help="all of your own jobs")
    result.add_argument("-u", "--user", metavar="USER", help="all jobs of this user")
    result.add_argument(
        "--name", metavar="NAME", help="all of your own jobs of this name (with -u: of that user)"
    )
    return result


def chosen(client: Client, values: argparse.Namespace) -> list[str]:
    """Return the ids that the flags name."""
    by_rule = values.all or values.user is not None or values.name is not None
    if bool(values.jobs) == bool(by_rule):
        raise InvalidRequest("usage", "Usage: mgpu_cancel JOB…, or one of --all, -u USER and --name NAME.")
    if values.jobs:
        return [str(job_id).upper() for job_id in values.jobs]
    user = values.user if values.user is not None else client.cluster().user
    return [job.id for job in client.jobs(state="active", user=user, name=values.name)]


def cancel(client: Client, job_id: str) -> tuple[bool, str]:
    """Cancel one job; return whether that will end it, and the line that says so."""
    try:
        answer = client.cancel(job_id)
    except MgpuError as error:
        return False, f"Cancel failed: {error.message}"
    if answer.state.is_final and answer.state is not JobState.CANCELLED:
        return False, f"Cancel failed: {_what(job_id, answer)} has ended already ({answer.state})."
    return True, f"{_what(job_id, answer)} cancelled successfully."


def _what(job_id: str, answer: requests.CancelAnswer | requests.OrderAnswer) -> str:
    if not answer.job_ids:
        return f"Job {job_id}"
    return f"Array {job_id} ({len(answer.job_ids)} job{'' if len(answer.job_ids) == 1 else 's'})"


def order(
    client: Client, job_id: str, give: Callable[[Job], requests.OrderAnswer], done: str
) -> tuple[bool, str]:
    """Give an order about one job or array; return whether it was accepted, and the line that says so."""
    try:
        answer = give(client.handle(job_id))
    except MgpuError as error:
        return False, error.message
    return True, f"{_what(job_id, answer)} {done}."
