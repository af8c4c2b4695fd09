"""The parts of a running master, opened and wired by hand: lock, store, keys, files, link, runtime file.

The one place where adapters meet; nothing else in the server knows which engine is behind a port. A provider
of nodes is wired here, too.
"""

from __future__ import annotations

import fcntl
import getpass
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec
import zmq

from mgpu_agent.protocol.addresses import link_address
from mgpu_agent.protocol.errors import Unavailable
from mgpu_agent.protocol.ids import JobId
from mgpu_agent.protocol.places import (
    RuntimeFile,
    StatePlace,
    boot_id,
    host_name,
    make_private_dir,
    read_private_file,
    write_private_file,
    write_runtime_file,
)
from mgpu_jupyter.engines.agents.engine import wire_agents
from mgpu_jupyter.engines.agents.enrolment import LINK_HOST
from mgpu_jupyter.engines.agents.files import Records
from mgpu_jupyter.master.keeping import DiskShares
from mgpu_jupyter.master.node_calls import kept_addresses
from mgpu_jupyter.master.node_link import Enrolment, NodeLink
from mgpu_jupyter.master.ports import LOCAL_SCOPE
from mgpu_jupyter.master.privacy import Privacy
from mgpu_jupyter.model.cluster_file import ExpectedNode
from mgpu_jupyter.model.settings import Limits, LinkSettings
from mgpu_jupyter.scheduler.model import Policy
from mgpu_jupyter.scheduler.placement.strategies import Strategy
from mgpu_jupyter.server.access import hash_token, new_token, token_row
from mgpu_jupyter.server.joining import Listening
from mgpu_jupyter.store.disk_use import output_by_user, results_by_user, share_of_disk
from mgpu_jupyter.store.logs import DEFAULT_CAP_BYTES, LogWriter
from mgpu_jupyter.store.pieces import DEFAULT_CAP_BYTES as FOLDERS_CAP_BYTES
from mgpu_jupyter.store.pieces import PieceStore
from mgpu_jupyter.store.results import ResultStore
from mgpu_jupyter.store.sqlite import SqliteStore
from mgpu_jupyter.transport.router import Router

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
    """The site's own strategies to pick nodes, by name."""


class MasterParts(NamedTuple):
    """All opened parts."""

    lock: int
    store: SqliteStore
    epoch: int
    results: ResultStore
    pieces: PieceStore
    output_shares: DiskShares
    results_shares: DiskShares
    link: NodeLink
    enrolment: Enrolment
    listening: Listening
    link_address: str
    """The address by which nodes of this machine reach the link."""
    turned_away: Callable[[], tuple[str, ...]]
    link_keys: KeyPair
    enrol_keys: KeyPair


def open_parts(
    undo: ExitStack,
    place: StatePlace,
    settings: ServiceSettings,
    clock: Callable[[], float],
    is_named_admin: Callable[[str], bool],
) -> MasterParts:
    """Open what a master needs; `undo` closes it."""
    lock = _lock(place.path)
    undo.callback(os.close, lock)
    store = _open_store(place)
    undo.callback(store.close)
    epoch = store.next_master_epoch()
    link_keys, enrol_keys = (load_keys(place.path / "keys", name) for name in ("link", "enrol"))
    router = Router(public_key=link_keys.public, secret_key=link_keys.secret)
    undo.callback(router.close)
    port = _bind(router, store, settings.link_port)
    limits, owners = settings.limits, store.owners()
    results = ResultStore(place.path / "results")
    share = (
        settings.folders_cap_bytes // 2 if limits.user_folders_bytes is None else limits.user_folders_bytes
    )
    pieces = PieceStore(place.path / "pieces", settings.folders_cap_bytes, share, is_named_admin)

    def shares(limit_bytes: int | None, used: dict[str, int]) -> DiskShares:
        return DiskShares(share_of_disk(limit_bytes, place.path, used), used, is_named_admin)

    output_shares = shares(limits.user_output_bytes, output_by_user(place.path / "logs", owners))
    results_shares = shares(limits.user_results_bytes, results_by_user(place.path / "results", owners))
    owner = partial(_owner, store)
    records = Records(
        store.bind_node_key, store.assigned_nodes, pieces.read, results, limits, results_shares, owner
    )
    logs = LogWriter(
        place.path / "logs", cap_bytes=settings.output_cap_bytes, shares=output_shares, owner=owner
    )
    agents = wire_agents(router, logs, records, settings.link, master_epoch=epoch, clock=clock, port=port)
    recovered = store.recover()
    agents.enrolment.recover(recovered.nodes, recovered.join_keys, enrol_keys.public)
    listening = Listening(port)
    listening.bind_kept(agents.enrolment, kept_addresses(store))
    return MasterParts(
        lock=lock,
        store=store,
        epoch=epoch,
        results=results,
        pieces=pieces,
        output_shares=output_shares,
        results_shares=results_shares,
        link=agents.link,
        enrolment=agents.enrolment,
        listening=listening,
        link_address=link_address(LINK_HOST, port),
        turned_away=router.turned_away,
        link_keys=link_keys,
        enrol_keys=enrol_keys,
    )


def own_token(place: StatePlace) -> str:
    """Return the token of this user's programs here, made once; kernels keep it over restarts."""
    return load_secret(place.path / "keys", "token", new_token)


def local_token(place: StatePlace, store: SqliteStore) -> str:
    """Return the token of this machine's own user, known to the store and the same over restarts."""
    token = own_token(place)
    reader = store.reader()
    if reader.token(hash_token(token)) is None:
        store.add_token(token_row(token, getpass.getuser(), scope=LOCAL_SCOPE))
    reader.close()
    return token


class HttpPlace(NamedTuple):
    """The address of a master by HTTP."""

    url: str
    port: int
    certificate_pin: str


def publish(place: StatePlace, where: HttpPlace, token: str, parts: MasterParts) -> Path:
    """Write the file by which programs of this user on this machine find the master, and return its path."""
    content = RuntimeFile(
        url=where.url,
        token=token,
        link_address=parts.link_address,
        link_public_key=parts.link_keys.public,
        enrol_public_key=parts.enrol_keys.public,
        enrol_secret_key=parts.enrol_keys.secret,
        host=host_name(),
        boot_id=boot_id(),
        pid=os.getpid(),
        port=where.port,
        started_at=time.time(),
        certificate_pin=where.certificate_pin,
    )
    return write_runtime_file(place.path, content)


def _owner(store: SqliteStore, job_id: JobId) -> str:
    """Return the owner of a job, for the master's thread; while the store does not answer, its node waits."""
    try:
        job = store.find_job(job_id)
    except Unavailable as error:
        raise OSError(error.message) from error
    return "" if job is None else job.user


def _open_store(place: StatePlace) -> SqliteStore:
    path = place.path / "mgpu.db"
    # Created by us first, so that neither it nor its journal is ever readable by others.
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
            f"Another server (process {owner}) runs the master of {state}: use that one, or set "
            f"MGPU_STATE_DIR to another directory.",
        ) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
    return descriptor


def _bind(router: Router, store: SqliteStore, wanted: int) -> int:
    """Bind the saved port; at first the one asked for, else 8790 if it is free, else any."""
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


class KeyPair(msgspec.Struct, frozen=True):
    """A CURVE key pair, Z85."""

    public: str
    secret: str


def load_keys(directory: Path, name: str) -> KeyPair:
    """Return the key pair of this name, which the first call makes."""

    def make() -> str:
        public, secret = zmq.curve_keypair()
        return f"{public.decode()} {secret.decode()}"

    public, _, secret = load_secret(directory, f"{name}.key", make).partition(" ")
    return KeyPair(public, secret)


def load_secret(directory: Path, name: str, make: Callable[[], str]) -> str:
    """Return the secret of this name, which the first call makes."""
    path = make_private_dir(directory) / name
    if not path.exists():
        write_private_file(path, make().encode())
    return read_private_file(path).decode().strip()
