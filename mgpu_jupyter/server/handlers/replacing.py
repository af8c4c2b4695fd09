"""A job that waits gives way to a changed one: how a counter-offer is taken. Admits nothing that a submit would not admit."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_jupyter.api.administration import ReplaceRequest
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.server.handlers.base import job_id_of
from mgpu_jupyter.server.handlers.jobs import Taking


class ReplaceHandler(Taking):
    """One job that waits, asked for otherwise."""

    path = "jobs/{job_id}/replace"

    async def post(self, job_id: str) -> None:
        """Submit it with the changes, then cancel the old one: a refusal leaves it waiting."""
        patch, named = self.read_body(ReplaceRequest).patch, job_id_of(job_id)
        job = self.service.saved_job(named).job
        self.person.check_may_touch(job.user, named)
        if job.state is not JobState.QUEUED:
            raise Conflict("not-waiting", f"{named} does not wait any more (it is {job.state}): nothing was changed.")
        one = {"array": str(job.array.index)} if job.array else {}  # the others of its array stay as they are
        asked = msgspec.to_builtins(job.spec) | one | patch
        try:
            spec = msgspec.convert({name: value for name, value in asked.items() if value is not None}, JobSpec)
        except msgspec.ValidationError as error:
            raise InvalidRequest("invalid", f"The changed request is none: {error}.") from error
        await self.take(spec, instead_of=named)
