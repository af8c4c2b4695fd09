"""The environment and the command line of a job's processes. Pure: starts nothing, reads no file."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

from mgpu_agent.mpi.setting import program
from mgpu_agent.process import copier
from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuInfo, LaunchSpec, TaskSpec

_SECRET_NAMES = frozenset(
    (b"MGPU_TOKEN", b"MGPU_URL", b"JUPYTER_TOKEN", b"CONFIGPROXY_AUTH_TOKEN", b"JUPYTER_PASSWORD")
)
_SECRET_PREFIXES = (b"JPY_", b"JUPYTERHUB_", b"JUPYTER_SERVER_")
# These describe the agent's own process and would mislead a job.
_OWN_NAMES = frozenset(
    (
        b"PWD",
        b"OLDPWD",
        b"_",
        b"SHLVL",
        b"MGPU_TASK",
        b"MGPU_FAILPOINTS",
        b"PYTHONSAFEPATH",
        b"LINES",
        b"COLUMNS",
    )
)

# The line break ends a comment at the end of what the user wrote; a failed setup ends the job with its code.
_AFTER_SETUP = 'mgpu_python=$(command -v python)\n{{ {setup}\n}} || exit $?\n{python}exec "$@"'
# A cell whose setup activated another Python (a conda environment, a module) runs with that one.
_SETUP_PYTHON = (
    '[ "$(command -v python)" = "$mgpu_python" ] || { shift; set -- "$(command -v python)" "$@"; }\n'
)


def base_environment(environ: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Return the node's environment without secrets of a Jupyter server and the agent's own variables."""
    return {
        name: value
        for name, value in environ.items()
        if name not in _SECRET_NAMES and name not in _OWN_NAMES and not name.startswith(_SECRET_PREFIXES)
    }


def task_environment(
    spec: LaunchSpec, task: TaskSpec, *, node_id: NodeId, devices: str, cwd: str, base: Mapping[bytes, bytes]
) -> dict[bytes, bytes]:
    """Return what is added to the node's environment `base` for one process of a launch."""
    key = spec.key
    env = {name: value for name, value in spec.defaults.items() if os.fsencode(name) not in base}
    env |= {
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_VISIBLE_DEVICES": devices,
        "MGPU_JOB_ID": key.job_id,
        "MGPU_ATTEMPT": str(key.attempt),
        "MGPU_EPOCH": str(key.epoch),
        "MGPU_NODE_ID": node_id,
        "MGPU_RANK": str(task.rank),
        "MGPU_GPUS": ",".join(spec.gpus),
        "PWD": cwd,
    }
    env.update(spec.env)
    env.update(task.env)
    if task.files:
        env[copier.VARIABLE] = json.dumps([(file.stream, file.path, file.append) for file in task.files])
    if spec.script is not None:
        # A cell imports what lies beside the notebook, although its source runs from the spool.
        python_path = env.get("PYTHONPATH", base.get(b"PYTHONPATH", b"").decode(errors="surrogateescape"))
        env["PYTHONPATH"] = f"{cwd}{os.pathsep}{python_path}" if python_path else cwd
    return {os.fsencode(name): os.fsencode(value) for name, value in env.items()}


def hook_facts(spec: LaunchSpec, *, node_id: NodeId, devices: str) -> dict[bytes, bytes]:
    """Return what prologs and epilogs are told about an attempt: mgpu's own variables, none of which its user
    can replace.
    """
    if not spec.hooks:
        return {}
    facts = {
        "MGPU_JOB_ID": spec.key.job_id,
        "MGPU_ATTEMPT": str(spec.key.attempt),
        "MGPU_EPOCH": str(spec.key.epoch),
        "MGPU_NODE_ID": node_id,
        "MGPU_GPUS": ",".join(spec.gpus),
        "MGPU_USER": spec.user,
        "CUDA_VISIBLE_DEVICES": devices,
    }
    return {os.fsencode(name): os.fsencode(value) for name, value in facts.items()}


def _exchange_words(spec: LaunchSpec, values: str) -> tuple[str, ...]:
    if not values:
        return ()
    wanted = ("--version", spec.python.kernel_version) if spec.python.kernel_version else ()
    left = ("--out", ",".join(spec.outputs), "--limit", str(spec.outputs_limit_bytes)) if spec.outputs else ()
    return ("--values", values, *wanted, *left)


def visible_devices(
    wanted: tuple[GpuUuid, ...], gpus: Mapping[GpuUuid, GpuInfo], *, by_uuid: bool = False
) -> str:
    """Return CUDA_VISIBLE_DEVICES: indices, which many libraries parse as numbers.

    UUIDs where indices mean nothing: on a node with MIG instances, which CUDA counts in its own way, and when
    a GPU is lost.
    """
    if (
        by_uuid
        or any(gpu.mig_parent for gpu in gpus.values())
        or any(uuid.startswith("MIG-") for uuid in wanted)
    ):
        return ",".join(wanted)
    return ",".join(str(gpus[uuid].index) for uuid in wanted)


def script_suffix(source: str) -> str:
    """Return the file name suffix for the source of a cell."""
    return ".cell" if source.startswith("#!") else ".cell.py"


def interpreter_words(source: str) -> tuple[str, ...]:
    """Return the interpreter that a `#!` first line names, with its one argument, or nothing."""
    first, _, _ = source.partition("\n")
    return tuple(first[2:].strip().split(maxsplit=1)) if first.startswith("#!") else ()


def command_words(
    spec: LaunchSpec, script_path: str, python: str, runner: str, values: str = ""
) -> tuple[bytes, ...]:
    """Return the words to run: the command itself, or an interpreter and the file of the cell.

    A Python cell is run by `runner`, which exchanges variables through the directory `values`.
    """
    if spec.script is None:
        words = spec.argv
    elif named := interpreter_words(spec.script):
        words = (*named, script_path)
    else:
        words = (python, "-u", runner, *_exchange_words(spec, values), script_path)
    if spec.mpi:
        words = (*program("first"), *words) if any(task.rank == 0 for task in spec.tasks) else program("host")
    if spec.setup:
        words = (
            "bash",
            "-lc",
            _AFTER_SETUP.format(
                setup=spec.setup, python=_SETUP_PYTHON if python and spec.python.path is None else ""
            ),
            "mgpu",
            *words,
        )
    return tuple(map(os.fsencode, words))
