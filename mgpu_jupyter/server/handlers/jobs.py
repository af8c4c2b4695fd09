"""Jobs: submit, parse a line, list, show, explain, change, replace, cancel, requeue, purge.

Each method reads the request, makes one call, answers. Parsing a line submits nothing, and no variable,
directory or host of this server enters the request.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_agent.protocol.failpoints import reach
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import administration, models, requests
from mgpu_jupyter.api.requests import ReplaceRequest
from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER, PREFIX
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.line import read_line
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.client.request import Submission, parse
from mgpu_jupyter.master.ports import JobFilter
from mgpu_jupyter.model.job import FINAL_STATES, JobSpec, JobState
from mgpu_jupyter.model.mistakes import about_body
from mgpu_jupyter.scheduler.events import JobChanged
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.server.handlers.base import Guarded
from mgpu_jupyter.server.handlers.reading import job_id_of
from mgpu_jupyter.server.limits import Cost
from mgpu_jupyter.server.retention import purge

ACTIVE = "active"
DEFAULT_PAGE = 100
_WAY = [
    *(state for state in JobState if state not in FINAL_STATES),
    JobState.CANCELLED,
    *(FINAL_STATES - {JobState.CANCELLED}),
]


class Taking(Guarded):
    """Accepts a request for one job, or array."""

    async def take(self, spec: JobSpec, instead_of: JobId | None = None) -> None:
        """Submit it under the key of the request, cancel the job that it replaces, and answer."""
        key = self.request.headers.get(IDEMPOTENCY_HEADER)
        if key is not None and not (
            1 <= len(key) <= requests.MAX_KEY_CHARS and key.isascii() and key.isprintable()
        ):
            raise InvalidRequest(
                "invalid",
                f"{IDEMPOTENCY_HEADER} must have 1 to {requests.MAX_KEY_CHARS} printable ASCII characters.",
            )
        (jobs,) = await self.service.submit(self.person, [(spec, key)])
        reach("server.submit")
        if instead_of is not None:
            await self.service.cancel(self.person, instead_of)
        self.set_header("Location", f"{self.base_url}{PREFIX}/jobs/{jobs[0].id}")
        self.answer(submitted(jobs), 201)


class JobsHandler(Taking):
    """All jobs."""

    path = "jobs"

    async def get(self) -> None:
        """List a page of jobs, newest first."""
        notebook = self.query("notebook", str, "") or None
        name = self.query("name", str, "") or None
        # The jobs of a notebook are those of the requesting user: others may have a notebook of the same
        # name.
        user = self.query("user", str, "") or (None if notebook is None else self.person.name)
        if self._would_tell(user, name, notebook):
            self.answer(models.JobList(jobs=()))
            return
        wanted = JobFilter(
            states=_states(self.query("state", str, "")),
            user=user,
            name=name,
            since=self._since(),
            array=self.query("array", str, "") or None,
            ids=_ids(self.query("ids", str, "")),
            notebook=notebook,
            before=_read_cursor(self.query("cursor", str, "")),
            limit=self.number("limit", DEFAULT_PAGE, 1, models.MAX_PAGE),
        )
        page, last = await self.service.jobs(wanted)
        cursor = _write_cursor(last) if last is not None else None
        self.answer(models.JobList(jobs=tuple(page), next_cursor=cursor))

    def _would_tell(self, user: str | None, name: str | None, notebook: str | None) -> bool:
        """Tell whether the answer would reveal what is hidden: whose a job is, its name, where it came
        from.
        """
        privacy = self.service.settings.privacy
        if privacy == "full" or self.person.is_admin or user == self.person.name:
            return False
        return notebook is not None or (privacy == "none" and (user is not None or name is not None))

    def _since(self) -> float | None:
        since = self.query("since", float, 0.0)
        if not 0 <= since <= models.MAX_TIME_S:
            raise InvalidRequest(
                "invalid", f"since must be between 0 and {models.MAX_TIME_S} (seconds since 1970)."
            )
        return since or None

    async def post(self) -> None:
        """Submit one job."""
        await self.take(self.read_body(JobSpec))


class BulkHandler(Guarded):
    """Many jobs at once."""

    path = "jobs/bulk"

    async def post(self) -> None:
        """Submit all or none."""
        items = [(item.spec, item.key) for item in self.read_body(requests.BulkSubmit).jobs]
        admitted = await self.service.submit(self.person, items)
        self.answer(requests.BulkSubmitted(jobs=tuple(submitted(jobs) for jobs in admitted)), 201)


class DryRunHandler(Guarded):
    """What would happen to a request."""

    path = "jobs/dry-run"
    cost = Cost.HEAVY

    async def post(self) -> None:
        """Explain a request without submitting it; one that would be refused is explained, too."""
        self.answer(await self.service.explainer.request(self.person.name, self.read_body(JobSpec)))


class ExplainHandler(Guarded):
    """Why one job waits."""

    path = "jobs/{job_id}/explain"
    cost = Cost.HEAVY

    async def get(self, job_id: str) -> None:
        """Explain a job; the queue is visible to all, and so is why a job waits."""
        self.answer(await self.service.explainer.job(self.service.saved_job(job_id_of(job_id)).job))


class TraceHandler(Guarded):
    """The trace of one job."""

    path = "jobs/{job_id}/trace"
    cost = Cost.HEAVY

    async def get(self, job_id: str) -> None:
        """Return when and where it ran; to verify, its nodes are asked, too."""
        saved = self.service.saved_job(job_id_of(job_id))
        self.answer(await self.service.tracer.job(saved.job, verify=self.query("verify", bool, False)))


class JobHandler(Guarded):
    """One job."""

    path = "jobs/{job_id}"

    async def get(self, job_id: str) -> None:
        """Show a job."""
        owner = self.service.saved_job(job_id_of(job_id)).job.user
        self.answer(await self.service.job(job_id_of(job_id), with_lines=self.person.may_touch(owner)))

    async def patch(self, job_id: str) -> None:
        """Change what can still be changed."""
        body, named = self.read_body(requests.JobChange), job_id_of(job_id)
        if body.hold and body.release:
            raise InvalidRequest("contradiction", "hold and release exclude each other: leave one out.")
        if body == requests.JobChange():
            raise InvalidRequest(
                "nothing-to-change", "Say what is to change: priority, time_limit_s, hold or release."
            )
        held = True if body.hold else False if body.release else None

        def wanted(at: float, job_id: JobId, by: str) -> JobChanged:
            return JobChanged(
                at=at, job_id=job_id, by=by, priority=body.priority, time_limit_s=body.time_limit_s, held=held
            )

        jobs = await self.service.change(self.person, named, wanted)
        self.answer(requests.OrderAnswer(job_id=named, state=least_far(jobs), job_ids=_several(named, jobs)))


class CancelHandler(Guarded):
    """The cancelling of one job."""

    path = "jobs/{job_id}/cancel"

    async def post(self, job_id: str) -> None:
        """Cancel the job; a second time is no error."""
        named = job_id_of(job_id)
        jobs = await self.service.cancel(self.person, named)
        reach("server.cancel")
        self.answer(
            requests.CancelAnswer(job_id=named, state=least_far(jobs), job_ids=_several(named, jobs)), 202
        )


class RequeueHandler(Guarded):
    """The requeueing of one job."""

    path = "jobs/{job_id}/requeue"

    async def post(self, job_id: str) -> None:
        """End the job and queue it again; a second time is no error."""
        named = job_id_of(job_id)
        jobs = await self.service.requeue(self.person, named)
        self.answer(
            requests.OrderAnswer(job_id=named, state=least_far(jobs), job_ids=_several(named, jobs)), 202
        )


class RerunHandler(Taking):
    """One job again, as a new one."""

    path = "jobs/{job_id}/rerun"

    async def post(self, job_id: str) -> None:
        """Submit the same request as a new job: without old dependencies, and without stdin."""
        named = job_id_of(job_id)
        saved = self.service.saved_job(named)
        job = saved.job
        self.person.check_may_touch(job.user, named)
        if saved.values_dropped:
            names = ", ".join(name for name, value in job.spec.env.items() if not value)
            raise Conflict(
                "values-dropped",
                f"The values of --env of job {named} ({names}) are kept no longer: submit it anew with them.",
            )
        array = str(job.array.index) if job.array else ""
        await self.take(
            replace(
                job.spec,
                array=array,
                dependency="",
                begin_at=0.0,
                hold=False,
                stdin=False,
                interactive_kill=False,
            )
        )


class PurgeHandler(Guarded):
    """Jobs that ended long ago."""

    path = "jobs/purge"
    cost = Cost.HEAVY

    async def post(self) -> None:
        """Forget them, with their output."""
        self.answer(await purge(self.service, self.person, self.read_body(administration.PurgeRequest)))


def submitted(jobs: Sequence[Job]) -> requests.Submitted:
    """Return the answer about one request."""
    first = jobs[0]
    if first.array is None:
        return requests.Submitted(job_id=first.id, state=first.state)
    return requests.Submitted(
        job_id=first.id, state=first.state, array_id=first.array.id, job_ids=tuple(job.id for job in jobs)
    )


def least_far(jobs: Sequence[Job]) -> JobState:
    """Return one state for several jobs: the least advanced one; cancelled before other ends."""
    return min((job.state for job in jobs), key=_WAY.index)


def _several(named: JobId, jobs: Sequence[Job]) -> tuple[JobId, ...]:
    return () if jobs[0].id == named else tuple(job.id for job in jobs)


def _states(text: str) -> tuple[JobState, ...]:
    states: list[JobState] = []
    for word in filter(None, text.split(",")):
        if word == ACTIVE:
            states += [state for state in JobState if state not in FINAL_STATES]
        elif word in list(JobState):
            states.append(JobState(word))
        else:
            raise InvalidRequest(
                "unknown-state", f"{word!r} is no state: use {ACTIVE}, {', '.join(JobState)}."
            )
    return tuple(states)


def _ids(text: str) -> tuple[JobId, ...]:
    if not re.fullmatch(models.IDS_PATTERN, text):
        raise InvalidRequest(
            "invalid", f"ids must be at most {models.MAX_IDS} job ids with commas between: see `mgpu_queue`."
        )
    return tuple(map(JobId, filter(None, text.split(","))))


def _write_cursor(number: int) -> str:
    return f"n{number}"


def _read_cursor(text: str) -> int | None:
    if not re.fullmatch(models.CURSOR_PATTERN, text):
        raise InvalidRequest("bad-cursor", "That cursor is not one of ours: start again without it.")
    return int(text[1:]) if text else None


class ReplaceHandler(Taking):
    """A waiting job with another request in its place."""

    path = "jobs/{job_id}/replace"

    async def post(self, job_id: str) -> None:
        """Submit it with the changes, then cancel the old one: a refusal leaves it waiting."""
        patch, named = self.read_body(ReplaceRequest).patch, job_id_of(job_id)
        job = self.service.saved_job(named).job
        self.person.check_may_touch(job.user, named)
        if job.state is not JobState.QUEUED:
            raise Conflict(
                "not-waiting", f"{named} does not wait any more (it is {job.state}): nothing was changed."
            )
        one = {"array": str(job.array.index)} if job.array else {}  # the others of its array stay as they are
        asked = msgspec.to_builtins(job.spec) | one | patch
        try:
            spec = msgspec.convert(
                {name: value for name, value in asked.items() if value is not None}, JobSpec
            )
        except msgspec.ValidationError as error:
            raise InvalidRequest("invalid", about_body(error)) from error
        await self.take(spec, instead_of=named)


PROG = "mgpu_srun"
_PROG_AT_START = re.compile(rf"\s*(%{{0,2}}{PROG})(?=\s|$)")


class ParseHandler(Guarded):
    """The meaning of a line."""

    path = "jobs/parse"

    async def post(self) -> None:
        """Parse a line as the magics do."""
        body = self.read_body(requests.LineRequest)
        asked = await asyncio.to_thread(submission_of, body.line, body.cell)  # long ones take half a second
        self.answer(requests.LineAnswer(spec=asked.spec, inputs=asked.inputs, background=asked.background))


def submission_of(line: str, cell: str | None) -> Submission:
    """Return the request of a line, independent of any machine; times of day are by this server's clock."""
    found = _PROG_AT_START.match(line)
    rest, prog = (line[found.end() :], found[1]) if found else (line, PROG)
    here = Here(cwd="", now=time.time(), host="", has_kernel=False)
    asked = parse(read_line(rest), cell=cell, environ={}, prog=prog, in_notebook=True, here=here)
    if isinstance(asked, Help):
        raise InvalidRequest("usage", "Take --help out: a line that is to be submitted cannot ask for help.")
    if asked.spec.sync:
        raise InvalidRequest(
            "no-folder",
            "--sync sends a folder of the machine that you sit at: use mgpu_srun there, or a notebook.",
        )
    return asked
