"""`mgpu purge`: retention by hand; deletes records and output of jobs that ended long ago."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.join_token import seconds
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser

DEFAULT_AGE = "30d"


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Delete the records and the output of jobs that ended long ago: your own, or for administrators those of others."
    usage = f"{prog} [--older-than {DEFAULT_AGE}] [-u USER | --all] [--dry-run] [--json]"
    result = Parser(prog, usage, about, examples=[f"{prog} --dry-run", f"{prog} --older-than 7d", f"{prog} --older-than 90d --all"])
    result.add_argument("--older-than", default=DEFAULT_AGE, metavar="T", help=f"ended so long ago, like 12h or 7d (default {DEFAULT_AGE})")
    result.add_argument("-u", "--user", metavar="USER", help="jobs of this user; for administrators")
    result.add_argument("--all", action="store_true", help="jobs of all users; for administrators")
    result.add_argument("--dry-run", action="store_true", help="only say what would be deleted")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Delete them and say how many they were."""
    if values.user is not None and values.all:
        raise InvalidRequest("contradiction", "--user and --all exclude each other: leave one out.")
    age_s = 0 if values.older_than in ("0", "0s") else seconds(values.older_than, "--older-than")
    with make_client() as client:
        answer = client.purge(age_s, user=values.user, everybody=values.all, dry_run=values.dry_run)
    if values.json:
        document(answer)
        return 0
    done = "Would delete" if values.dry_run else "Deleted"
    tell(f"{done} {answer.jobs} job{'' if answer.jobs == 1 else 's'} and {answer.output_bytes / 1e6:.1f} MB of output.")
    return 0
