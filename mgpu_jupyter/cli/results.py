"""`mgpu results`: the files that a job left, and bringing them here."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api import results
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import Parser


def parser(prog: str) -> Parser:
    """Return the flags."""
    about = "Show the files that a job left (mgpu_srun --results), or bring them here; each is verified by its SHA-256."
    result = Parser(prog, f"{prog} JOB [--to DIR] [--json]", about, examples=[f"{prog} R4T8W2ZB", f"{prog} R4T8W2ZB --to out"])
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    result.add_argument("--to", metavar="DIR", help="write them below this directory")
    result.add_argument("--json", action="store_true", help="print one JSON document")
    return result


def run(values: argparse.Namespace, make_client: Callable[[], Client]) -> int:
    """Show or fetch the results of one job."""
    if not values.job:
        raise InvalidRequest("usage", "Name the job, as in `mgpu results R4T8W2ZB`.")
    with make_client() as client:
        job = client.job(values.job)
        if values.to is None:
            found, written = job.results(), []
        else:
            found, written = job.wait_for_results(), job.download_results(Path(values.to))
    if values.json:
        document(found)
    elif values.to is not None:
        tell(*([str(path) for path in written] or [f"Job {job.id} left no files."]))
    else:
        tell(*lines(found))
    return 1 if any(file.problem for file in found.files) else 0


def lines(found: results.ResultList) -> Sequence[str]:
    """Return one line for each file, and for each that could not be had."""
    told = [f"{file.sha256[:12]}  {file.size:>12}  {file.node}:{printable(file.path)}{_trouble(file)}" for file in found.files]
    told += [f"not collected: {printable(problem)}" for problem in found.problems]
    if not found.complete:
        told.append("More may come: the job is not over, or its files are under way.")
    return told or [f"Job {found.job_id} left no files."]


def _trouble(file: results.Result) -> str:
    if file.problem:
        return f"  NOT HERE: {printable(file.problem)}"
    return f"  (fetched {file.tries} times)" if file.tries > 1 else ""
