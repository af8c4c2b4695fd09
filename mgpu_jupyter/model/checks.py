"""Whether a request makes sense by itself: one sentence for what does not. Knows nothing of nodes. Pure."""

from __future__ import annotations

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.constraint import parse_constraint
from mgpu_jupyter.model.image import check_image
from mgpu_jupyter.model.job import MAX_ARGUMENT_CHARS, MAX_COMMAND_CHARS, MAX_TASKS, JobSpec
from mgpu_jupyter.model.sweep import check_sweep
from mgpu_jupyter.model.tasks import tasks_of
from mgpu_jupyter.model.variables import check_variables
from mgpu_jupyter.model.waits import parse_array, parse_dependency
from mgpu_jupyter.model.warning import parse_signal


def check(spec: JobSpec) -> JobSpec:
    """Return `spec`, or refuse it with one sentence that says what to do."""
    if bool(spec.command) == (spec.script is not None):
        raise InvalidRequest("no-command", "Give a command after `--`, or a cell body: one of the two.")
    if spec.command and not spec.command[0].strip():
        raise InvalidRequest("no-command", "The command is empty: name a program after `--`.")
    if spec.script is not None and "\0" in spec.script:
        raise InvalidRequest("bad-script", "The cell has a NUL character: remove it.")
    if sum(map(len, spec.command)) > MAX_COMMAND_CHARS or max(map(len, spec.command), default=0) > MAX_ARGUMENT_CHARS:
        raise InvalidRequest(
            "command-too-long",
            f"The command is over {MAX_COMMAND_CHARS} characters, or one word of it over {MAX_ARGUMENT_CHARS}: put it into a script file.",
        )
    both = sorted(set(spec.nodelist) & set(spec.exclude))
    if both:
        raise InvalidRequest("node-contradiction", f"{', '.join(both)} is in both --nodelist and --exclude: take it out of one.")
    both = sorted(set(spec.node_gpu_ids) & set(spec.exclude))
    if both:
        raise InvalidRequest("node-contradiction", f"{', '.join(both)} is in both --node-gpu-ids and --exclude: take it out of one.")
    if spec.gpu_ids and spec.gpu_type:
        raise InvalidRequest("gpu-contradiction", "--gpu-ids names the GPUs already: leave --gpu-type out.")
    parse_signal(spec.signal)
    for pattern in spec.results:
        if pattern.startswith(("/", "~")) or ".." in pattern.split("/"):
            raise InvalidRequest("bad-results", f"--results {pattern}: it must be within the job's directory, like out/*.pt.")
    check_variables(spec)
    parse_constraint(spec.constraint)
    parse_dependency(spec.dependency)
    parse_array(spec.array)
    check_sweep(spec)
    check_image(spec)
    if tasks_of(spec) > MAX_TASKS:
        raise InvalidRequest("too-many-tasks", f"This asks for {tasks_of(spec)} processes; mgpu starts at most {MAX_TASKS} for one job.")
    if spec.mpi and spec.distributed:
        raise InvalidRequest("contradiction", "--mpi and --distributed are two ways to start processes: leave one of the two out.")
    if spec.pty and not spec.mpi and tasks_of(spec) > 1:
        raise InvalidRequest("one-terminal", "--pty is one terminal for one process: ask for one node.")
    if spec.pty and spec.array:
        raise InvalidRequest("one-terminal", "--pty is one terminal, and --array many jobs: leave one of the two out.")
    return spec
