"""What the master needs of durable state, as roles: store, output, and the receiver of changes. Adapters play
them; only the server wires them.

What it needs of nodes is in `node_link.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import InputAck
from mgpu_agent.protocol.model import NodeFacts
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders

ATTEMPTS_REMEMBERED = 50
"""For how many attempts of one job the store keeps record and marks, beside the current one."""
MARKS_WAIT_S = 1.0
"""A mark without another change is written after this long, so that it costs no commit of its own."""


class MarkedStep(StrEnum):
    """The steps that are noted: a node is prepared, a rank wrote its first output, all of its output is kept
    here.
    """

    PREPARED = "prepared"
    OUTPUT = "output"
    COLLECTED = "collected"


class Mark(msgspec.Struct, frozen=True, kw_only=True):
    """When a step was seen; only the first time counts."""

    job_id: JobId
    attempt: int
    step: str
    who: str
    """The node's name, or the number of the rank."""
    at: float


JOIN_KEYS_REMEMBERED_S = 30 * 86_400.0
"""How long the store can still tell that a join key was used or has expired."""

ANSWERS_REMEMBERED = 50
"""How many changes of an answer are kept under one name."""
ALL_ANSWERS_REMEMBERED = 200_000
"""How many are kept in all; the oldest are deleted first."""
ENDED_REMEMBERED = 1_000
"""How many ended jobs a new master learns from."""


class SavedJob(msgspec.Struct, frozen=True):
    """A version of a job and the sequence number of the change that made it."""

    job: Job
    seq: int
    values_dropped: bool = False
    """Whether the values of its `--env` are deleted; their names are there."""


class SavedState(NamedTuple):
    """The state of a job, and its exit code."""

    state: JobState
    exit_code: int | None


class NodeNotes(msgspec.Struct, frozen=True, kw_only=True):
    """What the master noted about a node: orders of operators, and the results of starts."""

    orders: NodeOrders = NodeOrders()
    health: NodeHealth = NodeHealth()


class SavedNode(msgspec.Struct, frozen=True, kw_only=True):
    """What is kept of a node: its key, what it last said about itself, and the master's notes."""

    id: NodeId
    public_key: str | None
    """None when it was revoked."""
    facts: NodeFacts | None = None
    revoked: str = ""
    """Why it was revoked; empty when it was not."""
    notes: NodeNotes = NodeNotes()


class JoinKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key under which one node may enrol once."""

    public_key: str
    created_by: str
    created_at: float
    expires_at: float
    node_id: NodeId | None = None
    """The only name that it may enrol, if one was set."""
    used_by: NodeId | None = None
    """The node that used it."""


class Batch(msgspec.Struct, kw_only=True):
    """All that one commit writes."""

    jobs: dict[JobId, SavedJob] = {}
    new: set[JobId] = set()
    """Those of `jobs` that are new to the store."""
    attempts: list[Job] = []
    nodes: dict[NodeId, NodeFacts] = {}
    notes: dict[NodeId, NodeNotes] = {}
    revoked: dict[NodeId, str] = {}
    """Nodes whose key is unbound, and why."""
    removed: set[NodeId] = set()
    """Nodes to forget, after everything else is written."""
    memos: dict[str, str] = {}
    """Small facts that decisions depend on, by name."""
    answers: list[tuple[str, Record]] = []
    """What waiting jobs are told from now on, under the names that they share."""
    marks: list[Mark] = []
    """Steps of jobs that were seen."""
    epoch: int = 0

    def __bool__(self) -> bool:
        told = self.memos or self.answers or self.marks
        return bool(
            self.jobs or self.attempts or self.nodes or self.notes or self.revoked or self.removed or told
        )


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the store at the start."""

    jobs: tuple[Job, ...]
    nodes: tuple[SavedNode, ...]
    epoch: int
    number: int
    join_keys: tuple[JoinKey, ...] = ()
    memos: dict[str, str] = {}
    ended: tuple[Job, ...] = ()
    """The newest ended jobs, oldest first: expected durations are learnt from them."""


class JobFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs a list has; newest first, `before` is the number at which the page before ended."""

    states: tuple[JobState, ...] = ()
    user: str | None = None
    name: str | None = None
    since: float | None = None
    array: str | None = None
    ids: tuple[JobId, ...] = ()
    notebook: str | None = None
    before: int | None = None
    limit: int = 100


class TokenRow(msgspec.Struct, frozen=True, kw_only=True):
    """A token, known only by its hash."""

    hash: bytes
    user: str
    scope: str
    created_at: float
    expires_at: float | None = None


LOCAL_SCOPE = "local"
"""Scope of the token for programs on the master's machine: a file there, which belongs to no user."""
USER_SCOPE = "user"


class UserRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person of a shared master; `expires_at` is the end of the last login, None when it has no end."""

    name: str
    role: str
    created_at: float
    expires_at: float | None = None


class Store(Protocol):
    """The one writer of durable state. Every call returns only when its data is safe."""

    def recover(self) -> Recovered:
        """Return all that a new master must know."""

    def next_master_epoch(self) -> int:
        """Raise the master epoch and return it."""

    def commit(self, batch: Batch) -> None:
        """Write a batch as a whole."""

    def find_job(self, job_id: JobId) -> Job | None:
        """Return one job."""

    def find_by_key(self, user: str, key: str) -> Job | None:
        """Return the job that this user submitted under this idempotency key."""

    def find_array(self, array_id: str) -> list[Job]:
        """Return the jobs of an array, in the order of their numbers; empty for an id that is no array's."""

    def forget_jobs(self, job_ids: Sequence[JobId]) -> None:
        """Delete all records of jobs that are over; their numbers are never used again."""

    def drop_values(self, ended_before: float, after: int = 0) -> tuple[int, int]:
        """Delete `--env` values of jobs that ended before then, one page; return how many, and where to
        continue (0 at the end).
        """

    def assigned_nodes(self, key: AttemptKey) -> frozenset[NodeId]:
        """Return the nodes that this attempt was placed on, now or in the past."""

    def bind_node_key(self, node_id: NodeId, public_key: str, join_key: str | None = None) -> None:
        """Bind a public key to a node id in place of the one before; this uses up the join key."""

    def add_join_key(self, key: JoinKey) -> None:
        """Keep a key for one enrolment; those that expired long ago are forgotten."""

    def setting(self, name: str) -> str | None:
        """Return the value kept under this name."""

    def set_setting(self, name: str, value: str) -> None:
        """Keep a value under this name."""

    def add_token(self, token: TokenRow) -> None:
        """Keep a token's hash."""

    def add_user(self, user: UserRow, token: TokenRow) -> None:
        """Keep a new user and the token to log in with, both or neither."""

    def remove_user(self, name: str) -> None:
        """Forget a user and all tokens they were given, at once."""

    def reader(self) -> Reader:
        """Return a view for reading."""

    def close(self) -> None:
        """Close everything."""


class Reader(Protocol):
    """Committed state for readers; never blocks the writer. One thread at a time."""

    def job(self, job_id: JobId) -> SavedJob | None:
        """Return one job."""

    def states_of(self, job_ids: Sequence[JobId]) -> dict[JobId, SavedState]:
        """Return the state of each of these jobs; unknown ones are left out."""

    def jobs(self, wanted: JobFilter) -> list[SavedJob]:
        """Return a page, newest first."""

    def changed_since(self, seq: int, limit: int) -> list[SavedJob]:
        """Return jobs that changed after `seq`, in the order of their last change."""

    def count_active(self) -> dict[str, int]:
        """Return how many jobs are in each state that is not final."""

    def oldest_ended(self, after: int, limit: int) -> list[SavedJob]:
        """Return ended jobs with numbers larger than `after`, the first submitted first."""

    def count_ended(self) -> int:
        """Return how many jobs are over."""

    def answers(self, keys: Sequence[str]) -> list[Record]:
        """Return what was recorded under these names, oldest first."""

    def attempts(self, job_id: JobId) -> list[Job]:
        """Return a job's earlier attempts, oldest first, each as the job was at its end."""

    def marks(self, job_id: JobId) -> list[Mark]:
        """Return the steps of a job that were seen."""

    def token(self, hash_: bytes) -> TokenRow | None:
        """Return the token with this hash."""

    def users(self) -> list[UserRow]:
        """Return all users by name."""

    def user(self, name: str) -> UserRow | None:
        """Return one user."""

    def close(self) -> None:
        """Close everything."""


class LogKey(NamedTuple):
    """The output of one rank of one attempt."""

    job_id: JobId
    attempt: int
    rank: int


class OutputLog(Protocol):
    """Where output is kept. Used by the master's thread."""

    def append(self, key: LogKey, stream: int, offset: int, data: bytes) -> int:
        """Write the new part of a chunk and return how far this stream is received; a gap writes nothing."""

    def received(self, key: LogKey) -> dict[int, int]:
        """Return how far each stream is received."""

    def detach(self, key: LogKey) -> Callable[[], None]:
        """Close the files; the returned function syncs them to disk, on any thread."""

    def close(self) -> None:
        """Close everything."""


class ChangeSink(Protocol):
    """Receives every committed batch, on the master's thread; must return at once."""

    def publish(
        self, replies: Sequence[Callable[[], None]], jobs: Sequence[SavedJob], grown: set[JobId]
    ) -> None:
        """Pass on replies to requests, changed jobs, and jobs whose output grew."""

    def typed(self, acks: Sequence[InputAck]) -> None:
        """Pass on how much of the typed input was read."""


def assigned_in(jobs: Iterable[Job], key: AttemptKey) -> frozenset[NodeId]:
    """Return the nodes of those records that belong to this attempt."""
    return frozenset(
        placement.node_id for job in jobs if job.attempt_key == key for placement in job.placements
    )
