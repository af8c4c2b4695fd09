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
MARKER = b"MGPU_TASK"


class Collect(msgspec.Struct, frozen=True, array_like=True):
    """Which files are collected from the directory of an attempt when it has ended."""

    patterns: tuple[str, ...]
    ranks: int
    """How many processes of the attempt are on this node."""
    uid: int = -1
    """Whose files they must be; -1 for anybody's."""
    values: str = ""
    """The directory in which its ranks leave variables; empty for none."""
    user: str = ""
    limit_bytes: int = 0
    """How much is collected at most; 0 for no limit."""


class TaskRecord(msgspec.Struct, frozen=True, array_like=True):
    """One process of one attempt, as the ledger knows it; `pid` is 0 until it was started."""

    key: AttemptKey
    rank: int
    spool: str = ""
    """What its two spool files are called, without `.out` and `.err`."""
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
    """What the machine called itself when the process was started, as its parent saw it."""
    collect: Collect | None = None


def incarnation(boot_id: str, ledger_id: str) -> str:
    """Return what changes when nothing that was started before can still run."""
    return f"{boot_id}/{ledger_id}"


# --- agent to keeper -----------------------------------------------------------------------------


class Attach(msgspec.Struct, frozen=True, kw_only=True, tag="attach"):
    """I am the agent now; this is the environment that jobs start from, and what they are bound by where they run as their users."""

    environment: dict[bytes, bytes]
    confinement: Confinement = Confinement()


class Hook(msgspec.Struct, frozen=True, array_like=True):
    """A command before or after an attempt on this node."""

    command: str
    site: bool = False
    """The site's own: it runs as the agent's user, also where jobs run as theirs."""
    limit_s: float = 60.0


class Hooks(msgspec.Struct, frozen=True, array_like=True):
    """All that is needed to run the hooks of an attempt, also by a keeper that did not start it."""

    prolog: tuple[Hook, ...]
    epilog: tuple[Hook, ...]
    env: dict[bytes, bytes]
    """What the job's own hooks find beside the environment of a login; those of the site never do."""
    cwd: str
    account: Account | None = None
    spool: str = ""
    """The spool files that their output goes to."""
    facts: dict[bytes, bytes] = {}
    """What mgpu itself says of the attempt: `MGPU_*`, for every hook."""


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
    """More of the environment of its processes, which hooks do not get and the ledger does not keep."""
    cwd: str
    gpus: tuple[GpuUuid, ...] = ()
    python: str = ""
    note: str = ""
    lease_s: float = 0.0
    """0: it runs on, whatever is heard of the master."""
    grace_s: float = 0.0
    """Between TERM and KILL, when the lease runs out."""
    alive_at: float = 0.0
    """As in `MasterAlive`, when the launch came."""
    account: Account | None = None
    """Who the processes run as; None for the agent's own user."""
    may_gain: bool = False
    """Whether `no_new_privs` is left out: it starts a container, whose tools need setuid helpers."""
    share: Share = Share()
    """What it asked for, where that is kept."""
    prolog: tuple[Hook, ...] = ()
    epilog: tuple[Hook, ...] = ()
    facts: dict[bytes, bytes] = {}
    """What hooks are told of the attempt."""
    stdin: bool = False
    """Rank 0 reads what comes by `Input`."""
    pty: bool = False
    """Rank 0 runs in a terminal of this size."""
    rows: int = 24
    columns: int = 80
    collect: Collect | None = None


class MasterAlive(msgspec.Struct, frozen=True, kw_only=True, tag="alive"):
    """The master heard what this node said at this moment of the clock that counts from boot: leases count from there."""

    alive_at: float


class StopTasks(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """End the trees of this attempt; if it was never started, it never will be."""

    key: AttemptKey
    grace_s: float
    reason: str = ""
    cause: str = ""
    """What it means for the job, in a word."""


class ForgetTasks(msgspec.Struct, frozen=True, kw_only=True, tag="forget"):
    """The ends of these attempts are saved elsewhere."""

    keys: tuple[AttemptKey, ...]


class Leave(msgspec.Struct, frozen=True, kw_only=True, tag="leave"):
    """This agent goes on purpose: with nothing to keep, go as well."""


ToKeeper = Attach | StartTasks | MasterAlive | StopTasks | ForgetTasks | Leave | Input | Resize | Warn

# --- keeper to agent -----------------------------------------------------------------------------


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot"):
    """The answer to `Attach`: who I am, and every task that is not forgotten."""

    boot_id: str
    ledger_id: str
    pid: int
    tasks: tuple[TaskRecord, ...]
    spare: tuple[str, ...] = ()
    """Spool files that wait for their next task."""


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
    """The spool files of these names are of no more use and may be deleted."""

    stems: tuple[str, ...]


FromKeeper = Snapshot | TaskChanged | StartRefused | Discarded | InputAck

to_keeper_decoder: msgspec.msgpack.Decoder[ToKeeper] = msgspec.msgpack.Decoder(ToKeeper)
from_keeper_decoder: msgspec.msgpack.Decoder[FromKeeper] = msgspec.msgpack.Decoder(FromKeeper)
