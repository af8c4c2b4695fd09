"""Which jobs a command means, and orders about them: the same for the command line and the magics."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.model.job import JobState


def add_selection(parser: Parser) -> None:
    """Add the flags that choose jobs."""
    parser.add_argument("--all", action="store_true", help="jobs that ended as well")
    parser.add_argument("-u", "--user", metavar="USER", help="only jobs of this user")


def cancel_parser(prog: str) -> Parser:
    """Return the flags of `mgpu_cancel`."""
    examples = [f"{prog} R4T8W2ZB", f"{prog} --all", f"{prog} -u ann --name sweep"]
    result = Parser(prog, f"{prog} JOB… | --all | -u USER | --name NAME", "Cancel jobs, with all their processes.", examples=examples)
    result.add_argument("jobs", nargs="*", metavar="JOB", help="ids of jobs, or of arrays")
    result.add_argument("--all", action="store_true", help="all of your own jobs")
    result.add_argument("-u", "--user", metavar="USER", help="all jobs of this user")
    result.add_argument("--name", metavar="NAME", help="all of your own jobs of this name (with -u: of that user)")
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
    """Cancel one job; return whether it will end by that, and the line that says so."""
    try:
        answer = client.cancel(job_id)
    except MgpuError as error:
        return False, f"Cancel failed: {error.message}"
    if answer.state.is_final and answer.state is not JobState.CANCELLED:
        return False, f"Cancel failed: {_what(job_id, answer)} has ended already ({answer.state})."
    return True, f"{_what(job_id, answer)} cancelled successfully."


def _what(job_id: str, answer: models.CancelAnswer | models.OrderAnswer) -> str:
    if not answer.job_ids:
        return f"Job {job_id}"
    return f"Array {job_id} ({len(answer.job_ids)} job{'' if len(answer.job_ids) == 1 else 's'})"


def order(client: Client, job_id: str, give: Callable[[Job], models.OrderAnswer], done: str) -> tuple[bool, str]:
    """Give an order about one job or array; return whether it was taken, and the line that says so."""
    try:
        answer = give(client.handle(job_id))
    except MgpuError as error:
        return False, error.message
    return True, f"{_what(job_id, answer)} {done}."
