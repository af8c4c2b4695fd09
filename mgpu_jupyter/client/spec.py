"""From words and keywords to a checked `JobSpec`. Sends nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client import values as kinds
from mgpu_jupyter.client.flags import ALL, BY_FIELD, KEYWORDS
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.line import OPERATORS, in_shell
from mgpu_jupyter.client.naming import cell_name
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.mistakes import Mistake, mistake_of
from mgpu_jupyter.model.sweep import array_of

OTHER_FIELDS = {
    "command": "the command",
    "script": "the cell",
    "kernel_python": "the kernel's interpreter",
    "kernel_python_version": "the kernel's version",
}
"""The names in messages of fields that no flag fills."""
SECRET_VARIABLES = frozenset(("MGPU_TOKEN",))
NODE_FIELDS = tuple(flag.field for flag in ALL if flag.names_nodes)
_FIELD = re.compile(r"\.(\w+)")


def command_words(command: Sequence[str] | str) -> tuple[str, ...]:
    """Return argv; one string with spaces, or that joins commands, runs under `bash -lc`."""
    words = (command,) if isinstance(command, str) else tuple(command)
    if len(words) == 1 and (len(words[0].split()) > 1 or OPERATORS & set(words[0])):
        return tuple(in_shell(words[0]))
    return words


def spec_of(
    command: Sequence[str] | str | None, script: str | None, keywords: Mapping[str, object], here: Here
) -> JobSpec:
    """Return the request of these flags or keywords of `Client.submit`."""
    fields = _fields_of(keywords, here)
    if sweep := fields.get("sweep"):
        lines, limit = kinds.sweep_limit(sweep)
        fields["sweep"] = found = kinds.sweep(lines)
        fields["array"] = array_of(found, str(fields.get("array") or limit))
    if isinstance(begin := fields.get("begin_at"), datetime):
        fields["begin_at"] = begin.timestamp()
    if fields.get("gpu_ids") and here.host and not any(fields.get(field) for field in NODE_FIELDS):
        fields["home"] = here.host
    if isinstance(fields.get("results"), str):
        fields["results"] = (fields["results"],)
    if isinstance(env := fields.get("env"), Mapping):
        for name in SECRET_VARIABLES & env.keys():
            raise InvalidRequest(
                "secret", f"{name} never enters a job: give the job a token of its own under another name."
            )
    if fields.get("sync"):
        fields["sync"] = here.path(str(fields["sync"]))
    if here.cwd or fields.get("cwd"):
        fields["cwd"] = here.path(str(fields.get("cwd") or ""))
    if command is not None:
        fields["command"] = command_words(command)
    if script is not None:
        fields |= {"script": script, **here.kernel_fields}
        fields["name"] = fields.get("name") or cell_name(script, here.notebook, here.count)
    return convert(fields)


def _fields_of(keywords: Mapping[str, object], here: Here) -> dict[str, object]:
    """Return the fields of a request, as far as each flag determines them by itself."""
    fields: dict[str, object] = {}
    for key, value in keywords.items():
        if (flag := KEYWORDS.get(key)) is None:
            raise InvalidRequest(
                "unknown-keyword", f"There is no keyword {key!r}: the keywords are {', '.join(KEYWORDS)}."
            )
        if value is not None and fields.setdefault(flag.field, read := flag.read(value, here)) != read:
            raise InvalidRequest(
                "contradiction",
                f"{BY_FIELD[flag.field].names[0]} and {flag.names[0]} say the same: leave one out.",
            )
    return fields


def convert(fields: Mapping[str, object]) -> JobSpec:
    """Return the checked request, or raise one sentence about the flag that is wrong."""
    try:
        spec = msgspec.convert(dict(fields), JobSpec)
    except msgspec.ValidationError as error:
        raise InvalidRequest("bad-request", _sentence(mistake_of(error))) from error
    return check(spec)


def _sentence(mistake: Mistake) -> str:
    field = _FIELD.match(mistake.path)
    if field is None:
        return f"The request is not valid: {mistake.what}."
    known = BY_FIELD.get(field[1])
    flag = (
        OTHER_FIELDS.get(field[1], field[1])
        if known is None
        else known.names[0]
        if known.names
        else known.dest
    )
    example = "" if known is None else known.example
    return f"{flag} is not valid: {mistake.what}{f'; write it like {flag} {example}' if example else ''}."
