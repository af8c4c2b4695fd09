"""The client: one method for each thing that the API does. Parses no flags and prints nothing."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, Unpack
from urllib.parse import quote

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError, NotFound
from mgpu_agent.protocol.ids import JOB_ID_PATTERN
from mgpu_jupyter.api import administration, models, traces
from mgpu_jupyter.api.routes import IDEMPOTENCY_HEADER
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.discovery import Address, Locator
from mgpu_jupyter.client.flags import Keywords
from mgpu_jupyter.client.folder import Sent, send_folder
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.histories import HistoryCalls
from mgpu_jupyter.client.inputs import with_inputs
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.login import Login
from mgpu_jupyter.client.spec import spec_of
from mgpu_jupyter.client.timeouts import Timeouts
from mgpu_jupyter.client.transport import HttpTransport, Request, Transport
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec, JobState

BULK_BODY_BYTES = models.MAX_BODY_BYTES * 3 // 4  # the server refuses more than the whole
_ENVELOPE_BYTES = 100  # a key and the braces around one job of a bulk


class Client(HistoryCalls):
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
        self.caller = Caller(transport or HttpTransport(Locator(url, token, env), self.timeouts), self.timeouts)

    @classmethod
    def of_login(cls, login: Login, *, timeouts: Timeouts | None = None) -> Self:
        """Return a client of the master that a login line names, whether the login is stored or not."""
        timeouts = timeouts or Timeouts()
        return cls(timeouts=timeouts, transport=HttpTransport(Locator.fixed(Address(login.url, login.token, login.pin)), timeouts))

    def use(self, timeouts: Timeouts) -> None:
        """Wait so long from now on."""
        self.timeouts = self.caller.timeouts = timeouts
        if isinstance(self.caller.transport, HttpTransport):
            self.caller.transport.timeouts = timeouts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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
        """Submit a command (argv, or one string for `bash -lc`) or a script; the keywords are the flags of `mgpu_srun`.

        With `array` or `sweep`, what is returned is a `JobArray`. A script finds `inputs` as its variables (`--in`), and leaves
        those named in `outputs` (`--out`), which `Job.result` brings.
        """
        spec, _, _ = with_inputs(self.caller, spec_of(command, script, keywords, Here.real()), inputs or {})
        return self.submit_spec(spec)

    def submit_spec(self, spec: JobSpec, *, key: str | None = None, retry_s: float | None = None) -> Job:
        """Submit `spec`, which the master checks; the same `key` means the same job, so that it may be sent again."""
        request = Request(
            method="POST",
            path="jobs",
            headers={IDEMPOTENCY_HEADER: key or new_key()},
            body=msgspec.json.encode(self._with_folder(spec)),
        )
        return self._job(self.caller.call(request, models.Submitted, retry_s=retry_s))

    def send_folder(self, path: str | os.PathLike[str]) -> Sent:
        """Send what the master does not have of a folder; a job whose `sync` is its digest has it as its directory."""
        return send_folder(self.caller, Path(path).expanduser().absolute())

    def _with_folder(self, spec: JobSpec) -> JobSpec:
        """Send the folder that a request names by its path, and name it by its digest."""
        return replace(spec, sync=self.send_folder(spec.sync).digest) if spec.sync.startswith("/") else spec

    def _job(self, answer: models.Submitted) -> Job:
        if answer.array_id is not None:
            return JobArray(self.caller, answer.array_id, answer.job_ids)
        return Job(self.caller, answer.job_id)

    def withdraw(self, spec: JobSpec, key: str) -> None:
        """Take back a submit whose answer never came; gives up quietly when nobody answers."""
        try:
            self.submit_spec(spec, key=key, retry_s=self.timeouts.withdraw_s).cancel(retry_s=self.timeouts.withdraw_s)
        except MgpuError:
            return

    def submit_many(self, jobs: Iterable[JobSpec | Mapping[str, object] | Sequence[str] | str], **keywords: Unpack[Keywords]) -> list[Job]:
        """Submit many jobs in few requests: specs, keywords of `submit`, or commands to which `keywords` apply.

        Each request is accepted whole or not at all; more than 10,000 jobs or 12 MB take several requests.
        """
        here = Here.real()
        specs = [_spec_of_item(item, keywords, here) for item in jobs]
        sent = {path: self.send_folder(path).digest for path in dict.fromkeys(spec.sync for spec in specs) if path.startswith("/")}
        specs = [replace(spec, sync=sent.get(spec.sync, spec.sync)) for spec in specs]
        answers: list[Job] = []
        for part in _parts(specs):
            body = models.BulkSubmit(jobs=tuple(models.BulkItem(spec=spec, key=new_key()) for spec in part))
            request = Request(method="POST", path="jobs/bulk", body=msgspec.json.encode(body))
            answers += [self._job(item) for item in self.caller.call(request, models.BulkSubmitted).jobs]
        return answers

    def rerun(self, job_id: str) -> Job:
        """Submit a job once more as it was asked for; of an array, one of its jobs."""
        request = Request(method="POST", path=f"jobs/{job_id_of(job_id)}/rerun", headers={IDEMPOTENCY_HEADER: new_key()})
        return self._job(self.caller.call(request, models.Submitted))

    def replace(self, job_id: str, patch: Mapping[str, object]) -> Job:
        """Take an offer of `explain`: a job with these changes takes the place of one that waits, under a new id."""
        body = msgspec.json.encode(administration.ReplaceRequest(patch=dict(patch)))
        request = Request(method="POST", path=f"jobs/{job_id_of(job_id)}/replace", body=body, headers={IDEMPOTENCY_HEADER: new_key()})
        return self._job(self.caller.call(request, models.Submitted))

    def purge(
        self, older_than_s: float, *, user: str | None = None, everybody: bool = False, dry_run: bool = False
    ) -> administration.PurgeAnswer:
        """Forget jobs that ended so long ago, with their output; one's own, or for administrators those of others."""
        wish = administration.PurgeRequest(older_than_s=older_than_s, user=user, everybody=everybody, dry_run=dry_run)
        return self.caller.call(Request(method="POST", path="jobs/purge", body=msgspec.json.encode(wish)), administration.PurgeAnswer)

    # --- look ---------------------------------------------------------------------------------------

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
        """Iterate over jobs, newest first; `state` may be `active`, and `limit` bounds how many come in all."""
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
        """Return the whole way of a job; with `verify` its nodes are asked what is there now."""
        return Job(self.caller, job_id_of(job_id)).trace(verify=verify)

    def dry_run(
        self, command: Sequence[str] | str | None = None, *, script: str | None = None, **keywords: Unpack[Keywords]
    ) -> explanations.Explanation:
        """Return where and when a request would start, and why not now; the keywords are those of `submit`, which is not done."""
        return self.dry_run_spec(spec_of(command, script, keywords, Here.real()))

    def dry_run_spec(self, spec: JobSpec) -> explanations.Explanation:
        """Return the same for a request as a value."""
        request = Request(method="POST", path="jobs/dry-run", body=msgspec.json.encode(replace(spec, sync="")))
        return self.caller.call(request, explanations.Explanation)

    def nodes(self) -> tuple[models.Node, ...]:
        """Return all nodes and their GPUs."""
        return self.node_list().nodes

    def node_list(self) -> models.NodeList:
        """Return all nodes, and those that the cluster's file lists and that never joined."""
        return self.caller.call(Request(path="nodes"), models.NodeList)

    def cluster(self) -> models.Cluster:
        """Return the pool in numbers, and who you are in it."""
        return self.caller.call(Request(path="cluster"), models.Cluster)

    def health(self) -> models.Health:
        """Return whether the master works."""
        return self.caller.call(Request(path="health"), models.Health)

    def join_token(self, *, node_id: str | None = None, ttl_s: float = 3600.0, listen: Sequence[str] = ()) -> models.JoinToken:
        """Return a line that lets one machine join once; for administrators."""
        body = msgspec.json.encode(models.JoinTokenRequest(node_id=node_id, ttl_s=ttl_s, listen=tuple(listen)))
        return self.caller.call(Request(method="POST", path="join-tokens", body=body), models.JoinToken)

    def revoke_node(self, node_id: str, reason: str = "") -> administration.NodeActionAnswer:
        """Refuse a node from now on; what it runs is lost to it. For administrators."""
        return self.change_node(node_id, "revoke", reason)

    def change_node(
        self,
        node_id: str,
        action: administration.NodeActionName,
        reason: str = "",
        *,
        users: Sequence[str] = (),
        accounts: Sequence[str] = (),
        labels: Mapping[str, str | None] | None = None,
    ) -> administration.NodeActionAnswer:
        """Drain, resume, maintain, label or remove a node, or say who may use it; for administrators."""
        change = administration.NodeAction(
            action=action, reason=reason, users=tuple(users), accounts=tuple(accounts), labels=dict(labels or {})
        )
        request = Request(method="PATCH", path=f"nodes/{quote(node_id, safe='')}", body=msgspec.json.encode(change))
        return self.caller.call(request, administration.NodeActionAnswer)

    def ping_node(self, node_id: str) -> traces.NodePing:
        """Ask a node's agent who it is, through its link, with times and versions."""
        return self.caller.call(Request(method="POST", path=f"nodes/{quote(node_id, safe='')}/ping"), traces.NodePing)

    def remove_node(self, node_id: str) -> administration.NodeActionAnswer:
        """Forget a node that is offline and holds nothing; for administrators."""
        return self.caller.call(Request(method="DELETE", path=f"nodes/{quote(node_id, safe='')}"), administration.NodeActionAnswer)

    def users(self) -> tuple[administration.User, ...]:
        """Return the users of a shared master; for administrators."""
        return self.caller.call(Request(path="users"), administration.UserList).users

    def add_user(self, name: str, *, admin: bool = False, ttl_s: float | None = None) -> administration.NewLogin:
        """Add a user to a shared master and return the line to log in with, once; for administrators."""
        try:
            body = msgspec.convert({"name": name, "role": "admin" if admin else "user", "ttl_s": ttl_s}, administration.NewUser)
        except msgspec.ValidationError as error:
            raise InvalidRequest("bad-user", f"{name!r} cannot be a user's name: use letters, digits and . _ @ - (64 at most).") from error
        # Sent once: a second try after a lost answer would find the name taken.
        return self.caller.call(Request(method="POST", path="users", body=msgspec.json.encode(body)), administration.NewLogin, retry_s=0)

    def remove_user(self, name: str) -> administration.User:
        """Remove a user and all their logins; for administrators."""
        return self.caller.call(Request(method="DELETE", path=f"users/{name}"), administration.User)

    def handle(self, job_id: str) -> Job:
        """Return a handle for orders about the job or array of that id, without asking whether there is one."""
        return Job(self.caller, job_id_of(job_id))

    def cancel(self, job_id: str) -> models.CancelAnswer:
        """Cancel a job or array; the end follows by itself."""
        return self.handle(job_id).cancel()


def job_id_of(text: str) -> str:
    """Return a job id as someone typed it, or say that it is none: it becomes a part of a URL."""
    job_id = text.strip().upper()
    if not re.fullmatch(JOB_ID_PATTERN, job_id):
        raise NotFound("no-such-job", f"{text[:50]!r} is no job id (eight characters A-Z and 0-9): see `mgpu_queue --all`.")
    return job_id


def new_key() -> str:
    """Return a fresh idempotency key."""
    return uuid.uuid4().hex


def _spec_of_item(item: JobSpec | Mapping[str, object] | Sequence[str] | str, keywords: Mapping[str, object], here: Here) -> JobSpec:
    if isinstance(item, JobSpec):
        return item
    if isinstance(item, Mapping):
        merged = {**keywords, **item}
        command, script = merged.pop("command", None), merged.pop("script", None)
        words = command if command is None or isinstance(command, str) else [str(word) for word in _items(command)]
        return spec_of(words, None if script is None else str(script), merged, here)
    return spec_of(item, None, keywords, here)


def _items(command: object) -> Iterable[object]:
    return command if isinstance(command, Iterable) else (command,)


def _parts(specs: list[JobSpec]) -> Iterator[list[JobSpec]]:
    part: list[JobSpec] = []
    size = 0
    for spec in specs:
        weight = len(msgspec.json.encode(spec)) + _ENVELOPE_BYTES
        if part and (len(part) == models.MAX_BULK or size + weight > BULK_BODY_BYTES):
            yield part
            part, size = [], 0
        part.append(spec)
        size += weight
    if part:
        yield part
