"""Files that a job writes its output to, by `--output` and `--error`: what their patterns mean, who shares
one. Pure: opens nothing.

The letters are Slurm's. Two things are mgpu's own: a job's id is no number, so that it is never filled up
with zeros, and what would be two parts of a path in a job's name is one.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.job import JobSpec

_PATTERN = re.compile(r"%(?P<width>\d*)(?P<letter>.?)", re.DOTALL)
NUMBERS = "antsb"
LETTERS = "jJAaNntxusb%"
MAX_WIDTH = 10


def check_files(spec: JobSpec) -> None:
    """Refuse names that no file can have, and what goes with no file."""
    for flag, name in (("--output", spec.stdout_file), ("--error", spec.stderr_file)):
        if name:
            _check(flag, name, spec)
    if spec.open_mode and not (spec.stdout_file or spec.stderr_file):
        raise InvalidRequest("no-file", "--open-mode says how a file is opened: name one by --output FILE.")


def _check(flag: str, name: str, spec: JobSpec) -> None:
    for found in _PATTERN.finditer(name):
        if found["letter"] == "" or found["letter"] not in LETTERS:
            raise InvalidRequest(
                "bad-pattern",
                f"{flag} {name}: {found[0]} stands for nothing; use %j (job), %A and %a (array), %N (node), "
                f"%t (rank), %x (name), %u (user) or %% for a percent sign.",
            )
    if name.endswith("/"):
        text = f"{flag} {name} is a directory: add the name of a file, like %j.out."
        raise InvalidRequest("bad-file", text)
    if spec.pty:
        raise InvalidRequest(
            "contradiction", f"{flag} and --pty exclude each other: what a terminal shows is in no file."
        )
    if spec.sync and not spec.results and not name.startswith("/"):
        raise InvalidRequest(
            "file-would-go",
            f"{flag} {name} would be in the copy of the --sync folder, which goes with the job: add "
            f"--results to collect it, or write a path that begins with /.",
        )


def values_of(
    job_id: str, name: str, user: str, *, array: tuple[str, int] | None, node: tuple[str, int], rank: int
) -> dict[str, str]:
    """Return what each letter stands for in one process; `array` and `node` are a name and a number in it."""
    array_id, index = array or (job_id, 0)
    return {
        "j": job_id,
        "J": f"{job_id}.0",
        "A": array_id,
        "a": str(index),
        "b": str(index % 10),
        "s": "0",
        "N": node[0],
        "n": str(node[1]),
        "t": str(rank),
        "x": (name or job_id).replace("/", "_"),
        "u": user,
        "%": "%",
    }


def name_of(pattern: str, values: Mapping[str, str]) -> str:
    """Return the file that a pattern means."""

    def put(found: re.Match[str]) -> str:
        value = values[found["letter"]]
        width = min(int(found["width"] or 0), MAX_WIDTH) if found["letter"] in NUMBERS else 0
        return value.zfill(width)

    return _PATTERN.sub(put, pattern)


def is_shared(pattern: str, *, tasks: int, nodes: int, in_array: bool) -> bool:
    """Tell whether several processes write to the file of this pattern, of one job or of one array."""
    letters = {found["letter"] for found in _PATTERN.finditer(pattern)}
    if in_array and not letters & set("ajJ"):
        return True
    return tasks > 1 and "t" not in letters and not (tasks == nodes and letters & set("Nn"))
