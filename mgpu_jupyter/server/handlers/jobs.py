"""Jobs: submit, list, look, explain, cancel. Each method reads the request, makes one call, answers."""

from __future__ import annotations

import re

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.api import models
from mgpu_jupyter.api.routes import IDEMPOTENCY_HEADER, PREFIX
from mgpu_jupyter.master.ports import JobFilter
from mgpu_jupyter.model.job import FINAL_STATES, JobSpec, JobState
from mgpu_jupyter.server.handlers.base import Guarded, job_id_of

ACTIVE = "active"
DEFAULT_PAGE = 100


class JobsHandler(Guarded):
    """All jobs."""

    path = "jobs"

    async def get(self) -> None:
        """List a page of jobs, newest first."""
        wanted = JobFilter(
            states=_states(self.query("state", str, "")),
            user=self.query("user", str, "") or None,
            name=self.query("name", str, "") or None,
            since=self._since(),
            before=_read_cursor(self.query("cursor", str, "")),
            limit=self.number("limit", DEFAULT_PAGE, 1, models.MAX_PAGE),
        )
        page, last = await self.service.jobs(wanted)
        cursor = _write_cursor(last) if last is not None else None
        self.answer(models.JobList(jobs=tuple(page), next_cursor=cursor))

    def _since(self) -> float | None:
        since = self.query("since", float, 0.0)
        if not 0 <= since <= models.MAX_TIME_S:
            raise InvalidRequest("invalid", f"since must be between 0 and {models.MAX_TIME_S} (seconds since 1970).")
        return since or None

    async def post(self) -> None:
        """Submit one job."""
        key = self.request.headers.get(IDEMPOTENCY_HEADER)
        if key is not None and not (1 <= len(key) <= models.MAX_KEY_CHARS and key.isascii() and key.isprintable()):
            raise InvalidRequest("invalid", f"{IDEMPOTENCY_HEADER} must have 1 to {models.MAX_KEY_CHARS} printable ASCII characters.")
        (job,) = await self.service.submit(self.person, [(self.read_body(JobSpec), key)])
        self.set_header("Location", f"{self.base_url}{PREFIX}/jobs/{job.id}")
        self.answer(models.Submitted(job_id=job.id, state=job.state), 201)


class BulkHandler(Guarded):
    """Many jobs at once."""

    path = "jobs/bulk"

    async def post(self) -> None:
        """Submit all or none."""
        items = [(item.spec, item.key) for item in self.read_body(models.BulkSubmit).jobs]
        jobs = await self.service.submit(self.person, items)
        self.answer(models.BulkSubmitted(jobs=tuple(models.Submitted(job_id=job.id, state=job.state) for job in jobs)), 201)


class DryRunHandler(Guarded):
    """What would become of a request."""

    path = "jobs/dry-run"

    async def post(self) -> None:
        """Explain a request without submitting it; one that would be refused is explained too."""
        self.answer(await self.service.explainer.request(self.person.name, self.read_body(JobSpec)))


class ExplainHandler(Guarded):
    """Why one job waits."""

    path = "jobs/{job_id}/explain"

    async def get(self, job_id: str) -> None:
        """Explain a job; the queue is visible to all, and so is why it waits."""
        self.answer(await self.service.explainer.job(self.service.saved_job(job_id_of(job_id)).job))


class JobHandler(Guarded):
    """One job."""

    path = "jobs/{job_id}"

    async def get(self, job_id: str) -> None:
        """Show a job."""
        self.answer(await self.service.job(job_id_of(job_id)))


class CancelHandler(Guarded):
    """The end of one job."""

    path = "jobs/{job_id}/cancel"

    async def post(self, job_id: str) -> None:
        """Ask for its end; a second time is no error."""
        job = await self.service.cancel(self.person, job_id_of(job_id))
        self.answer(models.CancelAnswer(job_id=job.id, state=job.state), 202)


def _states(text: str) -> tuple[JobState, ...]:
    states: list[JobState] = []
    for word in filter(None, text.split(",")):
        if word == ACTIVE:
            states += [state for state in JobState if state not in FINAL_STATES]
        elif word in list(JobState):
            states.append(JobState(word))
        else:
            raise InvalidRequest("unknown-state", f"{word!r} is no state: use {ACTIVE}, {', '.join(JobState)}.")
    return tuple(states)


def _write_cursor(number: int) -> str:
    return f"n{number}"


def _read_cursor(text: str) -> int | None:
    if not re.fullmatch(models.CURSOR_PATTERN, text):
        raise InvalidRequest("bad-cursor", "That cursor is not one of ours: start again without it.")
    return int(text[1:]) if text else None
