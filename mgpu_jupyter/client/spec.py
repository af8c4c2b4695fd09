"""From words and keywords to a checked `JobSpec`. Sends nothing."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Self

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.places import host_name
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.sweep import array_of

FLAG_OF_FIELD = {
    "time_limit_s": "--time-limit",
    "begin_at": "--begin",
    "gpu_mem_bytes": "--gpu-mem",
    "mem_per_node_bytes": "--mem-per-node",
    "cwd": "--chdir",
    "command": "the command",
    "script": "the cell",
    "kernel_python": "the kernel's interpreter",
    "kernel_python_version": "the kernel's version",
}
EXAMPLE_OF_FIELD = {
    "nodelist": "node1,node2",
    "exclude": "node1,node2",
    "prefer": "node1,node2",
    "partition": "gpu",
    "gpu_ids": "0,1",
    "node_gpu_ids": '"node1:0,1;node2:2"',
    "gpu_type": "A100",
    "gpu_mem_bytes": "20G",
    "mem_per_node_bytes": "64G",
    "constraint": '"a100&(rack=r1|!old)"',
    "arch": "x86_64",
    "policy": "spread",
    "qos": "normal",
    "account": "physics",
    "begin_at": "now+1hour",
    "dependency": "afterok:ABCD1234",
    "array": "1-100%8",
    "results": "'out/*.pt'",
    "sweep": "lr=0.1,0.01",
    "image": "pytorch/pytorch:2.5.1",
    "signal": "USR1@60",
}
SAME_IN_SPEC = (
    *("name", "gpus", "nodes", "gpus_per_node", "gpu_ids", "node_gpu_ids", "gpu_type", "cpus", "parts"),
    *("nodelist", "exclude", "prefer", "partition", "constraint", "arch", "policy", "wait_for_nodes"),
    *("priority", "qos", "account", "hold", "dependency", "array", "sweep", "env", "python", "requeue", "on_disconnect"),
    *("distributed", "ntasks_per_node", "sync", "results", "prolog", "epilog"),
    *("retries", "image", "outputs"),
    *("mpi", "pty", "interactive_kill", "signal", "env_setup_cmd", "debug"),
)
RENAMED = {
    "time_limit": "time_limit_s",
    "chdir": "cwd",
    "gpu_mem": "gpu_mem_bytes",
    "mem_per_node": "mem_per_node_bytes",
    "begin": "begin_at",
}
KEYWORDS = (*SAME_IN_SPEC, *RENAMED, "mem")
READERS = {
    "nodelist": kinds.names,
    "exclude": kinds.names,
    "prefer": kinds.names,
    "gpu_ids": kinds.gpu_ids,
    "node_gpu_ids": kinds.node_gpu_ids,
    "outputs": kinds.names,
}
"""What these mean when they are given as text."""
NODE_FIELDS = ("nodes", "nodelist", "exclude", "prefer", "partition", "constraint", "arch")
"""Who says something about nodes does not mean the machine that they sit at."""
_PATH = re.compile(r"^(?P<what>.*) - at (?:`key` in )?`\$\.(?P<field>\w+)[^`]*`$", re.DOTALL)


class Here(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when a request is made."""

    cwd: str
    now: float
    host: str
    """This machine's name, as an agent on it would tell it."""

    @classmethod
    def real(cls, cwd: str | None = None) -> Self:
        """Return this process's own."""
        return cls(cwd=os.getcwd() if cwd is None else cwd, now=time.time(), host=host_name())


def command_words(command: Sequence[str] | str) -> tuple[str, ...]:
    """Return argv; one string with blanks runs under `bash -lc`."""
    words = (command,) if isinstance(command, str) else tuple(command)
    if len(words) == 1 and len(words[0].split()) > 1:
        return ("bash", "-lc", words[0])
    return words


def spec_of(command: Sequence[str] | str | None, script: str | None, keywords: Mapping[str, object], here: Here) -> JobSpec:
    """Return the request that flags and `Client.submit` mean."""
    fields: dict[str, object] = {}
    for key, value in keywords.items():
        if key not in KEYWORDS:
            raise InvalidRequest("unknown-keyword", f"There is no keyword {key!r}: the keywords are {', '.join(KEYWORDS)}.")
        if value is not None:
            fields[RENAMED.get(key, key)] = READERS[key](value) if key in READERS and isinstance(value, str) else value
    _read_memory(fields)
    if sweep := fields.get("sweep"):
        lines, limit = kinds.sweep_limit(sweep)
        fields["sweep"] = found = kinds.sweep(lines)
        fields["array"] = array_of(found, str(fields.get("array") or limit))
    if (begin := fields.get("begin_at")) is not None:
        fields["begin_at"] = _begin(begin, here.now)
    if fields.get("gpu_ids") and not any(fields.get(field) for field in NODE_FIELDS):
        fields["home"] = here.host
    if isinstance(fields.get("results"), str):
        fields["results"] = (fields["results"],)
    if fields.get("sync"):
        fields["sync"] = directory(str(fields["sync"]), here.cwd)
    fields["cwd"] = directory(str(fields.get("cwd") or ""), here.cwd)
    if command is not None:
        fields["command"] = command_words(command)
    if script is not None:
        fields |= {"script": script, **kernel_fields()}
    return convert(fields)


def _read_memory(fields: dict[str, object]) -> None:
    for field in ("gpu_mem_bytes", "mem_per_node_bytes"):
        if field in fields:
            fields[field] = kinds.size(str(fields[field]), FLAG_OF_FIELD[field])
    if (mem := fields.pop("mem", None)) is not None:
        wanted = kinds.gpu_megabytes(str(mem))
        if fields.setdefault("gpu_mem_bytes", wanted) != wanted:
            raise InvalidRequest("contradiction", "--mem and --gpu-mem are both the memory of each GPU: leave one out.")


def _begin(begin: object, now: float) -> object:
    if isinstance(begin, datetime):
        return begin.timestamp()
    return kinds.begin_time(begin, now) if isinstance(begin, str) else begin


def kernel_fields() -> dict[str, object]:
    """Return this interpreter as the one that a cell would like best."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"kernel_python": sys.executable, "kernel_python_version": version} if sys.executable else {}


def directory(chdir: str, cwd: str) -> str:
    """Return `chdir` as seen from `cwd`, with `~` for the home."""
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(chdir)))


def convert(fields: Mapping[str, object]) -> JobSpec:
    """Return the checked request, or say in one sentence which flag is wrong."""
    try:
        spec = msgspec.convert(dict(fields), JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidRequest("bad-request", _sentence(str(error))) from error
    return check(spec)


def checked(spec: JobSpec) -> JobSpec:
    """Return `spec`, or say in one sentence which flag is wrong."""
    return convert({field: getattr(spec, field) for field in spec.__struct_fields__})


def _sentence(text: str) -> str:
    found = _PATH.match(text)
    if found is None:
        return f"The request is not valid: {text}."
    flag = FLAG_OF_FIELD.get(found["field"], "--" + found["field"].replace("_", "-"))
    what = found["what"].replace("`", "")
    if "matching regex" in what:
        what = "Some characters are not allowed here"
    example = EXAMPLE_OF_FIELD.get(found["field"])
    return f"{flag} is not valid: {what[:1].lower()}{what[1:]}{f'; write it like {flag} {example}' if example else ''}."
