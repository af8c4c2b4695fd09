"""Fetches what a job left: variables of its cell and files, in parts, each compared with its SHA-256.

Reading variables executes their file, as pickles do. So it happens here, in the process of the user whose job
wrote it, and nowhere else.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath

import msgspec

from mgpu_agent.protocol import variable_file
from mgpu_agent.protocol.errors import Conflict, EngineError, InvalidRequest, NotFound
from mgpu_jupyter.api import files
from mgpu_jupyter.api.files import ValueFile, ValueList
from mgpu_jupyter.client import nearby
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model.job import JobState

PART_BYTES = 8 * 1024 * 1024
FETCHERS = 3
MAX_TRIES = 3
LOOK_S = (0.01, 0.06)
WAIT_S = 2  # the server may delay its answer by this long


class Brought(msgspec.Struct, frozen=True, kw_only=True):
    """What was fetched: the value by name, for several ranks a list; problems in words."""

    values: dict[str, object]
    sizes: dict[str, int]
    problems: dict[str, str]


def result_of(caller: Caller, job_id: str) -> object:
    """Return the variables that a job returned: one value, for several names a dict; raises why there is
    none.
    """
    listed = caller.call(Request(path=f"jobs/{job_id}/values"), ValueList)
    if not listed.outputs:
        raise InvalidRequest(
            "no-outputs",
            f"Job {job_id} was not asked for variables: name them with --out (outputs=[…] in Python).",
        )
    if not listed.state.is_final:
        raise Conflict(
            "not-over",
            f"Job {job_id} is {listed.state}, and its variables come with its end: job.wait() waits for "
            f"that.",
        )
    if listed.state is not JobState.COMPLETED:
        raise NotFound(
            "no-result",
            f"Job {job_id} left no variables, since it is {listed.state}: job.output() shows what it "
            f"printed.",
        )
    brought = bring(caller, job_id)
    for problem in brought.problems.values():
        raise NotFound("no-result", f"Job {job_id}: {problem}")
    return brought.values if len(listed.outputs) > 1 else brought.values[listed.outputs[0]]


def bring(caller: Caller, job_id: str, timeout_s: float | None = None) -> Brought:
    """Fetch the variables of a completed job; waits until all of them have arrived at the master."""
    listed = _wait(caller, job_id, timeout_s)
    files = {file.rank: _unpack(caller, job_id, file) for file in listed.files}
    found: dict[str, object] = {}
    sizes: dict[str, int] = {}
    problems: dict[str, str] = {}
    for name in listed.outputs:
        column = []
        for rank in range(listed.ranks):
            value, problem = _value(files.get(rank), name)
            if problem:
                problems.setdefault(name, f"rank {rank}: {problem}" if listed.ranks > 1 else problem)
            column.append(value)
        if name not in problems:
            found[name] = column if listed.ranks > 1 else column[0]
            sizes[name] = sum(
                file.sizes[name] for file in files.values() if isinstance(file, variable_file.Unpacked)
            )
    return Brought(values=found, sizes=sizes, problems=problems)


def _wait(caller: Caller, job_id: str, timeout_s: float | None) -> ValueList:
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    pause = LOOK_S[0]
    while True:
        listed = caller.call(Request(path=f"jobs/{job_id}/values", query={"wait": str(WAIT_S)}), ValueList)
        if listed.complete:
            return listed
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(
                f"Not all variables of job {job_id} are here after {timeout_s:g} s: job.result() tries again."
            )
        time.sleep(pause)
        pause = min(pause * 1.5, LOOK_S[1])


def _value(file: variable_file.Unpacked | str | None, name: str) -> tuple[object, str]:
    """Return a value, or a sentence about what is wrong with it."""
    if file is None:
        return None, f"`{name}` is not there: its process ended before it was written; see job.output()."
    if isinstance(file, str):
        return None, f"`{name}` did not arrive: {file}."
    if name in file.problems:
        return None, file.problems[name]
    try:
        return file.value(name), ""
    except Exception as error:  # noqa: BLE001 - whatever a class of the user's says when it is made anew
        here = variable_file.PYTHON
        other = "" if file.python == here else f" It was made by Python {file.python}, and this is {here}."
        return (
            None,
            (
                f"`{name}` cannot be made here ({type(error).__name__}: {error}).{other} Let the cell leave "
                f"plain data instead."
            ),
        )


def _unpack(caller: Caller, job_id: str, file: ValueFile) -> variable_file.Unpacked | str:
    if file.problem:
        return file.problem
    # A file that the master has verified and keeps on this machine can be used in place.
    memory = nearby.mapped(file.near, file.size)
    try:
        return variable_file.Unpacked(_fetched(caller, job_id, file) if memory is None else memory)
    except variable_file.Refused as error:
        return str(error)


def _fetched(caller: Caller, job_id: str, file: ValueFile) -> memoryview:
    for _ in range(MAX_TRIES):
        memory = memoryview(mmap.mmap(-1, file.size))
        digest = hashlib.sha256()
        for part in _parts(caller, job_id, file, memory):
            digest.update(part)
        if digest.hexdigest() == file.sha256:
            return memory
    raise EngineError(
        "damaged",
        f"The variables of rank {file.rank} arrived with another SHA-256 {MAX_TRIES} times: see the "
        f"master's disk.",
    )


def _parts(caller: Caller, job_id: str, file: ValueFile, memory: memoryview) -> Iterator[memoryview]:
    """Fetch a file into memory, several parts at a time, and yield them in order."""

    def fetch(offset: int) -> memoryview:
        wanted = min(PART_BYTES, file.size - offset)
        query = {"node": file.node, "number": str(file.number), "offset": str(offset), "limit": str(wanted)}
        part = memory[offset : offset + wanted]
        data = caller.send(Request(path=f"jobs/{job_id}/result", query=query, into=part)).body
        part[: len(data)] = data
        return part

    with ThreadPoolExecutor(FETCHERS, thread_name_prefix="mgpu-fetch") as fetchers:
        yield from fetchers.map(fetch, range(0, file.size, PART_BYTES))


RESULTS_LOOK_S = 0.3


def wait_for_results(caller: Caller, job_id: str, timeout: float | None) -> files.ResultList:
    """Return the list of results once it is complete."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        found = caller.call(Request(path=f"jobs/{job_id}/results"), files.ResultList)
        if found.complete:
            return found
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(
                f"Not all results of job {job_id} are here after {timeout:g} s: try again later."
            )
        time.sleep(RESULTS_LOOK_S)


def download(caller: Caller, found: files.ResultList, to: Path) -> list[Path]:
    """Fetch all files of a list into a directory and return their paths."""
    nodes = {file.node for file in found.files}
    written = []
    for file in found.files:
        if file.problem:
            continue
        written.append(
            _fetch(caller, found.job_id, file, place_of(file, to if len(nodes) == 1 else to / file.node))
        )
    return written


def place_of(file: files.Result, directory: Path) -> Path:
    """Return where a file is put; never outside the directory."""
    parts = [part for part in PurePosixPath(file.path).parts if part not in ("/", "..", ".")]
    if not parts:
        raise NotFound("no-such-result", f"A file of {file.node} has no name: it is left there.")
    return directory.joinpath(*parts)


def _fetch(caller: Caller, job_id: str, file: files.Result, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    for _ in range(MAX_TRIES):
        digest = hashlib.sha256()
        offset = 0
        with part.open("wb") as target:
            while offset < file.size:
                query = {
                    "node": file.node,
                    "number": str(file.number),
                    "offset": str(offset),
                    "limit": str(PART_BYTES),
                }
                data = caller.send(Request(path=f"jobs/{job_id}/result", query=query)).body
                if not data:
                    break
                target.write(data)
                digest.update(data)
                offset += len(data)
        if digest.hexdigest() == file.sha256:
            os.chmod(part, file.mode & 0o777 | 0o600)
            part.replace(path)
            return path
    part.unlink()
    raise EngineError(
        "damaged", f"{file.path} arrived with another SHA-256 {MAX_TRIES} times: look at the master's disk."
    )
