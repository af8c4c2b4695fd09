"""Files that jobs left for their users, as plain files: one directory for each node of an attempt, and an
index once all is there.

Files have numbers as names; their real names are in the index only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import msgspec

from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.places import make_private_dir, write_private_file
from mgpu_jupyter.master.keeping import Index

INDEX = "index.json"


class ResultStore:
    """Results below one directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def directory(self, job_id: JobId, attempt: int, node_id: NodeId) -> Path:
        """Return the directory of one node's files, which are named by number."""
        return self._root / job_id[:2] / f"{job_id}.{attempt}" / node_id

    def make_directory(self, job_id: JobId, attempt: int, node_id: NodeId) -> Path:
        """Make that directory, empty."""
        make_private_dir(self._root)
        path = self.directory(job_id, attempt, node_id)
        shutil.rmtree(path, ignore_errors=True)
        return make_private_dir(path)

    def index(self, job_id: JobId, attempt: int, node_id: NodeId) -> Index | None:
        """Return the index of a node's files, once all of them are here."""
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(
                (self.directory(job_id, attempt, node_id) / INDEX).read_bytes(), type=Index
            )
        return None

    def finish(self, job_id: JobId, attempt: int, index: Index) -> None:
        """Bring all files to disk, and then write the index."""
        directory = self.directory(job_id, attempt, index.node_id)
        for number, kept in enumerate(index.files):
            if not kept.problem:
                descriptor = os.open(directory / str(number), os.O_RDONLY)
                os.fsync(descriptor)
                os.close(descriptor)
        reach("results.index")
        write_private_file(directory / INDEX, msgspec.json.encode(index))


def result_directories(root: Path, job_id: JobId) -> list[Path]:
    """Return the directories with results of all attempts of a job."""
    return list((root / job_id[:2]).glob(f"{job_id}.*"))
