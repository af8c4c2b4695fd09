"""Entry points and the one boundary where errors become a sentence and an exit code. Knows no command's details."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Sequence

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_jupyter.client.client import Client

Command = Callable[[Sequence[str], Callable[[], Client]], int]

COMMANDS = {
    "srun": "run a job and stream its output (mgpu_srun)",
    "queue": "show jobs and nodes (mgpu_queue)",
    "cancel": "cancel jobs (mgpu_cancel)",
    "hold": "keep waiting jobs from starting",
    "release": "let held jobs start",
    "requeue": "end running jobs and let them wait again",
    "update": "give jobs another --priority or --time",
    "nodes": "show the nodes and their GPUs",
    "node": "administer a node: drain, resume, maintenance, allow, deny, remove, revoke",
    "explain": "say why a job waits, and what would start it now",
    "logs": "show what a job printed",
    "join-token": "print the line that lets another machine join",
    "user": "add, list and remove users of a shared master",
    "login": "use a master elsewhere, with the line of `mgpu user add`",
    "logout": "forget that login",
    "simulate": "replay a trace of jobs through the scheduler in virtual time",
    "master": "run the master without JupyterLab (mgpu_master)",
}
USAGE_EXIT = 2
ERROR_EXIT = 1
INTERRUPT_EXIT = 130  # 128 + SIGINT
PIPE_EXIT = 141  # 128 + SIGPIPE


def mgpu(argv: Sequence[str] | None = None, make_client: Callable[[], Client] = Client) -> int:
    """Run `mgpu COMMAND …`."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not words or words[0] in ("--help", "-h", "help"):
        return _guarded(_print_help, words, make_client)
    if words[0] in ("--version", "-V"):
        print(f"mgpu {__version__}")
        return 0
    if words[0] not in COMMANDS:
        return _guarded(_unknown, words, make_client)
    return _run(words[0], words[1:], make_client)


def mgpu_srun(argv: Sequence[str] | None = None, make_client: Callable[[], Client] = Client) -> int:
    """Run `mgpu_srun`."""
    return _run("srun", argv, make_client)


def mgpu_queue(argv: Sequence[str] | None = None, make_client: Callable[[], Client] = Client) -> int:
    """Run `mgpu_queue`."""
    return _run("queue", argv, make_client)


def mgpu_cancel(argv: Sequence[str] | None = None, make_client: Callable[[], Client] = Client) -> int:
    """Run `mgpu_cancel`."""
    return _run("cancel", argv, make_client)


def mgpu_master(argv: Sequence[str] | None = None, make_client: Callable[[], Client] = Client) -> int:
    """Run `mgpu_master`."""
    return _run("master", argv, make_client)


def _run(name: str, argv: Sequence[str] | None, make_client: Callable[[], Client]) -> int:
    command: Command = importlib.import_module(f"mgpu_jupyter.cli.{name.replace('-', '_')}").main
    return _guarded(command, list(sys.argv[1:] if argv is None else argv), make_client)


def _guarded(command: Command, argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    try:
        code = command(argv, make_client)
        sys.stdout.flush()
    except InvalidRequest as error:
        print(error.message, file=sys.stderr)
        return USAGE_EXIT
    except MgpuError as error:
        print(error.message, file=sys.stderr)
        return ERROR_EXIT
    except BrokenPipeError:
        _close_stdout()
        return PIPE_EXIT
    except KeyboardInterrupt:
        return INTERRUPT_EXIT
    return code


def _close_stdout() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain about the reader who left."""
    try:
        descriptor = sys.stdout.fileno()
    except (OSError, ValueError):
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def _print_help(argv: Sequence[str], make_client: Callable[[], Client]) -> int:  # noqa: ARG001 - a command like the others
    print("usage: mgpu COMMAND …\n\nThe GPUs of several machines as one pool.\n")
    for name, text in COMMANDS.items():
        print(f"  {name:<10} {text}")
    print("\n`mgpu COMMAND --help` says more; `mgpu --version` shows the version.")
    return 0 if argv else USAGE_EXIT


def _unknown(argv: Sequence[str], make_client: Callable[[], Client]) -> int:  # noqa: ARG001 - a command like the others
    import difflib

    near = difflib.get_close_matches(argv[0].removeprefix("mgpu_"), COMMANDS, 1)
    hint = f"use mgpu {near[0]}." if near else "see mgpu --help."
    raise InvalidRequest("unknown-command", f"There is no command {argv[0]}: {hint}")
