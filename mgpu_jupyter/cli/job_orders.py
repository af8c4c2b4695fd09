"""Commands about existing jobs: `mgpu cancel flush hold release requeue update rerun purge`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import NamedTuple

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_agent.protocol.wording import count, size
from mgpu_jupyter.api import requests
from mgpu_jupyter.cli.command import Command, MakeClient, add_json, add_place, point_at, seconds
from mgpu_jupyter.cli.console import ShellViewer, note, report
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client import watch
from mgpu_jupyter.client.choice import cancel, cancel_parser, chosen, order
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.parser import Parser

DEFAULT_AGE = "30d"


def _cancel_parser(prog: str) -> Parser:
    """Return the flags."""
    result = cancel_parser(prog)
    add_json(result)
    add_place(result)
    return result


def _cancel(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Cancel the named jobs; return 1 if one could not be cancelled."""
    if not (values.jobs or values.all or values.user or values.name):
        tell("Usage: mgpu_cancel <job_id>, or one of --all, -u USER and --name NAME", file=sys.stderr)
        return 2
    point_at(values.host, values.port)
    with make_client() as client:
        ids = chosen(client, values)
        if not ids and not values.json:
            tell("No job to cancel: nothing that runs or waits matches.", file=sys.stderr)
        results = [(job_id, *cancel(client, job_id)) for job_id in ids]
    if values.json:
        document(
            {"jobs": [{"job_id": job_id, "done": done, "message": text} for job_id, done, text in results]}
        )
    else:
        for _, _, text in results:
            tell(text)
    return 0 if all(done for _, done, _ in results) else 1


def _flush_parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Cancel everything that runs or waits; who is no administrator, everything of their own."
    result = Parser(prog, f"{prog} [--json]", about, examples=[prog])
    add_json(result)
    add_place(result)
    return result


def _flush(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Cancel all; return 1 if one could not be cancelled."""
    point_at(values.host, values.port)
    with make_client() as client:
        me = client.cluster()
        ids = [job.id for job in client.jobs(state="active", user=None if me.admin else me.user)]
        results = [(job_id, *cancel(client, job_id)) for job_id in ids]
    # What ended by itself meanwhile is gone just the same.
    failed = [text for _, done, text in results if not done and "ended already" not in text]
    if values.json:
        document({"flushed": len(ids) - len(failed), "job_ids": ids})
    else:
        tell(f"Flushed {len(ids) - len(failed)} jobs")
        for text in failed:
            tell(text, file=sys.stderr)
    return 1 if failed else 0


Order = Callable[[Job], requests.OrderAnswer]


class OrderCommand(NamedTuple):
    """A command that gives the same order to each named job."""

    what: str
    done: str
    """What to print for a job that accepted it."""
    order_of: Callable[[argparse.Namespace], Order]
    usage: str = ""
    example: str = ""
    add_flags: Callable[[Parser], None] = lambda _: None

    def parser(self, prog: str) -> Parser:
        """Return the flags."""
        examples = [f"{prog} R4T8W2ZB{self.example}", f"{prog} R4T8W2ZB K2M9QX4D{self.example}"]
        parser = Parser(prog, f"{prog} JOB…{self.usage} [--json]", self.what, examples=examples)
        parser.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs, or of arrays")
        add_json(parser)
        self.add_flags(parser)
        return parser

    def run(self, values: argparse.Namespace, make_client: MakeClient) -> int:
        """Give the order for each id; return 1 if one was refused."""
        give = self.order_of(values)
        with make_client() as client:
            results = [
                (job_id.upper(), *order(client, job_id.upper(), give, self.done)) for job_id in values.jobs
            ]
        if values.json:
            document(
                {
                    "jobs": [
                        {"job_id": job_id, "done": taken, "message": text} for job_id, taken, text in results
                    ]
                }
            )
        else:
            for _, taken, text in results:
                tell(text, file=sys.stdout if taken else sys.stderr)
        return 0 if all(taken for _, taken, _ in results) else 1


def _update_flags(parser: Parser) -> None:
    parser.add_argument(
        "--priority", type=kinds.priority, metavar="N", help="while it waits; higher goes first"
    )
    parser.add_argument(
        "--time",
        "-t",
        type=kinds.slurm_time,
        metavar="HH:MM:SS",
        help="time limit; also D-HH:MM:SS, MM:SS or minutes",
    )
    parser.add_argument("--time-limit", type=kinds.seconds, metavar="S", help="time limit in seconds")


def _update(values: argparse.Namespace) -> Order:
    limit = values.time if values.time_limit is None else values.time_limit
    if values.priority is None and limit is None:
        raise InvalidRequest("nothing-to-change", "Say what is to change: --priority N or --time HH:MM:SS.")
    return lambda job: job.update(priority=values.priority, time_limit=limit)


def _rerun_parser(prog: str) -> Parser:
    """Return the flags."""
    about = (
        "Submit jobs once more, as they were asked for: command, resources, environment, directory. "
        "Returns at once."
    )
    result = Parser(
        prog,
        f"{prog} JOB… [--attach] [--json]",
        about,
        examples=[f"{prog} R4T8W2ZB", f"{prog} R4T8W2ZB --attach"],
    )
    result.add_argument("jobs", nargs="+", metavar="JOB", help="ids of jobs")
    result.add_argument(
        "--attach", action="store_true", help="show the (last) new job to its end; Ctrl-C cancels it"
    )
    add_json(result)
    return result


def _rerun(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Submit each again."""
    with make_client() as client:
        made = [(job_id.upper(), client.rerun(job_id)) for job_id in values.jobs]
        if values.json:
            document({"jobs": [{"of": of, "job_id": job.id} for of, job in made]})
            return 0
        for of, job in made:
            tell(f"Job submitted. ID: {job.id} (again, of {of})", flush=True)
        if not values.attach:
            return 0
        job = made[-1][1]
        viewer = ShellViewer(0, ranks=job.info.nodes_wanted)
        client.caller.on_trouble = note
        outcome = watch.watch(client, job, viewer)
        viewer.close()
        return report(outcome)


def _purge_parser(prog: str) -> Parser:
    """Return the flags."""
    about = (
        "Delete the records and the output of jobs that ended long ago: your own, or for administrators "
        "those of others."
    )
    usage = f"{prog} [--older-than {DEFAULT_AGE}] [-u USER | --all] [--dry-run] [--json]"
    result = Parser(
        prog,
        usage,
        about,
        examples=[f"{prog} --dry-run", f"{prog} --older-than 7d", f"{prog} --older-than 90d --all"],
    )
    result.add_argument(
        "--older-than",
        default=DEFAULT_AGE,
        metavar="T",
        help=f"ended so long ago, like 12h or 7d (default {DEFAULT_AGE})",
    )
    result.add_argument("-u", "--user", metavar="USER", help="jobs of this user; for administrators")
    result.add_argument("--all", action="store_true", help="jobs of all users; for administrators")
    result.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    add_json(result)
    return result


def _purge(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Delete them and print how many they were."""
    if values.user is not None and values.all:
        raise InvalidRequest("contradiction", "--user and --all exclude each other: leave one out.")
    age_s = 0 if values.older_than in ("0", "0s") else seconds(values.older_than, "--older-than")
    with make_client() as client:
        answer = client.admin.purge(age_s, user=values.user, everybody=values.all, dry_run=values.dry_run)
    if values.json:
        document(answer)
        return 0
    done = "Would delete" if values.dry_run else "Deleted"
    tell(f"{done} {count(answer.jobs, 'job')} and {size(answer.output_bytes)} of output.")
    return 0


_ALIKE = {
    "hold": OrderCommand(
        "Keep waiting jobs from starting until they are released.", "held", lambda _: Job.hold
    ),
    "release": OrderCommand("Let held jobs start.", "released", lambda _: Job.release),
    "requeue": OrderCommand(
        "End what runs of jobs; they wait again in their old place.", "queued again", lambda _: Job.requeue
    ),
    "update": OrderCommand(
        "Give jobs another priority or time limit.",
        "changed",
        _update,
        usage=" [--priority N] [--time HH:MM:SS]",
        example=" --priority 10",
        add_flags=_update_flags,
    ),
}
COMMANDS = {
    "cancel": Command(_cancel_parser, _cancel),
    "flush": Command(_flush_parser, _flush),
    "rerun": Command(_rerun_parser, _rerun),
    "purge": Command(_purge_parser, _purge),
    **{name: Command(one.parser, one.run) for name, one in _ALIKE.items()},
}
