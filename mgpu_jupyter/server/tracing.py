"""Traces and pings outside the master: records from a reader of its own, the rest from nodes, on request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol
from urllib.parse import urlsplit

from msgspec.structs import replace

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import NotFound, Unavailable
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.messages import Pong
from mgpu_agent.protocol.model import CellWish, ProcessSeen
from mgpu_jupyter.api import traces as api
from mgpu_jupyter.master.job_trace import TraceSources, trace_of
from mgpu_jupyter.master.master import Master
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.master.ports import Reader
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.scheduler.explain import history
from mgpu_jupyter.scheduler.model import Job, Placement
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.server.explaining import Ask

PING_S = 5.0
AT_START = "as its node told when it started"
NOW = "as it is there now"


class Answered(NamedTuple):
    """A node's answer, and how long it took."""

    pong: Pong
    seconds: float


class Pinger(Protocol):
    """Asks one node who it is, and for the state of an attempt."""

    def __call__(self, node_id: NodeId, key: AttemptKey | None = None) -> Awaitable[Answered]:
        """Return the answer; raises when there is none in time."""


class Pings:
    """Belongs to the server's event loop."""

    def __init__(self, master: Master, timeout_s: float = PING_S) -> None:
        self._master = master
        self._timeout_s = timeout_s

    async def __call__(
        self, node_id: NodeId, key: AttemptKey | None = None, cell: CellWish | None = None
    ) -> Answered:
        """Ask a node through its link and wait for the answer."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answered] = loop.create_future()
        begun = loop.time()

        def settle(result: Pong | Exception) -> None:
            if answer.done():
                return
            if isinstance(result, Exception):
                answer.set_exception(result)
            else:
                answer.set_result(Answered(result, loop.time() - begun))

        def tell(result: Pong | Exception) -> None:
            loop.call_soon_threadsafe(settle, result)

        def call(master: Master, turn: Turn) -> None:
            node = master.state.nodes.get(node_id)
            if node is None:
                tell(NotFound("no-such-node", f"There is no node {node_id}: see `mgpu nodes`."))
                return
            away = Unavailable(
                "node-away", f"{node_id} is {node.state}: {node.reason or 'it is not connected'}"
            )
            master.ask_node(turn, node_id, lambda pong: tell(pong or away), key, cell)

        self._master.post(call, tell)
        try:
            return await asyncio.wait_for(answer, self._timeout_s)
        except TimeoutError:
            text = (
                f"{node_id} did not answer within {self._timeout_s:g} s: see its agent's log, and "
                f"networking.ping_timeout."
            )
            raise Unavailable("no-answer", text) from None


async def ping_node(ping: Pinger, node: NodeView, clock: Callable[[], float]) -> api.NodePing:
    """Ask a node who it is, and compare that with what it said when it joined."""
    told = await ping(node.id)
    pong, facts = told.pong, node.facts
    skew_s = pong.at - (clock() - told.seconds / 2)
    pairs = (
        ("node", node.id, pong.node_id),
        ("host", facts.host, pong.host),
        ("address", facts.address, pong.address),
    )
    warnings = [
        f"Its agent says {what} {said}, and it joined as {joined}."
        for what, joined, said in pairs
        if said != joined
    ]
    if pong.agent_version != __version__:
        warnings.append(
            f"Its agent is version {pong.agent_version}, and the master is {__version__}: install the same "
            f"on both."
        )
    return api.NodePing(
        node_id=node.id,
        seconds=told.seconds,
        host=pong.host,
        address=pong.address,
        agent_version=pong.agent_version,
        master_version=__version__,
        python=pong.python,
        pid=pong.pid,
        started_at=pong.started_at,
        clock_skew_s=skew_s,
        link=pong.link,
        warnings=tuple(warnings),
    )


class Tracer:
    """Belongs to the server's event loop; the reader is its own."""

    def __init__(
        self, ask: Ask, reader: Reader, clock: Callable[[], float], ping: Pinger, link_port: int
    ) -> None:
        self._ask, self._reader, self._clock, self._ping = ask, reader, clock, ping
        self._link_port = link_port
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="mgpu-trace")

    async def job(self, saved: Job, *, verify: bool = False) -> api.Trace:
        """Return the trace of a job; to verify it, its nodes are asked, too."""
        checks: tuple[api.Check, ...] = ()
        if verify:
            checks = await self._checks((await self._state(saved))[0])
        job, keys = await self._state(saved)

        def work() -> api.Trace:
            read = self._reader
            own, *shared = [read.answers((key,)) for key in keys]
            sources = TraceSources(
                job=job, earlier=read.attempts(job.id), marks=read.marks(job.id), own=own, shared=shared
            )
            return trace_of(sources, self._clock())

        trace = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        return replace(trace, checks=checks, ok=trace.ok and all(check.ok for check in checks))

    def close(self) -> None:
        """Finish pending work."""
        self._thread.shutdown(wait=True)
        self._reader.close()

    async def _state(self, saved: Job) -> tuple[Job, tuple[str, ...]]:
        def question(state: ClusterState) -> tuple[Job, tuple[str, ...]]:
            job = state.jobs.get(saved.id, saved)
            return job, history.keys_of(state, job)

        return await self._ask(question)

    async def _checks(self, job: Job) -> tuple[api.Check, ...]:
        nodes = [placement.node_id for placement in job.placements if job.open_ranks_on(placement.node_id)]
        told = await asyncio.gather(
            *(self._ping(node, job.attempt_key) for node in nodes), return_exceptions=True
        )
        by_node = dict(zip(nodes, told, strict=True))
        # A process that ended while it was looked at is no mismatch: its end was reported before the answer.
        job, _ = await self._state(job)
        return tuple(
            check
            for placement in job.placements
            for rank in placement.ranks
            for check in checks_of(
                job,
                placement,
                rank,
                by_node.get(placement.node_id) if rank in job.open_ranks else None,
                self._link_port,
            )
        )


def checks_of(
    job: Job, placement: Placement, rank: int, told: Answered | BaseException | None, link_port: int
) -> Sequence[api.Check]:
    """Compare what was assigned to a rank with what is there, by its node's answer or earlier reports."""
    task = next((task for task in job.tasks if task.rank == rank), None)
    if task is None:
        return ()
    pong = told.pong if isinstance(told, Answered) else None
    seen = next((one for one in pong.processes if one.rank == rank), None) if pong else None
    is_seen = seen is not None and seen.alive and not seen.note
    source = NOW if is_seen else f"{AT_START}; {told}" if isinstance(told, BaseException) else AT_START
    pairs: list[tuple[api.CheckName, str, str]] = [
        ("node", placement.node_id, seen.node_id if seen is not None and is_seen else task.node_id),
        ("host", placement.host, (seen.host if seen is not None and is_seen else "") or task.host),
        ("address", placement.address, pong.address if pong else task.address),
        ("gpus", " ".join(placement.gpus), " ".join(task.gpus)),
    ]
    checks = [_check(rank, what, assigned, actual, source) for what, assigned, actual in pairs]
    if pong is None:
        ended = "it has ended" if task.ended_at is not None else source
        return [*checks, _check(rank, "pid", str(task.pid), str(task.pid), ended)]
    return [*checks, _pid_check(job, rank, task.pid, seen), _ports_check(rank, pong, seen, link_port)]


def _pid_check(job: Job, rank: int, pid: int, seen: ProcessSeen | None) -> api.Check:
    """Compare a process with the one reported at the start; its own environment says to whom it belongs."""
    if seen is None or not seen.alive:
        return api.Check(
            rank=rank,
            what="pid",
            assigned=str(pid),
            actual="none",
            ok=False,
            text="no such process is there now",
        )
    if seen.note:
        return api.Check(
            rank=rank, what="pid", assigned=str(pid), actual=str(seen.pid), ok=True, text=seen.note
        )
    whose = (seen.job_id, seen.attempt)
    text = (
        f"job {seen.job_id or 'unknown'}, attempt {seen.attempt or 'unknown'}, of {seen.user}, in {seen.cwd}"
    )
    ok = seen.pid == pid and whose == (job.id, str(job.attempt))
    return api.Check(rank=rank, what="pid", assigned=str(pid), actual=str(seen.pid), ok=ok, text=text)


def _ports_check(rank: int, pong: Pong, seen: ProcessSeen | None, link_port: int) -> api.Check:
    """Compare the port by which the node's agent reaches this master; ports of the processes are shown."""
    used = urlsplit(pong.link).port or 0
    listens = f"listens on {', '.join(seen.ports)}" if seen is not None and seen.ports else "listens nowhere"
    master_port = f", MASTER_PORT {seen.master_port}" if seen is not None and seen.master_port else ""
    return api.Check(
        rank=rank,
        what="ports",
        assigned=f"link {link_port}",
        actual=f"link {used}",
        ok=used == link_port,
        text=f"{listens}{master_port}",
    )


def _check(rank: int, what: api.CheckName, assigned: str, actual: str, text: str) -> api.Check:
    # What was not known when it was assigned (by an earlier version) cannot differ.
    return api.Check(
        rank=rank, what=what, assigned=assigned, actual=actual, ok=assigned in ("", actual), text=text
    )
