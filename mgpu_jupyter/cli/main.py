"""Entry points, and the one place where errors become a sentence and an exit code. Knows no command's detail.

A module of commands has a table `COMMANDS`, and is imported when one of them is asked for.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.text import tell
from mgpu_jupyter.cli.command import Command, MakeClient
from mgpu_jupyter.cli.show import show_help
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.parser import HELP_WORDS, Help

Carry = Callable[[Sequence[str], MakeClient], int]
Program = Callable[..., int]

COMMANDS = {
    "srun": "run a job and stream its output (mgpu_srun)",
    "sbatch": "submit a job file (mgpu_sbatch)",
    "validate": "check a job file, line by line",
    "queue": "show jobs and nodes (mgpu_queue)",
    "cancel": "cancel jobs (mgpu_cancel)",
    "hold": "keep waiting jobs from starting",
    "release": "let held jobs start",
    "requeue": "end running jobs and let them wait again",
    "update": "give jobs another --priority or --time",
    "nodes": "show the nodes and their GPUs",
    "node": "administer a node: drain, resume, maintenance, allow, deny, label, remove, revoke, ping",
    "explain": "say why a job waits, and what would start it now",
    "trace": "show where and when a job ran, step by step (debug_job_tracking checks it)",
    "logs": "show what a job printed",
    "results": "show the files that a job left, or bring them here",
    "summary": "say what a job asked for, had and used",
    "attach": "show a job's output from its start and go on live",
    "rerun": "submit jobs once more, as they were asked for",
    "purge": "delete jobs that ended long ago, with their output",
    "flush": "cancel everything (mgpu_flush)",
    "client": "the client of the earlier tools (mgpu_client)",
    "join-token": "print the line that lets another machine join",
    "user": "add, list and remove users of a shared master",
    "doctor": "look at the set-up and say what to mend",
    "login": "use a master elsewhere, with the line of `mgpu user add`",
    "logout": "forget that login",
    "demo": "open a cluster to try on this machine, in JupyterLab",
    "simulate": "replay a trace of jobs through the scheduler in virtual time",
    "completion": "teach your shell to complete all this",
    "master": "run the master without JupyterLab (mgpu_master)",
}
MODULES = {
    **dict.fromkeys(
        ("cancel", "flush", "hold", "release", "requeue", "update", "rerun", "purge"), "job_orders"
    ),
    **dict.fromkeys(("explain", "trace", "summary", "logs", "results", "attach"), "one_job"),
    **dict.fromkeys(("node", "join-token", "user"), "administer"),
    **dict.fromkeys(("sbatch", "validate"), "job_files"),
    "logout": "login",
}
"""The modules of commands that have no module of their own name."""
PROGRAMS = {
    "mgpu_srun": "srun",
    "mgpu_srun_multinode": "srun",
    "mgpu_sbatch": "sbatch",
    "mgpu_queue": "queue",
    "mgpu_cancel": "cancel",
    "mgpu_flush": "flush",
    "mgpu_client": "client",
    "mgpu_simple_client": "client",
    "debug_job_tracking": "trace",
    "mgpu_master": "master",
    "mgpu_simple_master": "master",
}
"""Programs that are one command, by the names of the earlier tools."""
USAGE_EXIT = 2
ERROR_EXIT = 1
INTERRUPT_EXIT = 130  # 128 + SIGINT
PIPE_EXIT = 141  # 128 + SIGPIPE


def mgpu(argv: Sequence[str] | None = None, make_client: MakeClient = Client) -> int:
    """Run `mgpu COMMAND …`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in (*HELP_WORDS, "help"):
        return _guarded(_print_help, words, make_client)
    if words[0] in ("--version", "-V"):
        tell(f"mgpu {__version__}")
        return 0
    if words[0] == "__complete":
        return _guarded(_complete, words[1:], make_client, speaks=False)
    if words[0] not in COMMANDS:
        return _guarded(_unknown, words, make_client)
    speaks = words[0] != "doctor"  # its findings say it
    return _guarded(_command(words[0], f"mgpu {words[0]}"), words[1:], make_client, speaks=speaks)


def program(name: str) -> Program:
    """Return the entry point of a program that is one command."""

    def run(argv: Sequence[str] | None = None, make_client: MakeClient = Client) -> int:
        return _guarded(
            _command(PROGRAMS[name], name), list(sys.argv[1:] if argv is None else argv), make_client
        )

    return run


mgpu_srun = program("mgpu_srun")
mgpu_srun_multinode = program("mgpu_srun_multinode")
mgpu_sbatch = program("mgpu_sbatch")
mgpu_queue = program("mgpu_queue")
mgpu_cancel = program("mgpu_cancel")
mgpu_flush = program("mgpu_flush")
mgpu_client = program("mgpu_client")
mgpu_simple_client = program("mgpu_simple_client")
mgpu_master = program("mgpu_master")
mgpu_simple_master = program("mgpu_simple_master")
debug_job_tracking = program("debug_job_tracking")


def command_of(name: str) -> Command:
    """Return a command by its name."""
    module = importlib.import_module(f"mgpu_jupyter.cli.{MODULES.get(name, name)}")
    found: Command = module.COMMANDS[name]
    return found


def _command(name: str, prog: str) -> Carry:
    """Return the function that reads the words of a command and carries it out."""

    def carry(argv: Sequence[str], make_client: MakeClient) -> int:
        command = command_of(name)
        if command.run is None:
            assert command.main is not None
            return command.main(argv, make_client)
        values = command.parser(prog).read(argv)
        return show_help(values.text) if isinstance(values, Help) else command.run(values, make_client)

    return carry


def _complete(argv: Sequence[str], make_client: MakeClient) -> int:
    from mgpu_jupyter.cli.completion import answer

    return answer(argv, make_client)


def _guarded(command: Carry, argv: Sequence[str], make_client: MakeClient, *, speaks: bool = True) -> int:
    """Carry out a command; with `speaks`, say so while the master does not answer."""

    def make_speaking() -> Client:
        client = make_client()
        client.caller.on_trouble = _trouble
        return client

    try:
        code = command(argv, make_speaking if speaks else make_client)
        sys.stdout.flush()
    except InvalidRequest as error:
        tell(error.message, file=sys.stderr)
        return USAGE_EXIT
    except MgpuError as error:
        tell(error.message, file=sys.stderr)
        return ERROR_EXIT
    except BrokenPipeError:
        _close_stdout()
        return PIPE_EXIT
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    return code


def _trouble(text: str) -> None:
    """Print that the master does not answer and how long it is tried: silence looks like a hang."""
    tell(text, file=sys.stderr, flush=True)


def _close_stdout() -> None:
    """Redirect stdout to nothing: the interpreter's last flush must not fail when the reader left."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _print_help(argv: Sequence[str], make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    lines = ["usage: mgpu COMMAND …", "", "The GPUs of several machines as one pool.", ""]
    lines += [f"  {name:<11} {text}" for name, text in COMMANDS.items()]
    lines += ["", "`mgpu COMMAND --help` says more; `mgpu --version` shows the version."]
    show_help("\n".join(lines) + "\n")
    return 0 if argv else USAGE_EXIT


def _unknown(argv: Sequence[str], make_client: MakeClient) -> int:  # noqa: ARG001 - a command like the others
    import difflib

    near = difflib.get_close_matches(argv[0].removeprefix("mgpu_"), COMMANDS, 1)
    hint = f"use mgpu {near[0]}." if near else "see mgpu --help."
    raise InvalidRequest("unknown-command", f"There is no command {argv[0]}: {hint}")
