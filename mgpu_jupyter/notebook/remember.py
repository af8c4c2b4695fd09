"""Which notebook and cell this is, and which of their jobs still run. A notebook itself remembers its jobs in
the metadata of outputs.

Front ends tell a kernel little: the notebook's path by a variable, the cell's id with each request. What is
unknown is left empty.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import FrameType
from typing import Any

from mgpu_agent.protocol.places import host_name
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.model.job import Origin, digest

SESSION = "JPY_SESSION_NAME"
"""Set by Jupyter's server: the notebook's path."""
VS_CODE = "__vsc_ipynb_file__"
"""A variable that VS Code sets in the notebook: the same."""
NOT_THE_SOURCE = ("--again",)
"""Words about how to proceed, not about what to run."""


def mark(job: Job | str) -> dict[str, object]:
    """Return the metadata of an output about a job, by which the notebook remembers it."""
    if isinstance(job, str):
        return {"mgpu": {"job_id": job}}
    return {"mgpu": {"job_id": str(job.id), **({"array": True} if isinstance(job, JobArray) else {})}}


class Memory:
    """Where one kernel's cells are, and what they submitted."""

    def __init__(self, shell: object, environ: Mapping[str, str] | None = None) -> None:
        self._shell = shell
        self._environ = os.environ if environ is None else environ
        self._request = ""
        self._submitted: set[str] = set()
        self._asked_about = ""
        self._came_from: dict[str, Origin] = {}
        """The origins of jobs (or arrays) that may still run, by id: fetched once for a notebook, then those
        of this kernel.
        """

    @property
    def notebook(self) -> str:
        """Return what stands for this notebook, or an empty text where nobody says which it is."""
        return digest(host_name(), os.path.abspath(self.path)) if self.path else ""

    @property
    def path(self) -> str:
        """Return where this notebook is, or an empty text where nobody says so."""
        namespace: Mapping[str, object] = getattr(self._shell, "user_ns", {})
        return str(self._environ.get(SESSION) or namespace.get(VS_CODE) or "")

    @property
    def here(self) -> Here:
        """Return where and when the running cell asks."""
        # The shell's own count is that of this cell or of the next one, depending on IPython's version.
        inputs = getattr(getattr(self._shell, "history_manager", None), "input_hist_parsed", ())
        return Here.real(notebook=self.path, count=max(0, len(inputs) - 1))

    def cell_number(self) -> int:
        """Return the number of the running cell, as in `In[8]`, or 0: of the calls that led here the first
        that IPython knows as a cell, because its own count is ahead in some versions.
        """
        name_of = getattr(getattr(self._shell, "compile", None), "format_code_name", lambda _: None)
        number = 0
        frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the only way to one's callers
        while frame is not None:
            label, name = name_of(frame.f_code.co_filename) or ("", "")
            if label == "Cell" and (found := re.fullmatch(r"In\[(\d+)\]", name)):
                number = int(found[1])
            frame = frame.f_back
        return number

    def origin(self, words: Sequence[str], cell: str | None) -> Origin | None:
        """Return the origin of a request of the running cell; None where no notebook is known."""
        if not self.notebook:
            return None
        source = digest(*(word for word in words if word not in NOT_THE_SOURCE), cell if cell else "-")
        return Origin(
            notebook=self.notebook,
            cell=digest(str(self._parent("metadata").get("cellId") or "")),
            source=source,
        )

    def submitted(self, job: Job, origin: Origin | None) -> None:
        """Note a job that the running cell submitted: a loop over the same line is not a second run of the
        cell.
        """
        request = str(self._parent("header").get("msg_id") or "")
        if request != self._request:
            self._submitted.clear()
        self._request = request
        self._submitted.add(str(job.id))
        if origin is not None:
            self._came_from[str(job.id)] = origin

    def still_runs(self, client: Client, origin: Origin | None) -> Job | None:
        """Return the newest job or array that an earlier run of this very cell submitted and that is not
        over.

        The master is asked at this kernel's first submit, for jobs of earlier kernels; and when the cell ran
        before.
        """
        if origin is None:
            return None
        if self._asked_about != origin.notebook:
            self._look(client, origin.notebook)
        request = str(self._parent("header").get("msg_id") or "")
        mine = self._submitted if request and request == self._request else set()
        if not self._earlier(origin, mine):
            return None
        jobs = self._look(client, origin.notebook)
        found = self._earlier(origin, mine)
        if found is None:
            return None
        return jobs[found] if jobs[found].id == found else client.array(found)

    def _look(self, client: Client, notebook: str) -> dict[str, Job]:
        """Find out which jobs (or arrays) of a notebook are not over, newest first."""
        jobs: dict[str, Job] = {}
        self._came_from = {}
        for job in client.jobs(state="active", notebook=notebook):
            info = job.snapshot
            if info is not None and info.origin is not None:
                key = str(info.array_id or info.id)
                jobs.setdefault(key, job)
                self._came_from.setdefault(key, info.origin)
        self._asked_about = notebook
        return jobs

    def _earlier(self, origin: Origin, mine: AbstractSet[str]) -> str | None:
        return next(
            (
                job_id
                for job_id, found in self._came_from.items()
                if job_id not in mine and origin.is_same_cell(found)
            ),
            None,
        )

    def _parent(self, part: str) -> Mapping[str, Any]:
        """Return a part of the front end's request that is being handled."""
        ask = getattr(self._shell, "get_parent", None)
        message = ask() if callable(ask) else {}
        found = message.get(part) if isinstance(message, Mapping) else None
        return found if isinstance(found, Mapping) else {}
