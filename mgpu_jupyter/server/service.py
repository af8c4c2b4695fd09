"""The parts of a running master, wired by hand, top to bottom: directory, keys, store, link, engine, master, runtime file.

The one place where adapters meet. Handlers see only this object.
"""

from __future__ import annotations

import asyncio
import fcntl
import getpass
import logging
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from mgpu_agent.protocol.addresses import link_address
from mgpu_agent.protocol.errors import MgpuError, NotFound, Unavailable
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_agent.protocol.places import RuntimeFile, StatePlace, boot_id, check_private_state, host_name, write_runtime_file
from mgpu_jupyter.api import models
from mgpu_jupyter.api.input import Typed
from mgpu_jupyter.engines.agents import LINK_HOST, AgentsEngine
from mgpu_jupyter.engines.door import ENROL_USER
from mgpu_jupyter.engines.records import LinkSettings, Records
from mgpu_jupyter.master import calls, doors
from mgpu_jupyter.master.clock import SteadyClock
from mgpu_jupyter.master.doors import kept_addresses
from mgpu_jupyter.master.intake import Admitted, Item
from mgpu_jupyter.master.master import SEQ_PER_EPOCH, Call, Master
from mgpu_jupyter.master.ports import LOCAL_SCOPE, JobFilter, JoinKey, Reader, SavedJob, Store
from mgpu_jupyter.master.privacy import Privacy
from mgpu_jupyter.master.shares import Shares
from mgpu_jupyter.master.views import job_view
from mgpu_jupyter.model.cluster_file import ExpectedNode
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.limits import Limits
from mgpu_jupyter.scheduler.admission import usable_nodes
from mgpu_jupyter.scheduler.explain.waiting import Known, Waiting, waiting
from mgpu_jupyter.scheduler.model import Job, Policy
from mgpu_jupyter.scheduler.placement.strategies import Strategy
from mgpu_jupyter.scheduler.site import Site
from mgpu_jupyter.scheduler.state import ClusterState
from mgpu_jupyter.server.access import Access, Person, hash_token, new_token, token_row
from mgpu_jupyter.server.explaining import Explainer
from mgpu_jupyter.server.failures import failure_of
from mgpu_jupyter.server.folders import Folders
from mgpu_jupyter.server.hub import Hub
from mgpu_jupyter.server.joining import Listening, admit_kept, new_join_key, token_of
from mgpu_jupyter.server.keys import KeyPair, load_keys, load_secret
from mgpu_jupyter.server.live.board import Board
from mgpu_jupyter.server.live.live import Live
from mgpu_jupyter.server.presence import Presence
from mgpu_jupyter.server.tracing import Pings, Tracer
from mgpu_jupyter.store.disk_use import output_by_user, results_by_user, share_of_disk
from mgpu_jupyter.store.logs import DEFAULT_CAP_BYTES, LogWriter
from mgpu_jupyter.store.pieces import DEFAULT_CAP_BYTES as FOLDERS_CAP_BYTES
from mgpu_jupyter.store.pieces import PieceStore
from mgpu_jupyter.store.results import ResultStore
from mgpu_jupyter.store.sqlite import SqliteStore
from mgpu_jupyter.transport.router import Router

log = logging.getLogger("mgpu.service")

_T = TypeVar("_T")
DEFAULT_LINK_PORT = 8790


class ServiceSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What a site may set about the master."""

    link: LinkSettings
    policy: Policy
    link_port: int = 0
    admins: tuple[str, ...] = ()
    output_cap_bytes: int = DEFAULT_CAP_BYTES
    folders_cap_bytes: int = FOLDERS_CAP_BYTES
    limits: Limits = Limits()
    privacy: Privacy = "full"
    """What users see of the jobs of others."""
    follower_timeout_s: float = 60.0
    client_grace_s: float = 30.0
    """How long a job that ends with its client waits for it to come back."""
    ping_timeout_s: float = 5.0
    expected: tuple[ExpectedNode, ...] = ()
    """Machines that the cluster's file lists."""
    strategies: dict[str, Strategy] = {}
    """Ways to pick nodes that the site brought along, by name."""


class Service:
    """A master with all that it needs. Belongs to the server's event loop."""

    def __init__(self, place: StatePlace, settings: ServiceSettings, *, url: str, port: int, certificate_pin: str = "") -> None:
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
        """Open all parts; `undo` lets go of them when one fails, so that a later try finds them free."""
        place, settings = self.place, self.settings
        self._lock = _lock(place.path)
        undo.callback(os.close, self._lock)
        store = _open_store(place)
        undo.callback(store.close)
        epoch = store.next_master_epoch()
        keys = load_keys(place.path / "keys", "link")
        enrol_keys = load_keys(place.path / "keys", "enrol")
        self._link_key = keys.public
        router = Router(public_key=keys.public, secret_key=keys.secret)
        self.turned_away = router.turned_away
        undo.callback(router.close)
        recovered = store.recover()
        for node in recovered.nodes:
            if node.public_key is not None:
                router.allow(node.public_key, node.id)
        router.allow(enrol_keys.public, ENROL_USER)
        self.listening = Listening(_bind(router, store, settings.link_port))
        self.link_address = link_address(LINK_HOST, self.listening.port)
        self.results = ResultStore(place.path / "results")
        limits, owners = settings.limits, store.owners()
        share = settings.folders_cap_bytes // 2 if limits.user_folders_bytes is None else limits.user_folders_bytes
        pieces = PieceStore(place.path / "pieces", settings.folders_cap_bytes, share, self.access.is_named_admin)
        self.output_shares = self._shares(limits.user_output_bytes, output_by_user(self.log_root, owners))
        self.results_shares = self._shares(limits.user_results_bytes, results_by_user(place.path / "results", owners))
        self.folders = Folders(pieces, self._ask, settings.limits.folder_bytes)
        owner = partial(_owner, store)
        records = Records(store.bind_node_key, store.assigned_nodes, pieces.read, self.results, limits, self.results_shares, owner)
        logs = LogWriter(self.log_root, cap_bytes=settings.output_cap_bytes, shares=self.output_shares, owner=owner)
        port_ = self.listening.port
        engine = AgentsEngine(router, logs, records, settings.link, master_epoch=epoch, clock=self.clock, link_port=port_)
        for node in recovered.nodes:
            if node.public_key is None:
                engine.revoke(node.id, node.revoked)
        admit_kept(recovered.join_keys, engine, router, self.clock())
        self.listening.bind_kept(engine, kept_addresses(store))
        self.token = self._local_token(store)
        self.reader: Reader = store.reader()
        self._page_reader: Reader = store.reader()
        self.explainer = Explainer(self._ask, store.reader(), self.clock)
        self._reader_thread = ThreadPoolExecutor(1, thread_name_prefix="mgpu-reader")
        self.master = Master(store, engine, self.hub, self.clock, policy=settings.policy, epoch=epoch, strategies=settings.strategies)
        board = Board(self._ask, self.hub, self.clock, epoch * SEQ_PER_EPOCH)
        self.live = Live(self.master, self.hub, board, self.log_root, self._reader_thread)
        self.ping = Pings(self.master, settings.ping_timeout_s)
        self.tracer = Tracer(self._ask, store.reader(), self.clock, self.ping, self.listening.port)
        self._runtime_file = self._publish(url, port, certificate_pin, keys, enrol_keys)

    @property
    def log_root(self) -> Path:
        """Where output is."""
        return self.place.path / "logs"

    def start(self) -> None:
        """Begin to take turns."""
        self.master.start()
        self.presence.start()
        self.live.start(self.look)

    def stop(self) -> None:
        """End the master; jobs go on on their nodes."""
        self._runtime_file.unlink(missing_ok=True)
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

    # --- what handlers ask ----------------------------------------------------------------------

    async def submit(self, person: Person, items: Sequence[Item]) -> list[Admitted]:
        """Admit all jobs or none; returns when they are saved, those of an array together."""
        await self.folders.check(person, (spec for spec, _ in items))
        return await self._call(lambda answer: calls.submit(person.name, items, answer))

    async def cancel(self, person: Person, job_id: JobId) -> list[Job]:
        """Cancel a job or array that this person may cancel."""
        return await self._call(lambda answer: calls.cancel(job_id, person.name, is_admin=person.is_admin, answer=answer))

    async def change(self, person: Person, job_id: JobId, wanted: calls.Change) -> list[Job]:
        """Change a job or array of this person."""
        return await self._call(lambda answer: calls.change(job_id, person.name, wanted, is_admin=person.is_admin, answer=answer))

    async def requeue(self, person: Person, job_id: JobId) -> list[Job]:
        """Let a job or array of this person wait again."""
        return await self._call(lambda answer: calls.requeue(job_id, person.name, is_admin=person.is_admin, answer=answer))

    async def join_token(self, person: Person, request: models.JoinTokenRequest) -> models.JoinToken:
        """Listen where other machines reach the link, and make a line that lets one of them join once."""
        hosts = self.listening.wanted(request.listen)
        new: tuple[str, ...] = await self._call(lambda answer: doors.listen(hosts, answer))
        message = self.listening.added(new)
        key, secret = new_join_key(request, person.name, self.clock())
        _: JoinKey = await self._call(lambda answer: doors.admit(key, answer))
        addresses = tuple(link_address(host, self.listening.port) for host in hosts)
        return token_of(key, secret, addresses=addresses, server_key=self._link_key, cluster=self.settings.link.cluster, message=message)

    async def revoke_node(self, person: Person, node_id: NodeId, reason: str) -> str:
        """Refuse a node from now on, and give up what it runs; return what is said of it."""
        return await self._call(lambda answer: doors.revoke(node_id, person.name, reason, answer))

    async def order_node(self, person: Person, node_id: NodeId, wish: doors.Wish) -> str:
        """Do to a node what an administrator wants; return what became of it."""
        return await self._call(lambda answer: doors.order(node_id, person.name, wish, answer))

    async def usable_nodes(self, person: Person) -> frozenset[NodeId]:
        """Return the nodes that jobs of this person may use."""
        return await self._ask(lambda state: usable_nodes(state, person.name))

    async def type_in(self, job_id: JobId, typed: Typed) -> bool:
        """Send on what somebody who may typed into a job; tell whether there is a process to read it."""
        return await self._call(lambda answer: calls.type_in(job_id, typed, answer))

    async def resize(self, job_id: JobId, rows: int, columns: int) -> bool:
        """Tell a job the size of the terminal of somebody who may see it."""
        return await self._call(lambda answer: calls.resize(job_id, rows, columns, answer))

    async def _bound_jobs(self) -> list[JobId]:
        return await self._ask(lambda state: [job.id for job in state.jobs.values() if job.spec.interactive_kill])

    async def _end_alone(self, job_id: JobId) -> list[Job]:
        by = f"mgpu: its client was gone for {self.settings.client_grace_s:g} s"
        return await self._call(lambda answer: calls.cancel(job_id, by, is_admin=True, answer=answer))

    async def forget_jobs(self, job_ids: Sequence[JobId]) -> int:
        """Delete all that is kept of jobs that are over; returns when that is saved."""
        return await self._call(lambda answer: calls.forget(job_ids, answer))

    async def write(self, change: Callable[[Store], _T]) -> _T:
        """Write to the store beside the jobs; returns when it is saved."""
        return await self._call(lambda answer: calls.write(change, answer))

    async def look(self, question: Callable[[Reader], _T]) -> _T:
        """Ask the store on the thread of its reader."""
        return await self._loop.run_in_executor(self._reader_thread, question, self._page_reader)

    async def jobs(self, wanted: JobFilter) -> tuple[list[models.Job], int | None]:
        """Return a page of jobs, and the number where it ended when more follow."""
        one_more = replace(wanted, limit=wanted.limit + 1)
        page = await self._loop.run_in_executor(self._reader_thread, self._page_reader.jobs, one_more)
        last = page[wanted.limit - 1].job.number if len(page) > wanted.limit else None
        return await self._with_waiting(page[: wanted.limit]), last

    async def changed_since(self, seq: int, limit: int) -> list[models.Job]:
        """Return jobs that changed after `seq`."""
        page = await self._loop.run_in_executor(self._reader_thread, self._page_reader.changed_since, seq, limit)
        return await self._with_waiting(page)

    def saved_job(self, job_id: JobId) -> SavedJob:
        """Return a job's newest committed version."""
        saved = self.reader.job(job_id)
        if saved is None:
            raise NotFound("no-such-job", f"There is no job {job_id}: see `mgpu_queue --all`.")
        return saved

    async def job(self, job_id: JobId, *, with_lines: bool = False) -> models.Job:
        """Return a job, with its place and reason while it waits; `with_lines` for those who may read its output."""
        saved = self.saved_job(job_id)
        (view,) = await self._with_waiting([saved])
        failure = failure_of(self.log_root, saved.job, with_lines=with_lines) if saved.job.state is JobState.FAILED else None
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

    def _shares(self, limit_bytes: int | None, used: dict[str, int]) -> Shares:
        return Shares(share_of_disk(limit_bytes, self.place.path, used), used, self.access.is_named_admin)

    # --- wiring ---------------------------------------------------------------------------------

    def _local_token(self, store: SqliteStore) -> str:
        """Return the token of this machine's own user; it stays the same over restarts, so that kernels go on."""
        token = own_token(self.place)
        reader = store.reader()
        if reader.token(hash_token(token)) is None:
            store.add_token(token_row(token, getpass.getuser(), scope=LOCAL_SCOPE))
        reader.close()
        return token

    def _publish(self, url: str, port: int, certificate_pin: str, keys: KeyPair, enrol_keys: KeyPair) -> Path:
        content = RuntimeFile(
            url=url,
            token=self.token,
            link_address=self.link_address,
            link_public_key=keys.public,
            enrol_public_key=enrol_keys.public,
            enrol_secret_key=enrol_keys.secret,
            host=host_name(),
            boot_id=boot_id(),
            pid=os.getpid(),
            port=port,
            started_at=time.time(),
            certificate_pin=certificate_pin,
        )
        return write_runtime_file(self.place.path, content)


def own_token(place: StatePlace) -> str:
    """Return the token of this user's programs on this machine, made once; kernels keep it over restarts and changes of mode."""
    return load_secret(place.path / "keys", "token", new_token)


def _owner(store: SqliteStore, job_id: JobId) -> str:
    """Return whose a job is, asked by the master's thread; what comes of it waits with its node while the store does not answer."""
    try:
        job = store.find_job(job_id)
    except Unavailable as error:
        raise OSError(error.message) from error
    return "" if job is None else job.user


def _open_store(place: StatePlace) -> SqliteStore:
    path = place.path / "mgpu.db"
    # Made by us first, so that neither it nor its journal is ever readable by others.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return SqliteStore(path, on_network=place.on_network)


def _lock(state: Path) -> int:
    descriptor = os.open(state / "master.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
        os.close(descriptor)
        raise Unavailable(
            "second-master",
            f"Another server (process {owner}) runs the master of {state}: use that one, or set MGPU_STATE_DIR to another directory.",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _bind(router: Router, store: SqliteStore, wanted: int) -> int:
    """Bind the port that was kept; the first time take the one asked for, else 8790 if it is free, else any."""
    kept = store.setting("link_port")
    if kept is not None:
        return router.bind(LINK_HOST, int(kept))
    try:
        port = router.bind(LINK_HOST, wanted or DEFAULT_LINK_PORT)
    except Unavailable:
        if wanted:
            raise
        port = router.bind(LINK_HOST, 0)
    store.set_setting("link_port", str(port))
    return port
