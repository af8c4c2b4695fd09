"""Commands that show one job: `mgpu explain`, `trace`, `summary`, `logs`, `results` and `attach`."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.text import printable, tell
from mgpu_jupyter.api import files
from mgpu_jupyter.cli.command import EXAMPLE_JOB, Command, MakeClient, add_json
from mgpu_jupyter.cli.console import INTERRUPT_EXIT, ShellConsole, ShellViewer, note, report, say_how_to_leave
from mgpu_jupyter.cli.show import document
from mgpu_jupyter.client import reasons, reports, watch
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.job import rank_count
from mgpu_jupyter.client.parser import Parser

ALWAYS_VERIFIES = "debug_job_tracking"
MISMATCH_EXIT = 1


def _parser(prog: str, flags: str, about: str, *examples: str) -> Parser:
    """Return a parser with the job; `examples` follow the name of the program."""
    shown = [f"{prog} {words}" for words in examples or (EXAMPLE_JOB,)]
    result = Parser(prog, f"{prog} JOB {flags}", about, examples=shown)
    result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    return result


def _job_of(values: argparse.Namespace, command: str) -> str:
    if not values.job:
        raise InvalidRequest("usage", f"Name the job, as in `mgpu {command} {EXAMPLE_JOB}`.")
    return str(values.job)


# --- explain ------------------------------------------------------------------------------------------


def _explain_parser(prog: str) -> Parser:
    about = "Say why a job waits, what would start it now, and what it was told before."
    result = _parser(prog, "[--json]", about)
    add_json(result)
    return result


def _explain(values: argparse.Namespace, make_client: MakeClient) -> int:
    job_id = _job_of(values, "explain")
    with make_client() as client:
        told = client.explain(job_id)
    if values.json:
        document(told)
    else:
        tell(*reasons.as_lines(told, time.time()))
    return 0


# --- trace --------------------------------------------------------------------------------------------


def _trace_parser(prog: str) -> Parser:
    """Return the flags; the program of the earlier tools always verifies."""
    about = "Show the whole way of a job: when, where, by which process, and what it waited for."
    result = _parser(prog, "[--verify] [--json]", about, EXAMPLE_JOB, f"--verify {EXAMPLE_JOB}")
    result.add_argument(
        "--verify",
        action="store_true",
        default=prog == ALWAYS_VERIFIES,
        help="compare what was assigned with what is there now; exit 1 if it differs",
    )
    add_json(result)
    return result


def _trace(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Show the trace of one job; with verification, exit 1 on a mismatch."""
    job_id = _job_of(values, "trace")
    with make_client() as client:
        told = client.trace(job_id, verify=values.verify)
    if values.json:
        document(told)
    else:
        tell(*reports.trace_lines(told))
    if told.ok:
        return 0
    wrong = len(told.mismatches) + sum(not check.ok for check in told.checks)
    text = f"job {told.job_id} ran otherwise than was assigned, in {wrong} ways; see above."
    tell(f"{reports.MISMATCH}: {text}", file=sys.stderr)
    return MISMATCH_EXIT if values.verify else 0


# --- summary ------------------------------------------------------------------------------------------


def _summary_parser(prog: str) -> Parser:
    about = "Say what a job asked for, had and used: times, nodes, GPUs, exit codes, memory and load."
    result = _parser(prog, "[--json]", about)
    add_json(result)
    return result


def _summary(values: argparse.Namespace, make_client: MakeClient) -> int:
    job_id = _job_of(values, "summary")
    with make_client() as client:
        told = client.job(job_id).summary()
    if values.json:
        document(told)
    else:
        tell(*reports.summary_lines(told))
    return 0


# --- logs and attach ----------------------------------------------------------------------------------


def _logs_parser(prog: str) -> Parser:
    about = "Show what a job printed."
    result = _parser(prog, "[--rank R] [-f]", about, EXAMPLE_JOB, f"{EXAMPLE_JOB} --rank 1 -f")
    result.add_argument("--rank", type=kinds.count("--rank"), metavar="R", help="only this rank")
    result.add_argument("-f", "--follow", action="store_true", help="go on until the job is over")
    return result


def _logs(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Show the output of one job; both of its streams go to stdout, in the order of the record."""
    job_id = _job_of(values, "logs")
    rank = values.rank
    with make_client() as client:
        job = client.job(job_id)
        ranks = 1 if rank is not None else rank_count(job.info)
        if values.follow:
            viewer = ShellViewer(0, ranks, err=sys.stdout.buffer)
            with job.follow(rank=rank) as frames:
                watch.show(frames, viewer)
            viewer.close()
        elif ranks > 1:
            sys.stdout.write(job.output())
        else:
            sys.stdout.buffer.write(job.output_bytes(rank or 0))
            sys.stdout.buffer.flush()
    return 0


def _attach_parser(prog: str) -> Parser:
    about = (
        "Show a job's output from its start and go on live; what is typed goes to it. Ctrl-C (in a "
        "terminal: Enter ~ .) lets go of it."
    )
    result = _parser(prog, "[--rank R]", about)
    result.add_argument("--rank", type=kinds.count("--rank"), metavar="R", help="only this rank")
    return result


def _attach(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Show the job to its end and return its exit code; leaving does not end it."""
    job_id = _job_of(values, "attach")
    with make_client() as client:
        client.caller.on_trouble = note
        job = client.job(job_id)
        info = job.info
        console = ShellConsole(pty=info.pty, only_typed=True)
        ranks = 1 if values.rank is not None else max(rank_count(info), info.nodes_wanted)
        viewer = ShellViewer(info.priority, ranks=ranks, console=console)
        if info.pty and not info.state.is_final:
            say_how_to_leave()
        outcome = watch.attach(job, viewer, console, values.rank)
        viewer.close()
        if outcome.detached and not console.detached:
            note(
                f"Job {job.id} goes on: `mgpu attach {job.id}` shows it again, `mgpu_cancel {job.id}` ends "
                f"it."
            )
            return INTERRUPT_EXIT
        return report(outcome)


# --- results ------------------------------------------------------------------------------------------


def _results_parser(prog: str) -> Parser:
    about = (
        "Show the files that a job left (mgpu_srun --results), or bring them here; each is verified by "
        "its SHA-256."
    )
    result = _parser(prog, "[--to DIR] [--json]", about, EXAMPLE_JOB, f"{EXAMPLE_JOB} --to out")
    result.add_argument("--to", metavar="DIR", help="write them below this directory")
    add_json(result)
    return result


def _results(values: argparse.Namespace, make_client: MakeClient) -> int:
    """Show or fetch the files of one job."""
    job_id = _job_of(values, "results")
    with make_client() as client:
        job = client.job(job_id)
        if values.to is None:
            found, written = job.results(), []
        else:
            found, written = job.wait_for_results(), job.download_results(Path(values.to))
    if values.json:
        document(found)
    elif values.to is not None:
        tell(*([str(path) for path in written] or [f"Job {job.id} left no files."]))
    else:
        tell(*_result_lines(found))
    return 1 if any(file.problem for file in found.files) else 0


def _result_lines(found: files.ResultList) -> Sequence[str]:
    """Return one line for each file, and for each that could not be fetched."""
    told = [
        f"{file.sha256[:12]}  {file.size:>12}  {file.node}:{printable(file.path)}{_trouble(file)}"
        for file in found.files
    ]
    told += [f"not collected: {printable(problem)}" for problem in found.problems]
    if not found.complete:
        told.append("More may come: the job is not over, or its files are under way.")
    return told or [f"Job {found.job_id} left no files."]


def _trouble(file: files.Result) -> str:
    if file.problem:
        return f"  NOT HERE: {printable(file.problem)}"
    return f"  (fetched {file.tries} times)" if file.tries > 1 else ""


COMMANDS = {
    "explain": Command(_explain_parser, _explain),
    "trace": Command(_trace_parser, _trace),
    "summary": Command(_summary_parser, _summary),
    "logs": Command(_logs_parser, _logs),
    "attach": Command(_attach_parser, _attach),
    "results": Command(_results_parser, _results),
}
