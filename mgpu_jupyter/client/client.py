"""The client: one method for each function of the API. Parses no flags and prints nothing."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import MgpuError, NotFound
from mgpu_agent.protocol.ids import JOB_ID_PATTERN
from mgpu_jupyter.api import models, requests, traces
from mgpu_jupyter.api.histories import ClusterHistory, NodeHistory
from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER
from mgpu_jupyter.client.admin import Admin
from mgpu_jupyter.client.array import JobArray, flat
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.discovery import Address, Locator
from mgpu_jupyter.client.flags import Keywords
from mgpu_jupyter.client.folder import SentFolder, send_folder
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.inputs import with_inputs
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.job_ends import wait_for
from mgpu_jupyter.client.login import Login
from mgpu_jupyter.client.spec import spec_of
from mgpu_jupyter.client.transport import HttpTransport, Request, Timeouts, Transport
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.explanations import NodeOutlook
from mgpu_jupyter.model.job import JobSpec, JobState

BULK_BODY_BYTES = models.MAX_BODY_BYTES * 3 // 4  # the server refuses more than the whole
_ENVELOPE_BYTES = 100  # a key and the braces around one job of a bulk


class Client:
    """Speaks to the mgpu master; `Client()` finds it by itself. Safe to use from several threads."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        *,
        timeouts: Timeouts | None = None,
        transport: Transport | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.timeouts = timeouts or Timeouts()
        self.caller = Caller(
            transport or HttpTransport(Locator(url, token, env), self.timeouts), self.timeouts
        )
        self.admin = Admin(self.caller)
        """Functions for administrators."""

    @classmethod
    def of_login(cls, login: Login, *, timeouts: Timeouts | None = None) -> Self:
        """Return a client of the master in a login line, whether the login is stored or not."""
        timeouts = timeouts or Timeouts()
        return cls(
            timeouts=timeouts,
            transport=HttpTransport(Locator.fixed(Address(login.url, login.token, login.pin)), timeouts),
        )

    def use(self, timeouts: Timeouts) -> None:
        """Use these timeouts from now on."""
        self.timeouts = self.caller.timeouts = timeouts
        if isinstance(self.caller.transport, HttpTransport):
            self.caller.transport.timeouts = timeouts

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; a later call opens new ones."""
        self.caller.transport.close()

    # --- submit -------------------------------------------------------------------------------------

    def submit(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        inputs: Mapping[str, object] | None = None,
        **keywords: Unpack[Keywords],
    ) -> Job:
        """Submit a command (argv, or a string for `bash -lc`) or a script; keywords are flags of `mgpu_srun`.

        With `array` or `sweep`, a `JobArray` is returned. A script has `inputs` as its variables
        (`--in`), and returns those named in `outputs` (`--out`), which `Job.result` fetches.
        """
        spec, _, _ = with_inputs(self.caller, spec_of(command, script, keywords, Here.real()), inputs or {})
        return self.submit_spec(spec)

    def submit_spec(self, spec: JobSpec, *, key: str | None = None, retry_s: float | None = None) -> Job:
        """Submit `spec`, which the master checks; the same `key` is the same job, so it may be sent again."""
        request = Request(
            method="POST",
            path="jobs",
            headers={IDEMPOTENCY_HEADER: key or new_key()},
            body=msgspec.json.encode(self._with_folder(spec)),
        )
        return self._job(self.caller.call(request, requests.Submitted, retry_s=retry_s))

    def send_folder(self, path: str | os.PathLike[str]) -> SentFolder:
        """Send the missing parts of a folder; a job whose `sync` is its digest has it as working
        directory.
        """
        return send_folder(self.caller, Path(path).expanduser().absolute())

    def _with_folder(self, spec: JobSpec) -> JobSpec:
        """Send the folder that a request names by its path, and name it by its digest instead."""
        return replace(spec, sync=self.send_folder(spec.sync).digest) if spec.sync.startswith("/") else spec

    def _job(self, answer: requests.Submitted) -> Job:
        if answer.array_id is not None:
            return JobArray(self.caller, answer.array_id, answer.job_ids)
        return Job(self.caller, answer.job_id)

    def withdraw(self, spec: JobSpec, key: str) -> None:
        """Withdraw a submit whose answer never came; gives up silently when nobody answers."""
        try:
            self.submit_spec(spec, key=key, retry_s=self.timeouts.withdraw_s).cancel(
                retry_s=self.timeouts.withdraw_s
            )
        except MgpuError:
            return

    def submit_many(
        self,
        jobs: Iterable[JobSpec | Mapping[str, object] | Sequence[str] | str],
        **keywords: Unpack[Keywords],
    ) -> list[Job]:
        """Submit many jobs in few requests: specs, keywords of `submit`, or commands with these `keywords`.

        Each request is accepted whole or not at all; more than 10,000 jobs or 12 MB take several requests.
        """
        here = Here.real()
        specs = [_spec_of_item(item, keywords, here) for item in jobs]
        sent = {
            path: self.send_folder(path).digest
            for path in dict.fromkeys(spec.sync for spec in specs)
            if path.startswith("/")
        }
        specs = [replace(spec, sync=sent.get(spec.sync, spec.sync)) for spec in specs]
        answers: list[Job] = []
        for part in _parts(specs):
            body = requests.BulkSubmit(
                jobs=tuple(requests.BulkItem(spec=spec, key=new_key()) for spec in part)
            )
            request = Request(method="POST", path="jobs/bulk", body=msgspec.json.encode(body))
            answers += [self._job(item) for item in self.caller.call(request, requests.BulkSubmitted).jobs]
        return answers

    def rerun(self, job_id: str) -> Job:
        """Submit the request of a job again; of an array, that of one of its jobs."""
        request = Request(
            method="POST", path=f"jobs/{job_id_of(job_id)}/rerun", headers={IDEMPOTENCY_HEADER: new_key()}
        )
        return self._job(self.caller.call(request, requests.Submitted))

    def replace(self, job_id: str, patch: Mapping[str, object]) -> Job:
        """Take an offer of `explain`: a job with these changes, under a new id, replaces a waiting one."""
        body = msgspec.json.encode(requests.ReplaceRequest(patch=dict(patch)))
        request = Request(
            method="POST",
            path=f"jobs/{job_id_of(job_id)}/replace",
            body=body,
            headers={IDEMPOTENCY_HEADER: new_key()},
        )
        return self._job(self.caller.call(request, requests.Submitted))

    # --- read ---------------------------------------------------------------------------------------

    def job(self, job_id: str) -> Job:
        """Return the job of that id."""
        job = Job(self.caller, job_id_of(job_id))
        job.refresh()
        return job

    def jobs(
        self,
        *,
        state: JobState | str | Iterable[str] | None = None,
        user: str | None = None,
        name: str | None = None,
        since: float | None = None,
        array: str | None = None,
        notebook: str | None = None,
        limit: int | None = None,
    ) -> Iterator[Job]:
        """Iterate over jobs, newest first; `state` may be `active`, and `limit` bounds their number."""
        left = limit
        query: dict[str, str] = {}
        if state is not None:
            query["state"] = str(state) if isinstance(state, str) else ",".join(str(one) for one in state)
        if user is not None:
            query["user"] = user
        if name is not None:
            query["name"] = name
        if since is not None:
            query["since"] = repr(since)
        if array is not None:
            query["array"] = array
        if notebook is not None:
            query["notebook"] = notebook
        while left is None or left > 0:
            query["limit"] = str(models.MAX_PAGE if left is None else min(left, models.MAX_PAGE))
            page = self.caller.call(Request(path="jobs", query=dict(query)), models.JobList)
            for info in page.jobs[:left]:
                yield Job(self.caller, info.id, info)
            if page.next_cursor is None:
                return
            query["cursor"] = page.next_cursor
            left = None if left is None else left - len(page.jobs)

    def wait(self, jobs: Iterable[Job], timeout: float | None = None) -> list[Job]:
        """Wait until all jobs, and all of each array, are over, by one request; return them in their order.

        More than `timeout` seconds raise `TimeoutError`, and the jobs go on.
        """
        every = list(flat(jobs))
        wait_for(every, timeout)
        return every

    def array(self, array_id: str) -> JobArray:
        """Return the array (or sweep) of that id."""
        found = list(self.jobs(array=job_id_of(array_id)))
        if not found:
            raise NotFound("no-such-job", f"There is no array {array_id}: see `mgpu_queue --all`.")
        array = JobArray(self.caller, job_id_of(array_id), tuple(job.id for job in reversed(found)))
        for job, seen in zip(array.jobs, reversed(found), strict=True):
            job.snapshot = seen.snapshot
        return array

    def explain(self, job_id: str) -> explanations.Explanation:
        """Return why a job waits, what would start it now, and what it was told before."""
        return Job(self.caller, job_id_of(job_id)).explain()

    def trace(self, job_id: str, *, verify: bool = False) -> traces.Trace:
        """Return the whole trace of a job; with `verify` its nodes are asked for their present state."""
        return Job(self.caller, job_id_of(job_id)).trace(verify=verify)

    def dry_run(
        self,
        command: Sequence[str] | str | None = None,
        *,
        script: str | None = None,
        **keywords: Unpack[Keywords],
    ) -> explanations.Explanation:
        """Return where and when a request would start, and why not now; takes the arguments of `submit`."""
        return self.dry_run_spec(spec_of(command, script, keywords, Here.real()))

    def dry_run_spec(self, spec: JobSpec) -> explanations.Explanation:
        """Return the same for a request as a value."""
        request = Request(
            method="POST", path="jobs/dry-run", body=msgspec.json.encode(replace(spec, sync=""))
        )
        return self.caller.call(request, explanations.Explanation)

    def nodes(self) -> tuple[models.Node, ...]:
        """Return all nodes and their GPUs."""
        return self.node_list().nodes

    def node_list(self) -> models.NodeList:
        """Return all nodes, and those that the cluster's file lists and that never joined."""
        return self.caller.call(Request(path="nodes"), models.NodeList)

    def cluster(self) -> models.Cluster:
        """Return the pool in numbers, and your user in it."""
        return self.caller.call(Request(path="cluster"), models.Cluster)

    def health(self) -> models.Health:
        """Return whether the master works."""
        return self.caller.call(Request(path="health"), models.Health)

    def cluster_history(self, *, span: float = 86_400.0, points: int = 300) -> ClusterHistory:
        """Return GPUs in use and busy, waiting jobs, wait times and ends of the last `span` seconds."""
        return self.caller.call(Request(path="cluster/history", query=_span(span, points)), ClusterHistory)

    def node_history(self, node_id: str, *, span: float = 600.0, points: int = 300) -> NodeHistory:
        """Return how busy a node and its GPUs were in the last `span` seconds."""
        return self.caller.call(
            Request(path=f"nodes/{node_id}/history", query=_span(span, points)), NodeHistory
        )

    def node_outlook(self, node_id: str) -> NodeOutlook:
        """Return the jobs that are expected on a node."""
        return self.caller.call(Request(path=f"nodes/{node_id}/outlook"), NodeOutlook)

    def handle(self, job_id: str) -> Job:
        """Return a handle for orders about the job or array of that id, without asking whether it exists."""
        return Job(self.caller, job_id_of(job_id))

    def cancel(self, job_id: str) -> requests.CancelAnswer:
        """Cancel a job or array; the end follows by itself."""
        return self.handle(job_id).cancel()


def _span(span: float, points: int) -> dict[str, str]:
    return {"span": str(round(span)), "points": str(points)}


def job_id_of(text: str) -> str:
    """Return a typed job id in its normal form, or refuse it: it becomes a part of a URL."""
    job_id = text.strip().upper()
    if not re.fullmatch(JOB_ID_PATTERN, job_id):
        raise NotFound(
            "no-such-job",
            f"{text[:50]!r} is no job id (eight characters A-Z and 0-9): see `mgpu_queue --all`.",
        )
    return job_id


def new_key() -> str:
    """Return a fresh idempotency key."""
    return uuid.uuid4().hex


def _spec_of_item(
    item: JobSpec | Mapping[str, object] | Sequence[str] | str, keywords: Mapping[str, object], here: Here
) -> JobSpec:
    if isinstance(item, JobSpec):
        return item
    if isinstance(item, Mapping):
        merged = {**keywords, **item}
        command, script = merged.pop("command", None), merged.pop("script", None)
        words = (
            command
            if command is None or isinstance(command, str)
            else [str(word) for word in _items(command)]
        )
        return spec_of(words, None if script is None else str(script), merged, here)
    return spec_of(item, None, keywords, here)


def _items(command: object) -> Iterable[object]:
    return command if isinstance(command, Iterable) else (command,)


def _parts(specs: list[JobSpec]) -> Iterator[list[JobSpec]]:
    part: list[JobSpec] = []
    size = 0
    for spec in specs:
        weight = len(msgspec.json.encode(spec)) + _ENVELOPE_BYTES
        if part and (len(part) == requests.MAX_BULK or size + weight > BULK_BODY_BYTES):
            yield part
            part, size = [], 0
        part.append(spec)
        size += weight
    if part:
        yield part
