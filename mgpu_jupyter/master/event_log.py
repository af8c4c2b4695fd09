"""What an operator reads in the log: who joined and who was lost, what started and ended where, and what was
decided about the health of nodes, one line each.

Looks at what a turn committed, beside what it wrote before; decides nothing. Of one array, one user's jobs
and one node a few lines are written at once; what goes beyond is counted, and told in one line now and then.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import Trouble
from mgpu_agent.protocol.text import printable
from mgpu_agent.protocol.wording import count, duration
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.model.units import gpus_of
from mgpu_jupyter.scheduler.model import Job, Node
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.scheduler.words import several

log = logging.getLogger("mgpu.events")

AT_ONCE = 20
"""So many lines about one array, user or node may come at once."""
GATHER_S = 10.0
"""After that there is one in so many seconds, for all that happened meanwhile."""
NAME_CHARS = 80
_AWAY = (NodeState.SUSPECT, NodeState.OFFLINE)
_PASSING = (Trouble.OUTSIDE, Trouble.MEMORY, Trouble.UNREAD)
"""Troubles of GPUs that come and go with every job."""


class _Line(NamedTuple):
    """One line, and how it is counted where there are too many."""

    about: str
    kind: str
    text: str
    level: int = logging.INFO
    is_notable: bool = False
    """Whether it is told in full beside a count, if it is the last of these."""


class _Seen(NamedTuple):
    """What was last told of a node."""

    state: NodeState
    since: tuple[object, ...]
    """What made it so."""
    process: tuple[str, int]
    gpus_out: frozenset[GpuUuid]


class _Share:
    """What may still be written about one array, user or node, and what was counted instead."""

    def __init__(self, now: float) -> None:
        self.lines, self.at = float(AT_ONCE), now
        self.counts: Counter[str] = Counter()
        self.since = now
        self.last = ""
        self.level = logging.INFO

    def refill(self, now: float) -> None:
        self.lines = min(float(AT_ONCE), self.lines + max(0.0, now - self.at) / GATHER_S)
        self.at = now


class EventLog:
    """Belongs to the master's thread."""

    def __init__(self) -> None:
        self._nodes: dict[NodeId, _Seen] = {}
        self._started: dict[JobId, int] = {}
        """The attempt of each job that was told to have started."""
        self._shares: dict[str, _Share] = {}

    def know(self, state: ClusterState) -> None:
        """Take what is there as told."""
        self._nodes = {node.id: _seen(node) for node in state.nodes.values()}
        self._started = {job.id: job.attempt for job in state.jobs.values() if job.started_at is not None}

    def write(self, turn: Turn, state: ClusterState, now: float) -> None:
        """Tell of what a turn committed."""
        if not log.isEnabledFor(logging.INFO) and not turn.mismatches:
            return
        for line in (*self._of_nodes(turn, state), *self._of_jobs(turn)):
            self._say(line, now)
        for mismatch in turn.mismatches:
            log.error("job_id=%s mismatch: %s", mismatch.job.id, printable(mismatch.text))
        self.flush(now)

    def flush(self, now: float, *, all_of_it: bool = False) -> None:
        """Tell what was counted for long enough, or all of it."""
        for about, share in list(self._shares.items()):
            if share.counts and (all_of_it or now - share.since >= GATHER_S):
                what = ", ".join(f"{number} {kind}" for kind, number in share.counts.items())
                last = f"; the last: {share.last}" if share.last else ""
                log.log(share.level, "%s: %s in %s%s", about, what, duration(now - share.since), last)
                share.counts, share.last, share.level, share.since = Counter(), "", logging.INFO, now
                share.lines -= 1.0
            share.refill(now)
            if share.lines == AT_ONCE and not share.counts:
                del self._shares[about]

    def _say(self, line: _Line, now: float) -> None:
        share = self._shares.setdefault(line.about, _Share(now))
        share.refill(now)
        if share.lines >= 1.0 and not share.counts:
            share.lines -= 1.0
            share.since = now
            log.log(line.level, "%s", line.text)
            return
        if not share.counts:
            share.since = now
        share.counts[line.kind] += 1
        share.level = max(share.level, line.level)
        if line.is_notable:
            share.last = line.text

    # --- nodes -----------------------------------------------------------------------------------

    def _of_nodes(self, turn: Turn, state: ClusterState) -> Iterator[_Line]:
        for node_id, reason in turn.revoked.items():
            text = f"node_id={node_id} is refused from now on: {printable(reason)}"
            yield _of_node(node_id, text, logging.WARNING)
        for node_id in sorted(turn.touched):
            node, before = state.nodes.get(node_id), self._nodes.pop(node_id, None)
            if node is None:
                if node_id in turn.batch.removed:
                    yield _of_node(node_id, f"node_id={node_id} was removed", logging.WARNING)
                continue
            now = self._nodes[node_id] = _seen(node)
            if before is None or (before != now and before.state in _AWAY and now.state not in _AWAY):
                yield _of_node(node_id, _arrival(node, before))
                before = now._replace(state=NodeState.ONLINE, since=(), gpus_out=frozenset())
            elif before.process != now.process:
                yield _of_node(node_id, f"{_arrival(node, None)}; its agent was started anew")
            if (before.state, before.since) != (now.state, now.since):
                yield _change(state, node, before)
            yield from _gpus(node, before.gpus_out, now.gpus_out)

    # --- jobs ------------------------------------------------------------------------------------

    def _of_jobs(self, turn: Turn) -> Iterator[_Line]:
        arrays: Counter[str] = Counter()
        for job in turn.batch.attempts:
            why = f": {job.reason.text}" if job.reason else ""
            over = f"{_name(job)} attempt {job.attempt} is over{_where(job)}{_after(job)}"
            yield _of_job(job, "tried again", f"{over}, it waits again{why}", logging.WARNING)
        jobs = sorted((saved.job for saved in turn.batch.jobs.values()), key=lambda job: job.number)
        for job in jobs:
            if job.id in turn.batch.new:
                if job.array is None:
                    yield _of_job(job, "submitted", f"job_id={job.id} submitted{_asked(job)}")
                elif not arrays[job.array.id]:
                    text = f"array={job.array.id} of {count(job.array.count, 'job')} submitted{_asked(job)}"
                    yield _of_job(job, "submitted", text)
                if job.array is not None:
                    arrays[job.array.id] += 1
            if job.started_at is not None and job.placements and self._started.get(job.id) != job.attempt:
                self._started[job.id] = job.attempt
                waited = duration(job.started_at - job.submitted_at)
                again = f", attempt {job.attempt}" if job.attempt > 1 else ""
                text = f"{_name(job)} started{_where(job)}{again}, {waited} after it was submitted"
                yield _of_job(job, "started", text)
            if job.state.is_final:
                self._started.pop(job.id, None)
                why = f": {job.reason.text}" if job.reason and job.state is not JobState.COMPLETED else ""
                text = f"{_name(job)} {job.state.past}{_where(job)}{_after(job)}{why}"
                yield _of_job(job, job.state.value, text, is_notable=job.state is JobState.FAILED)


def _of_node(node_id: NodeId, text: str, level: int = logging.INFO) -> _Line:
    return _Line(f"node_id={node_id}", "changes", printable(text), level, is_notable=True)


def _of_job(job: Job, kind: str, text: str, level: int = logging.INFO, *, is_notable: bool = False) -> _Line:
    user = printable(job.user, NAME_CHARS)
    about = f"array={job.array.id} of user={user}" if job.array else f"jobs of user={user}"
    return _Line(about, kind, printable(text), level, is_notable or level > logging.INFO)


def _seen(node: Node) -> _Seen:
    out = frozenset(uuid for uuid, trouble in node.blocked.items() if trouble.kind not in _PASSING)
    since: tuple[object, ...] = ()
    if node.state in _AWAY:
        since = (node.link_reason,)
    elif node.state is NodeState.UNHEALTHY:
        since = (node.health.trouble, node.ailments)
    elif node.orders.state is not None:
        since = (node.orders.by, node.orders.at)
    return _Seen(node.state, since, (node.facts.incarnation, node.facts.pid), out)


def _arrival(node: Node, before: _Seen | None) -> str:
    if before is not None and before.process == _seen(node).process:
        return f"node_id={node.id} is heard again"
    facts = node.facts
    simulated = ", simulated" if any(gpu.simulated for gpu in facts.gpus) else ""
    gpus = f"{count(len(facts.gpus), 'GPU')}{simulated}"
    return f"node_id={node.id} joined: host {facts.host}, address {facts.address}, {gpus}"


def _change(state: ClusterState, node: Node, before: _Seen) -> _Line:
    if node.state in _AWAY:
        slot = state.pool.slots.get(node.id)
        jobs = f", {count(len(slot.holds), 'job')} may run there" if slot is not None and slot.holds else ""
        return _of_node(node.id, f"node_id={node.id} is {node.state}{jobs}: {node.reason}", logging.WARNING)
    if node.state is NodeState.ONLINE:
        well = "is well again and" if before.state is NodeState.UNHEALTHY else "is back in service and"
        return _of_node(node.id, f"node_id={node.id} {well} takes jobs")
    level = logging.WARNING if node.state is NodeState.UNHEALTHY else logging.INFO
    return _of_node(node.id, f"node_id={node.id} is {node.state}: {node.reason}", level)


def _gpus(node: Node, before: frozenset[GpuUuid], now: frozenset[GpuUuid]) -> Iterator[_Line]:
    for gpu in node.facts.gpus:
        name = f"node_id={node.id} GPU {gpu.index}"
        if gpu.uuid in now - before:
            yield _of_node(
                node.id, f"{name} is not handed out: {node.blocked[gpu.uuid].text}", logging.WARNING
            )
        elif gpu.uuid in before - now:
            yield _of_node(node.id, f"{name} is handed out again")


def _name(job: Job) -> str:
    array = f" (array={job.array.id}, {job.array.index})" if job.array is not None else ""
    return f"job_id={job.id}{array} of {printable(job.user, NAME_CHARS)}"


def _asked(job: Job) -> str:
    name = f' "{printable(job.spec.name, NAME_CHARS)}",' if job.spec.name else ""
    each = " each" if job.array is not None else ""
    return f" by {printable(job.user, NAME_CHARS)}:{name} {count(gpus_of(job.spec), 'GPU')}{each}"


def _where(job: Job) -> str:
    nodes = [
        f"{one.node_id} (GPU {', '.join(map(str, one.gpu_indices))})" if one.gpu_indices else one.node_id
        for one in job.placements
    ]
    return f" on {several(nodes)}" if nodes else ""


def _after(job: Job) -> str:
    if job.started_at is None or job.ended_at is None:
        return ""
    return f" after {duration(job.ended_at - job.started_at)}"
