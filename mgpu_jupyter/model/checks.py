"""Checks whether a request makes sense by itself: one sentence for what does not. Knows no nodes. Pure."""

from __future__ import annotations

import re
import signal
from keyword import iskeyword

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.constraint import parse_constraint
from mgpu_jupyter.model.image import check_image
from mgpu_jupyter.model.job import MAX_ARGUMENT_CHARS, MAX_COMMAND_CHARS, MAX_TASKS, JobSpec
from mgpu_jupyter.model.launchers import tasks_of
from mgpu_jupyter.model.output_files import check_files
from mgpu_jupyter.model.sweep import check_sweep
from mgpu_jupyter.model.waits import parse_array, parse_dependency

DEFAULT_BEFORE_S = 60.0
MAX_BEFORE_S = 10 * 365 * 86_400
_WARNING = re.compile(r"(?P<signal>[A-Za-z0-9+-]+)(?:@(?P<seconds>[0-9]{1,9}))?")
_DEAF = (signal.SIGKILL, signal.SIGSTOP)


class Warning_(msgspec.Struct, frozen=True):  # noqa: N801 - a name that Python has taken
    """The signal to send, and how long before the end."""

    signal: int
    before_s: float


def parse_signal(text: str) -> Warning_ | None:
    """Read `USR1@60`; None for no text."""
    if not text:
        return None
    if text.upper().startswith("B:"):
        raise InvalidRequest(
            "bad-signal", f"--signal {text}: a job here has no batch shell of its own; leave out B:."
        )
    found = _WARNING.fullmatch(text)
    number = None if found is None else _number(found["signal"])
    if found is None or number is None:
        raise InvalidRequest(
            "bad-signal",
            f"--signal {text}: write a signal and seconds before the limit, like --signal USR1@60.",
        )
    if number in _DEAF:
        raise InvalidRequest(
            "bad-signal", f"--signal {text}: no program can hear {number.name}; use USR1 or TERM."
        )
    return Warning_(int(number), float(found["seconds"] or DEFAULT_BEFORE_S))


def _number(name: str) -> signal.Signals | None:
    try:
        return (
            signal.Signals(int(name))
            if name.isdigit()
            else signal.Signals["SIG" + name.upper().removeprefix("SIG")]
        )
    except (KeyError, ValueError):
        return None


def check(spec: JobSpec) -> JobSpec:
    """Return `spec`, or refuse it with one sentence that says what to do."""
    if bool(spec.command) == (spec.script is not None):
        raise InvalidRequest("no-command", "Give a command after `--`, or a cell body: one of the two.")
    if spec.command and not spec.command[0].strip():
        raise InvalidRequest("no-command", "The command is empty: name a program after `--`.")
    if spec.script is not None and "\0" in spec.script:
        raise InvalidRequest("bad-script", "The cell has a NUL character: remove it.")
    if (
        sum(map(len, spec.command)) > MAX_COMMAND_CHARS
        or max(map(len, spec.command), default=0) > MAX_ARGUMENT_CHARS
    ):
        raise InvalidRequest(
            "command-too-long",
            f"The command is over {MAX_COMMAND_CHARS} characters, or one word of it over "
            f"{MAX_ARGUMENT_CHARS}: put it into a script file.",
        )
    both = sorted(set(spec.nodelist) & set(spec.exclude))
    if both:
        raise InvalidRequest(
            "node-contradiction",
            f"{', '.join(both)} is in both --nodelist and --exclude: take it out of one.",
        )
    both = sorted(set(spec.node_gpu_ids) & set(spec.exclude))
    if both:
        raise InvalidRequest(
            "node-contradiction",
            f"{', '.join(both)} is in both --node-gpu-ids and --exclude: take it out of one.",
        )
    if spec.gpu_ids and spec.gpu_type:
        raise InvalidRequest("gpu-contradiction", "--gpu-ids names the GPUs already: leave --gpu-type out.")
    parse_signal(spec.signal)
    for pattern in spec.results:
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise InvalidRequest(
                "bad-results", f"--results {pattern}: it must be within the job's directory, like out/*.pt."
            )
    check_variables(spec)
    parse_constraint(spec.constraint)
    parse_dependency(spec.dependency)
    parse_array(spec.array)
    check_sweep(spec)
    check_image(spec)
    check_files(spec)
    if tasks_of(spec) > MAX_TASKS:
        raise InvalidRequest(
            "too-many-tasks",
            f"This asks for {tasks_of(spec)} processes, and mgpu starts at most {MAX_TASKS} for one job: ask "
            f"for fewer, or submit several jobs.",
        )
    if spec.mpi and spec.distributed:
        raise InvalidRequest(
            "contradiction",
            "--mpi and --distributed are two ways to start processes: leave one of the two out.",
        )
    if spec.pty and not spec.mpi and tasks_of(spec) > 1:
        raise InvalidRequest("one-terminal", "--pty is one terminal for one process: ask for one node.")
    if spec.pty and spec.array:
        raise InvalidRequest(
            "one-terminal", "--pty is one terminal, and --array many jobs: leave one of the two out."
        )
    return spec


def check_variables(spec: JobSpec) -> None:
    """Refuse variables where no cell takes them, and names that are not valid."""
    for name in spec.outputs:
        if iskeyword(name) or spec.outputs.count(name) > 1:
            raise InvalidRequest(
                "bad-name",
                f"--out {name}: it is a word of Python, or named twice; write them like --out a,b.",
            )
    if spec.inputs or spec.outputs:
        check_cell(spec)


def check_cell(spec: JobSpec) -> None:
    """Refuse anything but a Python cell that mgpu itself runs."""
    if spec.script is None:
        raise InvalidRequest(
            "no-cell",
            "--in and --out are for Python cells (%%mgpu_srun): a command takes files, by --sync and "
            "--results.",
        )
    if spec.script.startswith("#!"):
        raise InvalidRequest(
            "no-cell",
            "--in and --out are for cells in Python: take out its first line with #!, or --in and --out.",
        )
    if spec.image:
        raise InvalidRequest(
            "no-cell",
            "--in and --out do not reach into a container: leave out --image, or use --sync and --results.",
        )
    if spec.mpi:
        raise InvalidRequest(
            "no-cell", "--in and --out do not go with --mpi: use --distributed, or --sync and --results."
        )
