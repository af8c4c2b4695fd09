"""A running master as handlers see it: a call is answered when it is durable. `wiring.py` opens its parts."""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

from msgspec.structs import replace

from mgpu_agent import __version__
from mgpu_agent.protocol.addresses import link_address
from mgpu_agent.protocol.errors import MgpuError, NotFound
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.places import StatePlace, check_private_state
from mgpu_jupyter.api import administration, models
from mgpu_jupyter.api.frames import TypedInput
from mgpu_jupyter.client.running_masters import announce
from mgpu_jupyter.master import calls, node_calls
from mgpu_jupyter.master.intake import Admitted, Item
from mgpu_jupyter.master.master import SEQ_PER_EPOCH, Call, Master, SteadyClock
from mgpu_jupyter.master.ports import JobFilter, JoinKey, Reader, SavedJob, Store
from mgpu_jupyter.master.views import job_view
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.admission import usable_nodes
from mgpu_jupyter.scheduler.explain.waiting import Known, Waiting, waiting
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.site import Site
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.server.access import Access, Person
from mgpu_jupyter.server.explaining import Explainer
from mgpu_jupyter.server.failures import failure_of
from mgpu_jupyter.server.hub import Hub
from mgpu_jupyter.server.joining import new_join_key, token_of
from mgpu_jupyter.server.live.board import Board
from mgpu_jupyter.server.live.live import Live
from mgpu_jupyter.server.presence import Presence
from mgpu_jupyter.server.tracing import Pings, Tracer
from mgpu_jupyter.server.user_folders import UserFolders
from mgpu_jupyter.server.wiring import HttpPlace, ServiceSettings, local_token, open_parts, publish

_T = TypeVar("_T")


class Service:
    """A master with all that it needs. Belongs to the server's event loop."""

    def __init__(
        self, place: StatePlace, settings: ServiceSettings, *, url: str, port: int, certificate_pin: str = ""
    ) -> None:
        check_private_state(place.path)
        self.place = place
        self.settings = settings
        self.access = Access(getpass.getuser(), settings.admins)
        self.site = Site(settings.policy.scheduling, settings.strategies)
        self.clock = SteadyClock()
        self._loop = asyncio.get_running_loop()
        self.hub = Hub(self._loop)
        self.presence = Presence(settings.client_grace_s, self._bound_jobs, self._end_alone, self.clock)
        with ExitStack() as undo:
            self._open(undo, url, port, certificate_pin)
            undo.pop_all()

    def _open(self, undo: ExitStack, url: str, port: int, certificate_pin: str) -> None:
        """Open all parts; `undo` closes them when one fails, so that a later try finds them free."""
        place, settings = self.place, self.settings
        parts = open_parts(undo, place, settings, self.clock, self.access.is_named_admin)
        store, epoch = parts.store, parts.epoch
        self._lock, self._link_key = parts.lock, parts.link_keys.public
        self.turned_away, self.listening = parts.turned_away, parts.listening
        self.link_address = parts.link_address
        self.results = parts.results
        self.output_shares, self.results_shares = parts.output_shares, parts.results_shares
        self.folders = UserFolders(parts.pieces, self._ask, settings.limits.folder_bytes)
        self.token = local_token(place, store)
        self.reader: Reader = store.reader()
        self._page_reader: Reader = store.reader()
        self.explainer = Explainer(self._ask, store.reader(), self.clock)
        self._reader_thread = ThreadPoolExecutor(1, thread_name_prefix="mgpu-reader")
        self.master = Master(
            store,
            parts.link,
            parts.enrolment,
            self.hub,
            self.clock,
            policy=settings.policy,
            epoch=epoch,
            strategies=settings.strategies,
        )
        board = Board(self._ask, self.hub, self.clock, epoch * SEQ_PER_EPOCH)
        self.live = Live(self.master, self.hub, board, self.log_root, self._reader_thread)
        self.ping = Pings(self.master, settings.ping_timeout_s)
        self.tracer = Tracer(self._ask, store.reader(), self.clock, self.ping, self.listening.port)
        self._runtime_file = publish(place, HttpPlace(url, port, certificate_pin), self.token, parts)
        self._note = announce(self._runtime_file, os.environ)

    @property
    def log_root(self) -> Path:
        """The directory of output files."""
        return self.place.path / "logs"

    def start(self) -> None:
        """Start the master's thread."""
        self.master.start()
        self.presence.start()
        self.live.start(self.look)

    def stop(self) -> None:
        """End the master; jobs go on on their nodes."""
        for path in (self._note, self._runtime_file):
            if path is not None:
                path.unlink(missing_ok=True)
        self._loop.call_soon_threadsafe(self.presence.stop)
        self._loop.call_soon_threadsafe(self.live.stop)
        self.master.stop()
        self._reader_thread.shutdown(wait=True)
        self.explainer.close()
        self.tracer.close()
        self.folders.close()
        self.reader.close()
        self._page_reader.close()
        os.close(self._lock)

    def health(self, cluster: str, warnings: tuple[str, ...]) -> models.Health:
        """Return the state of the master in one value."""
        problem = (
            self.master.problem
            if self.master.is_alive
            else "The master's thread ended: see the server's log and restart the server."
        )
        if self.place.on_network:
            warnings += (
                f"{self.place.path} is on a network file system: set MGPU_STATE_DIR to a local disk.",
            )
        return models.Health(
            status="degraded" if problem else "ok",
            version=__version__,
            cluster=cluster,
            master_epoch=self.master.epoch,
            message=problem,
            warnings=warnings + self.listening.warnings + self.turned_away(),
            link_address=self.link_address,
            link_addresses=self.listening.addresses,
        )

    # --- for handlers ---------------------------------------------------------------------------

    async def submit(self, person: Person, items: Sequence[Item]) -> list[Admitted]:
        """Admit all jobs or none; returns when they are saved, those of an array together."""
        await self.folders.check(person, (spec for spec, _ in items))
        return await self._call(lambda answer: calls.submit(person.name, items, answer))

    async def cancel(self, person: Person, job_id: JobId) -> list[Job]:
        """Cancel a job or array that this person may cancel."""
        return await self._call(
            lambda answer: calls.cancel(job_id, person.name, is_admin=person.is_admin, answer=answer)
        )

    async def change(self, person: Person, job_id: JobId, wanted: calls.Change) -> list[Job]:
        """Change a job or array of this person."""
        return await self._call(
            lambda answer: calls.change(job_id, person.name, wanted, is_admin=person.is_admin, answer=answer)
        )

    async def requeue(self, person: Person, job_id: JobId) -> list[Job]:
        """Queue a job or array of this person again."""
        return await self._call(
            lambda answer: calls.requeue(job_id, person.name, is_admin=person.is_admin, answer=answer)
        )

    async def join_token(
        self, person: Person, request: administration.JoinTokenRequest
    ) -> administration.JoinToken:
        """Listen where other machines reach the link, and make a line with which one of them can join
        once.
        """
        hosts = self.listening.wanted(request.listen)
        new: tuple[str, ...] = await self._call(lambda answer: node_calls.listen(hosts, answer))
        message = self.listening.added(new)
        key, secret = new_join_key(request, person.name, self.clock())
        _: JoinKey = await self._call(lambda answer: node_calls.admit(key, answer))
        addresses = tuple(link_address(host, self.listening.port) for host in hosts)
        return token_of(
            key,
            secret,
            addresses=addresses,
            server_key=self._link_key,
            cluster=self.settings.link.cluster,
            message=message,
        )

    async def revoke_node(self, person: Person, node_id: NodeId, reason: str) -> str:
        """Refuse a node from now on, and give up what it runs; return a sentence about it."""
        return await self._call(lambda answer: node_calls.revoke(node_id, person.name, reason, answer))

    async def order_node(self, person: Person, node_id: NodeId, wish: node_calls.OrderWish) -> str:
        """Carry out an administrator's order about a node; return a sentence about the result."""
        return await self._call(lambda answer: node_calls.order(node_id, person.name, wish, answer))

    async def usable_nodes(self, person: Person) -> frozenset[NodeId]:
        """Return the nodes that jobs of this person may use."""
        return await self._ask(lambda state: usable_nodes(state, person.name))

    async def type_in(self, job_id: JobId, typed: TypedInput) -> bool:
        """Pass on authorised input for a job; tell whether there is a process to read it."""
        return await self._call(lambda answer: calls.type_in(job_id, typed, answer))

    async def resize(self, job_id: JobId, rows: int, columns: int) -> bool:
        """Tell a job the size of the terminal that shows it."""
        return await self._call(lambda answer: calls.resize(job_id, rows, columns, answer))

    async def _bound_jobs(self) -> list[JobId]:
        return await self._ask(
            lambda state: [job.id for job in state.jobs.values() if job.spec.interactive_kill]
        )

    async def _end_alone(self, job_id: JobId) -> list[Job]:
        by = f"mgpu: its client was gone for {self.settings.client_grace_s:g} s"
        return await self._call(lambda answer: calls.cancel(job_id, by, is_admin=True, answer=answer))

    async def forget_jobs(self, job_ids: Sequence[JobId]) -> int:
        """Delete all records of jobs that are over; returns when that is saved."""
        return await self._call(lambda answer: calls.forget(job_ids, answer))

    async def write(self, change: Callable[[Store], _T]) -> _T:
        """Write to the store, apart from the jobs; returns when it is saved."""
        return await self._call(lambda answer: calls.write(change, answer))

    async def look(self, question: Callable[[Reader], _T]) -> _T:
        """Query the store on the thread of its reader."""
        return await self._loop.run_in_executor(self._reader_thread, question, self._page_reader)

    async def jobs(self, wanted: JobFilter) -> tuple[list[models.Job], int | None]:
        """Return a page of jobs, and the number where it ended when more follow."""
        one_more = replace(wanted, limit=wanted.limit + 1)
        page = await self._loop.run_in_executor(self._reader_thread, self._page_reader.jobs, one_more)
        last = page[wanted.limit - 1].job.number if len(page) > wanted.limit else None
        return await self._with_waiting(page[: wanted.limit]), last

    async def changed_since(self, seq: int, limit: int) -> list[models.Job]:
        """Return jobs that changed after `seq`."""
        page = await self._loop.run_in_executor(
            self._reader_thread, self._page_reader.changed_since, seq, limit
        )
        return await self._with_waiting(page)

    def saved_job(self, job_id: JobId) -> SavedJob:
        """Return a job's newest committed version."""
        saved = self.reader.job(job_id)
        if saved is None:
            raise no_such_job(job_id)
        return saved

    async def job(self, job_id: JobId, *, with_lines: bool = False) -> models.Job:
        """Return a job, with place and reason while it waits; `with_lines` if its output may be read."""
        saved = self.saved_job(job_id)
        (view,) = await self._with_waiting([saved])
        failure = (
            failure_of(self.log_root, saved.job, with_lines=with_lines)
            if saved.job.state is JobState.FAILED
            else None
        )
        return view if failure is None else replace(view, failure=failure)

    async def _with_waiting(self, page: list[SavedJob]) -> list[models.Job]:
        queued = [saved.job.id for saved in page if saved.job.state is JobState.QUEUED]
        why: dict[JobId, Waiting | None] = {}
        if queued:
            now = self.clock()

            def question(state: ClusterState) -> dict[JobId, Waiting | None]:
                known: Known = {}
                return {job_id: waiting(state, job_id, now, known) for job_id in queued}

            why = await self._ask(question)
        return [job_view(saved, why.get(saved.job.id)) for saved in page]

    async def _ask(self, question: Callable[[ClusterState], _T]) -> _T:
        return await self._call(lambda answer: calls.ask(question, answer))

    async def _call(self, make: Callable[[calls.Answer[_T]], Call]) -> _T:
        future: asyncio.Future[_T] = self._loop.create_future()

        def answer(result: _T | MgpuError) -> None:
            if future.done():
                return
            if isinstance(result, MgpuError):
                future.set_exception(result)
            else:
                future.set_result(result)

        def fail(error: MgpuError) -> None:
            self._loop.call_soon_threadsafe(answer, error)

        self.master.post(make(answer), fail)
        return await future


def no_such_job(job_id: JobId) -> NotFound:
    """Return the error for a job that does not exist."""
    return NotFound("no-such-job", f"There is no job {job_id}: see `mgpu_queue --all`.")
