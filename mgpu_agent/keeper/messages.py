"""What agent and keeper say to each other over the node's own Unix socket. Never leaves the machine."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid
from mgpu_agent.protocol.messages import Input, InputAck, Resize, Warn
from mgpu_agent.run_as.account import Account, Confinement
from mgpu_agent.run_as.cgroups import Share

SOCKET_NAME = "keeper.sock"
LOCK_NAME = "keeper.lock"
LEDGER_NAME = "ledger"
SPOOL_NAME = "spool"
AGENT_LOG_NAME = "agent.log"
MARKER = b"MGPU_TASK"
LEAST_ROOM_BYTES = 1024 * 1024
"""With less room on its disk a node starts nothing: the first words of a job would fail it."""
DISK_FULL = "The node's disk is full: free some space on it."


class Collect(msgspec.Struct, frozen=True, array_like=True):
    """Which files are collected from the directory of an attempt when it has ended."""

    patterns: tuple[str, ...]
    ranks: int
    """How many processes of the attempt are on this node."""
    uid: int = -1
    """The account that must own them; -1 for any."""
    values: str = ""
    """The directory in which its ranks leave variables; empty for none."""
    user: str = ""
    limit_bytes: int = 0
    """The most bytes to collect; 0 for no limit."""


class TaskRecord(msgspec.Struct, frozen=True, array_like=True):
    """One process of one attempt, as the ledger knows it; `pid` is 0 until it is started."""

    key: AttemptKey
    rank: int
    spool: str = ""
    """The name of its two spool files, without `.out` and `.err`."""
    gpus: tuple[GpuUuid, ...] = ()
    cwd: str = ""
    python: str = ""
    note: str = ""
    pid: int = 0
    started_at: float = 0.0
    ended_at: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    reason: str = ""
    lost: bool = False
    stdout_bytes: int = 0
    stderr_bytes: int = 0
    host: str = ""
    """The machine's host name when the process was started, as its parent saw it."""
    collect: Collect | None = None


def incarnation(boot_id: str, ledger_id: str) -> str:
    """Return an id that changes when nothing that was started before can still run."""
    return f"{boot_id}/{ledger_id}"


# --- agent to keeper -----------------------------------------------------------------------------


class Attach(msgspec.Struct, frozen=True, kw_only=True, tag="attach"):
    """Become the keeper's agent; with the environment of jobs, and their limits where they run as their
    users.
    """

    environment: dict[bytes, bytes]
    confinement: Confinement = Confinement()
    again: tuple[str, ...] = ()
    """The command line that restarts the agent when it is killed; empty where that is not wanted."""


class Hook(msgspec.Struct, frozen=True, array_like=True):
    """A command before or after an attempt on this node."""

    command: str
    site: bool = False
    """Whether it is the site's: then it runs as the agent's user, also where jobs run as theirs."""
    limit_s: float = 60.0


class Hooks(msgspec.Struct, frozen=True, array_like=True):
    """All that is needed to run the hooks of an attempt, also by a keeper that did not start it."""

    prolog: tuple[Hook, ...]
    epilog: tuple[Hook, ...]
    env: dict[bytes, bytes]
    """Added to a login environment for the job's own hooks; those of the site never get it."""
    cwd: str
    account: Account | None = None
    spool: str = ""
    """The spool files for their output."""
    facts: dict[bytes, bytes] = {}
    """What mgpu itself tells every hook about the attempt: `MGPU_*`."""


class RankStart(msgspec.Struct, frozen=True, array_like=True):
    """What differs between the processes of one launch."""

    rank: int
    env: dict[bytes, bytes]


class StartTasks(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """Start these processes, unless the ledger shows that it was done already."""

    key: AttemptKey
    incarnation: str
    argv: tuple[bytes, ...]
    ranks: tuple[RankStart, ...]
    secret_env: dict[bytes, bytes] = {}
    """More environment for its processes, which hooks do not get and the ledger does not keep."""
    cwd: str
    gpus: tuple[GpuUuid, ...] = ()
    python: str = ""
    note: str = ""
    lease_s: float = 0.0
    """0: it runs on, however long the master is not heard."""
    grace_s: float = 0.0
    """Seconds between TERM and KILL when the lease runs out."""
    alive_at: float = 0.0
    """As in `MasterAlive`, when the launch arrived."""
    account: Account | None = None
    """The account of the processes; None for the agent's own user."""
    may_gain: bool = False
    """Whether to leave out `no_new_privs`: it starts a container, whose tools need setuid helpers."""
    share: Share = Share()
    """What it asked for, where jobs are limited to that."""
    prolog: tuple[Hook, ...] = ()
    epilog: tuple[Hook, ...] = ()
    facts: dict[bytes, bytes] = {}
    """What hooks are told about the attempt."""
    stdin: bool = False
    """Rank 0 reads what comes by `Input`."""
    pty: bool = False
    """Rank 0 runs in a terminal of this size."""
    rows: int = 24
    columns: int = 80
    collect: Collect | None = None


class MasterAlive(msgspec.Struct, frozen=True, kw_only=True, tag="alive"):
    """The master received what this node sent at this moment of the boot clock: leases count from there."""

    alive_at: float


class StopTasks(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End the trees of this attempt; if it was never started, it never will be."""

    key: AttemptKey
    grace_s: float
    reason: str = ""
    cause: str = ""
    """Why it is stopped, in one word."""


class ForgetTasks(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """The ends of these attempts are saved elsewhere."""

    keys: tuple[AttemptKey, ...]


class Leave(msgspec.Struct, frozen=True, kw_only=True, tag="leave"):
    """This agent ends on purpose: a keeper with nothing to keep ends as well."""


ToKeeper = Attach | StartTasks | MasterAlive | StopTasks | ForgetTasks | Leave | Input | Resize | Warn

# --- keeper to agent -----------------------------------------------------------------------------


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """The answer to `Attach`: the keeper's identity, and every task that is not forgotten."""

    boot_id: str
    ledger_id: str
    pid: int
    tasks: tuple[TaskRecord, ...]
    spare: tuple[str, ...] = ()
    """Spool files that can be used again."""


class TaskChanged(msgspec.Struct, frozen=True, kw_only=True, tag="task"):
    """A process started or ended, or a launch was repeated."""

    record: TaskRecord


class StartRefused(msgspec.Struct, frozen=True, kw_only=True, tag="refused"):
    """Nothing was started under this key and nothing will be."""

    key: AttemptKey
    code: str
    message: str
    fault: str
    exit_code: int | None = None


class Discarded(msgspec.Struct, frozen=True, kw_only=True, tag="discarded"):
    """The spool files of these names are not needed any more and may be deleted."""

    stems: tuple[str, ...]


FromKeeper = Snapshot | TaskChanged | StartRefused | Discarded | InputAck

to_keeper_decoder: msgspec.msgpack.Decoder[ToKeeper] = msgspec.msgpack.Decoder(ToKeeper)
from_keeper_decoder: msgspec.msgpack.Decoder[FromKeeper] = msgspec.msgpack.Decoder(FromKeeper)
