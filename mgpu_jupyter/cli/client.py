"""`mgpu_client`: the client of the earlier tools, with its flags, sentences and behaviour.

What scripts match is kept exactly; `mgpu_srun`, `mgpu_queue` and `mgpu_cancel` print more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, NotFound
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import GapFrame, OutputFrame
from mgpu_jupyter.cli.show import document, queue_json, show_help
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client import watch
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.job import Job, rank_count
from mgpu_jupyter.client.listing import as_status
from mgpu_jupyter.client.parser import HELP_WORDS, Help, Parser
from mgpu_jupyter.client.spec import spec_of
from mgpu_jupyter.client.words import exit_status
from mgpu_jupyter.model.job import JobState

if TYPE_CHECKING:
    from mgpu_jupyter.client.follow import Follow
from mgpu_jupyter.cli.command import Command, MakeClient, add_json, add_place, point_at
from mgpu_jupyter.cli.console import INTERRUPT_EXIT, ShellViewer

RULE = "=" * 50
ACTIONS = ("submit", "queue", "cancel", "monitor")


def parser(prog: str) -> Parser:
    """Return the flags that may be before the subcommand (or after it)."""
    examples = [
        f'{prog} --port 8080 submit --gpus 2 --interactive "python train.py"',
        f'{prog} submit --node-gpu-ids "n1:0,1;n2:2" "python train.py"',
        f"{prog} queue",
        f"{prog} monitor R4T8W2ZB",
    ]
    result = Parser(
        prog,
        f"{prog} [--host H] [--port P] submit|queue|cancel|monitor …",
        "The client of the earlier tools.",
        examples=examples,
    )
    result.add_argument(
        "action", nargs="?", metavar="ACTION", choices=ACTIONS, help="`ACTION --help` says more"
    )
    _add_common(result)
    return result


def parser_of_action(prog: str, action: str) -> Parser:
    """Return the flags of a subcommand."""
    usage = {
        "submit": ' [flags] "CMD"',
        "queue": "",
        "cancel": " JOB_ID",
        "monitor": " JOB_ID [--max-wait-time S]",
    }[action]
    about = {
        "submit": "Submit a command line for bash and show it to its end; with --interactive its output as "
        "it comes.",
        "queue": "Show jobs and the GPUs that are free.",
        "cancel": "Cancel a job.",
        "monitor": "Show a job's output to its end.",
    }[action]
    result = Parser(f"{prog} {action}", f"{prog} {action}{usage}", about)
    if action == "submit":
        result.add_argument("command", nargs="*", metavar="CMD", help="what to run, in quotes")
        _add_submit(result)
    elif action != "queue":
        result.add_argument("job", nargs="?", metavar="JOB", help="id of the job")
    if action in ("submit", "monitor"):
        result.add_argument(
            "--max-wait-time",
            type=_seconds("--max-wait-time"),
            metavar="S",
            help="stop looking after S seconds",
        )
    _add_common(result)
    return result


def _add_submit(result: Parser) -> None:
    add = result.add_argument
    add("--gpus", type=kinds.count("--gpus"), metavar="N", help="number of GPUs (default 1)")
    add("--interactive", action="store_true", help="show the output as it comes")
    add("--node-gpu-ids", metavar='"A:0,1;B:2"', help="exactly these GPUs of exactly these nodes")
    add(
        "--wait-for-nodes",
        action="store_true",
        help="wait even if no machine that is known could ever run it",
    )
    add(
        "--session-timeout",
        type=_seconds("--session-timeout"),
        metavar="S",
        help="leave an interactive session after S seconds",
    )
    add(
        "--connection-timeout",
        type=_seconds("--connection-timeout"),
        metavar="S",
        help="wait so long for the master",
    )
    add(
        "--max-consecutive-timeouts",
        type=kinds.count("--max-consecutive-timeouts"),
        metavar="N",
        help="give up after N silences in a row",
    )


def _add_common(result: Parser) -> None:
    add_place(result)
    result.add_argument("--verbose", action="store_true", help="say which master answers")
    add_json(result)


class _seconds:  # noqa: N801 - reads as a function where it is used
    def __init__(self, flag: str) -> None:
        self._flag = flag

    def __call__(self, text: str) -> float:
        try:
            return kinds.seconds(text)
        except InvalidRequest:
            raise InvalidRequest(
                "bad-time", f"{self._flag} {text}: write a number of seconds above 0."
            ) from None


def read(prog: str, argv: Sequence[str]) -> argparse.Namespace | Help:
    """Return the values; common flags may be on either side of the subcommand."""
    top = parser(prog)
    position = 0
    while position < len(argv) and argv[position].startswith("-"):
        position += 2 if top.takes_value(argv[position]) else 1
    before, rest = list(argv[:position]), list(argv[position:])
    if not rest or (rest[0] not in ACTIONS and any(word in HELP_WORDS for word in argv)):
        return top.read(before)
    if rest[0] not in ACTIONS:
        raise InvalidRequest("usage", f"{prog} knows {', '.join(ACTIONS)}, not {rest[0]}: see {prog} --help.")
    first, second = top.read(before), parser_of_action(prog, rest[0]).read(rest[1:])
    if isinstance(first, Help) or isinstance(second, Help):
        return first if isinstance(first, Help) else second
    for name, value in vars(first).items():
        if name != "action" and not getattr(second, name):
            setattr(second, name, value)
    second.action = rest[0]
    return second


def main(argv: Sequence[str], make_client: MakeClient) -> int:
    """Carry out a subcommand; 0 when it succeeded, else 1, and with --interactive the job's own exit code."""
    values = read("mgpu_client", argv)
    if isinstance(values, Help):
        return show_help(values.text)
    if values.action is None:
        show_help(parser("mgpu_client").format_help())
        return 1
    point_at(values.host, values.port)
    with make_client() as client:
        if values.verbose:
            me = client.cluster()
            tell(f"Connected to {me.name} as {me.user}", file=sys.stderr)
        return _DO[values.action](client, values)


def _submit(client: Client, values: argparse.Namespace) -> int:
    text = " ".join(values.command)
    if not text.strip():
        raise InvalidRequest(
            "no-command", 'Name the command, in quotes, as in `mgpu_client submit "python train.py"`.'
        )
    if values.connection_timeout is not None:
        client.use(
            replace(client.timeouts, connect_s=values.connection_timeout, retry_s=values.connection_timeout)
        )
    if values.max_consecutive_timeouts is not None:
        client.use(
            replace(client.timeouts, resume_s=values.max_consecutive_timeouts * client.timeouts.stream_idle_s)
        )
    keywords: dict[str, object] = {
        "gpus": values.gpus,
        "node_gpu_ids": values.node_gpu_ids,
        "wait_for_nodes": values.wait_for_nodes or None,
    }
    job = client.submit_spec(spec_of(["bash", "-lc", text], None, keywords, Here.real()))
    if values.json:
        return _tell_end(job.wait(values.max_wait_time))
    if not values.interactive:
        tell(f"Job submitted: {job.id}", flush=True)
        return _monitor_job(job, values.max_wait_time)
    tell(f"Job submission: {_reply('Job submitted', job_id=job.id)}")
    tell("Starting interactive session...")
    limits = [limit for limit in (values.session_timeout, values.max_wait_time) if limit is not None]
    ended = _show(job, min(limits, default=None), "Session timeout reached")
    if isinstance(ended, int):
        return ended
    tell(f"Job completed with exit code: {exit_status(ended)}")
    return exit_status(ended)


def _queue(client: Client, values: argparse.Namespace) -> int:
    jobs = [job.snapshot for job in client.jobs(state="active") if job.snapshot]
    if values.json:
        tell(queue_json(jobs))
        return 0
    tell(*as_status(jobs, client.nodes()))
    return 0


def _cancel(client: Client, values: argparse.Namespace) -> int:
    job_id = _named(values)
    reply, done = _cancel_reply(client, job_id)
    if values.json:
        document(reply)
    else:
        tell(f"Cancel result: {reply}")
    return 0 if done else 1


def _cancel_reply(client: Client, job_id: str) -> tuple[dict[str, str], bool]:
    try:
        waited = client.job(job_id).state is JobState.QUEUED
        answer = client.cancel(job_id)
    except NotFound:
        return _reply(f"Job {job_id} not found", status="fail"), False
    except MgpuError as error:
        return _reply(error.message, status="fail"), False
    if answer.state.is_final and answer.state is not JobState.CANCELLED:
        return _reply(f"Job {job_id} has ended already ({answer.state})", status="fail"), False
    return _reply(f"Job {job_id} cancelled{' from queue' if waited else ''}"), True


def _monitor(client: Client, values: argparse.Namespace) -> int:
    job_id = _named(values)
    try:
        job = client.job(job_id)
    except NotFound:
        tell(f"Job {job_id} not found on server")
        return 1
    return (
        _tell_end(job.wait(values.max_wait_time)) if values.json else _monitor_job(job, values.max_wait_time)
    )


_DO: dict[str, Callable[[Client, argparse.Namespace], int]] = {
    "submit": _submit,
    "queue": _queue,
    "cancel": _cancel,
    "monitor": _monitor,
}


def _monitor_job(job: Job, limit_s: float | None) -> int:
    tell(f"Monitoring job {job.id} output...")
    ended = _show(job, limit_s, "Maximum wait time reached")
    if isinstance(ended, int):
        return ended
    # The earlier tools had no separate state for a time limit.
    state = JobState.FAILED if ended.state is JobState.TIMEOUT else ended.state
    tell(f"Job completed with status: {state}")
    tell(f"Exit code: {exit_status(ended)}")
    return 0 if ended.state is JobState.COMPLETED else 1


def _show(job: Job, limit_s: float | None, late: str) -> models.Job | int:
    """Show all output between two rules; return the ended job, or the exit code of a user who left."""
    tell(RULE, flush=True)
    viewer = ShellViewer(
        0,
        rank_count(job.info) if job.snapshot is None else max(rank_count(job.info), job.info.nodes_wanted),
        err=sys.stdout.buffer,
    )
    with job.follow() as frames:
        frames.deadline = None if limit_s is None else time.monotonic() + limit_s
        ended = _watched(frames, viewer, job, late)
    if isinstance(ended, int):
        return ended
    viewer.close()
    tell(RULE)
    return ended


def _watched(frames: Follow, viewer: ShellViewer, job: Job, late: str) -> models.Job | int:
    try:
        return watch.show(frames, _Quiet(viewer))
    except TimeoutError:
        tell(f"{late}: job {job.id} goes on.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        tell(
            f"Detached: job {job.id} goes on, `mgpu_client monitor {job.id}` shows it again.", file=sys.stderr
        )
        return INTERRUPT_EXIT


class _Quiet(watch.Viewer):
    """Shows output and nothing else: between the rules the earlier tool printed only the job's lines."""

    def __init__(self, viewer: ShellViewer) -> None:
        self._viewer = viewer

    def output(self, frame: OutputFrame) -> None:
        """Show output of a rank."""
        self._viewer.output(frame)

    def gap(self, frame: GapFrame) -> None:
        """Show that output is missing."""
        self._viewer.gap(frame)


def _tell_end(job: Job) -> int:
    info = job.info
    document({"job_id": info.id, "state": info.state, "exit_code": exit_status(info), "output": job.output()})
    return 0 if info.state is JobState.COMPLETED else 1


def _reply(message: str, *, status: str = "ok", job_id: str = "") -> dict[str, str]:
    return {"status": status, **({"job_id": job_id} if job_id else {}), "message": message}


def _named(values: argparse.Namespace) -> str:
    if not values.job:
        raise InvalidRequest("usage", f"Name the job, as in `mgpu_client {values.action} R4T8W2ZB`.")
    return str(values.job).upper()


COMMANDS = {"client": Command(parser, main=main, actions=ACTIONS, parser_of_action=parser_of_action)}
