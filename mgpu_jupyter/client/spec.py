"""From words and keywords to a checked `JobSpec`. Sends nothing."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec

FLAG_OF_FIELD = {
    "time_limit_s": "--time-limit",
    "cwd": "--chdir",
    "command": "the command",
    "script": "the cell",
    "kernel_python": "the kernel's interpreter",
    "kernel_python_version": "the kernel's version",
}
KEYWORDS = (
    "name",
    "gpus",
    "nodes",
    "gpus_per_node",
    "nodelist",
    "exclude",
    "cpus",
    "priority",
    "env",
    "python",
    "requeue",
    "wait_for_nodes",
)
RENAMED = {"time_limit": "time_limit_s", "chdir": "cwd"}
_PATH = re.compile(r"^(?P<what>.*) - at (?:`key` in )?`\$\.(?P<field>\w+)[^`]*`$", re.DOTALL)


def command_words(command: Sequence[str] | str) -> tuple[str, ...]:
    """Return argv; one string with blanks runs under `bash -lc`."""
    words = (command,) if isinstance(command, str) else tuple(command)
    if len(words) == 1 and len(words[0].split()) > 1:
        return ("bash", "-lc", words[0])
    return words


def spec_of(command: Sequence[str] | str | None, script: str | None, keywords: Mapping[str, object], cwd: str | None = None) -> JobSpec:
    """Return the request that `Client.submit` means; `cwd` is the submitter's directory."""
    fields: dict[str, object] = {}
    for key, value in keywords.items():
        if key not in KEYWORDS and key not in RENAMED:
            raise InvalidRequest("unknown-keyword", f"There is no keyword {key!r}: the keywords are {', '.join((*KEYWORDS, *RENAMED))}.")
        if value is not None:
            fields[RENAMED.get(key, key)] = value
    for key in ("nodelist", "exclude"):
        if isinstance(names := fields.get(key), str):
            fields[key] = split_names(names)
    if (chdir := fields.pop("cwd", None)) or cwd:
        fields["cwd"] = directory(str(chdir) if chdir else "", cwd or os.getcwd())
    if command is not None:
        fields["command"] = command_words(command)
    if script is not None:
        fields |= {"script": script, **kernel_fields()}
    return convert(fields)


def kernel_fields() -> dict[str, object]:
    """Return this interpreter as the one that a cell would like best."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return {"kernel_python": sys.executable, "kernel_python_version": version} if sys.executable else {}


def directory(chdir: str, cwd: str) -> str:
    """Return `chdir` as seen from `cwd`, with `~` for the home."""
    return os.path.normpath(os.path.join(cwd, os.path.expanduser(chdir)))


def split_names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


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
    return f"{flag} is not valid: {what[:1].lower()}{what[1:]}."
