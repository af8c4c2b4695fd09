"""What users see of the jobs of others, decided in one place for every answer and frame: full, names or none.
Pure.

`full` shows what a queue shows: names, the first 200 characters of commands, directories, pids. `names`
leaves user, name, state, size and times. `none` leaves only that there is a job. Administrators see all, and
all users see everything of their own.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import frames, histories, models, traces
from mgpu_jupyter.model.explanations import Ahead, Excluded, Explanation, Record, UnitAnswer
from mgpu_jupyter.model.job import NodeState

Privacy = Literal["full", "names", "none"]
SOMEBODY = "another user"
NOT_YOURS = "This job belongs to another user: ask an administrator."
_PROCESS = re.compile(r"by pid \d+ of (?:an unknown user|[^\s,;]*[^\s,;.])|pid \d+")
_PUBLIC_REASONS = (
    *("new", "no-nodes", "ahead", "promised", "busy", "nodes-away", "too-large", "too-few-nodes"),
    *("unknown-node", "held", "begin", "throttle", "cannot-talk", "dependency"),
)
_WORDS = {"quota": "A quota keeps it waiting.", "delayed": "A start failed; it is tried again."}


class Sight(msgspec.Struct, frozen=True):
    """Who looks, and how much the site lets them see."""

    privacy: Privacy
    user: str
    is_admin: bool
    owner_of: Callable[[JobId], str]

    @property
    def is_whole(self) -> bool:
        """Whether nothing is hidden from this user."""
        return self.privacy == "full" or self.is_admin

    def user_shown(self, user: str) -> str:
        """Return the name under which this user may know another."""
        return user if self.privacy != "none" or user == self.user else SOMEBODY


def shown(body: object, sight: Sight) -> object:  # noqa: PLR0911 - one line for each kind of answer
    """Return an answer or frame as this user may see it."""
    if sight.is_whole:
        return body
    match body:
        case models.JobList():
            return replace(body, jobs=tuple(_job(job, sight) for job in body.jobs))
        case models.Job():
            return _job(body, sight)
        case frames.JobFrame():
            return replace(body, job=_job(body.job, sight))
        case models.NodeList():
            return replace(body, nodes=tuple(_node(node, sight) for node in body.nodes))
        case models.Node():
            return _node(body, sight)
        case frames.NodeFrame():
            return replace(body, node=_node(body.node, sight))
        case frames.QueueFrame():
            return replace(body, reasons={number: _why(why) for number, why in body.reasons.items()})
        case histories.JobUsage() if sight.owner_of(body.job_id) != sight.user:
            return replace(body, hint="", message="")
        case Explanation():
            return _explanation(body, sight)
        case traces.Trace():
            return _trace(body, sight)
        case traces.Summary() if body.user != sight.user:
            return replace(body, reason="", user=sight.user_shown(body.user), name=_name(body.name, sight))
        case models.ErrorBody(code="not-yours") if sight.privacy == "none":
            return replace(body, message=NOT_YOURS, details={})
    return body


def _name(name: str, sight: Sight) -> str:
    return "" if sight.privacy == "none" else name


def _job(job: models.Job, sight: Sight) -> models.Job:
    if job.user == sight.user:
        return replace(job, reason=_plain(job.reason))
    seen = replace(
        job,
        command="",
        reason="",
        placements=tuple(replace(one, pid=None, cwd=None, python=None, note="") for one in job.placements),
        warnings=(),
        mismatches=(),
        failure=None,
        origin=None,
        sweep={},
    )
    if sight.privacy == "names":
        return seen
    return replace(seen, user=SOMEBODY, name="", account="", partition="", qos="")


def _node(node: models.Node, sight: Sight) -> models.Node:
    reason = (
        "Starts failed there; administrators see why."
        if node.state is NodeState.UNHEALTHY and node.reason
        else _plain(node.reason)
    )
    return replace(
        node,
        reason=reason,
        gpus=tuple(_gpu(gpu, sight) for gpu in node.gpus),
        warnings=tuple(map(_plain, node.warnings)),
    )


def _gpu(gpu: models.Gpu, sight: Sight) -> models.Gpu:
    return replace(
        gpu,
        user=None if gpu.user is None else sight.user_shown(gpu.user),
        reason=_plain(gpu.reason),
        processes=tuple(_process(one, sight) for one in gpu.processes)
        if gpu.user != sight.user
        else gpu.processes,
    )


def _process(process: models.GpuProcess, sight: Sight) -> models.GpuProcess:
    if process.user == sight.user:
        return process
    return replace(
        process, pid=0, name="", user=None if process.user is None else sight.user_shown(process.user)
    )


def _why(why: frames.Why) -> frames.Why:
    """Return a reason without what only the owner of its job may read: jobs share reasons, so the owner is
    not known.
    """
    return frames.Why(
        why.code, _plain(why.text) if why.code in _PUBLIC_REASONS else _WORDS.get(why.code, "It waits.")
    )


def _explanation(answer: Explanation, sight: Sight) -> Explanation:
    ahead = tuple(
        Ahead(job_id=one.job_id, user=sight.user_shown(one.user), gpus=one.gpus, priority=one.priority)
        for one in answer.ahead
    )
    if answer.job_id is not None and sight.owner_of(answer.job_id) != sight.user:
        return replace(answer, text="", where=(), units=(), ahead=ahead, terms=(), offers=(), history=())
    return replace(
        answer,
        text=_plain(answer.text),
        units=tuple(map(_unit, answer.units)),
        ahead=ahead,
        history=tuple(map(_record, answer.history)),
    )


def _record(record: Record) -> Record:
    return replace(record, text=_plain(record.text), units=tuple(map(_unit, record.units)))


def _unit(unit: UnitAnswer) -> UnitAnswer:
    excluded: tuple[Excluded, ...] = tuple(replace(one, text=_plain(one.text)) for one in unit.excluded)
    return replace(unit, excluded=excluded)


def _trace(trace: traces.Trace, sight: Sight) -> traces.Trace:
    if trace.user == sight.user:
        return trace
    return replace(
        trace,
        command="",
        user=sight.user_shown(trace.user),
        name=_name(trace.name, sight),
        attempts=tuple(map(_attempt, trace.attempts)),
        mismatches=(),
        checks=(),
    )


def _attempt(attempt: traces.AttemptTrace) -> traces.AttemptTrace:
    return replace(
        attempt,
        reason="",
        waits=tuple(replace(wait, text="") for wait in attempt.waits),
        steps=tuple(replace(step, text="") for step in attempt.steps),
        ranks=tuple(map(_rank, attempt.ranks)),
    )


def _rank(rank: traces.RankTrace) -> traces.RankTrace:
    actual = None if rank.actual is None else replace(rank.actual, pid=None)
    return replace(
        rank, assigned=replace(rank.assigned, pid=None), actual=actual, cwd="", python="", note="", reason=""
    )


def _plain(text: str) -> str:
    """Return a sentence about a machine without the processes of others that it names."""
    return _PROCESS.sub(lambda found: "by somebody" if found[0].startswith("by") else "a process", text)
