"""Files that a job left, brought here: in parts, each file compared with its SHA-256 and fetched again when it differs."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path, PurePosixPath

from mgpu_agent.protocol.errors import EngineError, NotFound
from mgpu_jupyter.api import results
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.transport import Request

PART_BYTES = 8 * 1024 * 1024
MAX_TRIES = 3
LOOK_S = 0.3


def wait_for_results(caller: Caller, job_id: str, timeout: float | None) -> results.ResultList:
    """Return what a job left once nothing more is to come."""
    deadline = None if timeout is None else time.monotonic() + timeout
    while True:
        found = caller.call(Request(path=f"jobs/{job_id}/results"), results.ResultList)
        if found.complete:
            return found
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError(f"Not all results of job {job_id} are here after {timeout:g} s: try again later.")
        time.sleep(LOOK_S)


def download(caller: Caller, found: results.ResultList, to: Path) -> list[Path]:
    """Bring all files of a list into a directory and return where they are."""
    nodes = {file.node for file in found.files}
    written = []
    for file in found.files:
        if file.problem:
            continue
        written.append(_fetch(caller, found.job_id, file, place_of(file, to if len(nodes) == 1 else to / file.node)))
    return written


def place_of(file: results.Result, directory: Path) -> Path:
    """Return where a file goes; never outside of the directory."""
    parts = [part for part in PurePosixPath(file.path).parts if part not in ("/", "..", ".")]
    if not parts:
        raise NotFound("no-such-result", f"A file of {file.node} has no name: it is left there.")
    return directory.joinpath(*parts)


def _fetch(caller: Caller, job_id: str, file: results.Result, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    for _ in range(MAX_TRIES):
        digest = hashlib.sha256()
        offset = 0
        with part.open("wb") as target:
            while offset < file.size:
                query = {"node": file.node, "number": str(file.number), "offset": str(offset), "limit": str(PART_BYTES)}
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
    raise EngineError("damaged", f"{file.path} arrived with another SHA-256 {MAX_TRIES} times: look at the master's disk.")
