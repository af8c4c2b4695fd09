"""Where programs on one machine find each other: the state directory and the master's runtime file.

Reads and writes small files; decides nothing about jobs. State is on a local disk, because homes in labs are
often on NFS.
"""

from __future__ import annotations

import os
import secrets
import socket
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable

NETWORK_FILE_SYSTEMS = frozenset(
    (
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "9p",
        "afs",
        "ceph",
        "lustre",
        "gpfs",
        "beegfs",
        "glusterfs",
        "fuse.sshfs",
        "fuse.glusterfs",
        "ocfs2",
    )
)
SYSTEM_STATE_DIR = Path("/var/lib/mgpu")
PRIVATE_DIR_MODE = 0o700
PRIVATE_FILE_MODE = 0o600
PRIVATE_DIRS = ("keys", "run", "nodes", "logs")
PRIVATE_FILES = ("keys/*", "run/*.json", "mgpu.db*")


class StatePlace(msgspec.Struct, frozen=True):
    """A directory for state, and whether it is on a network file system (then the store does not use WAL)."""

    path: Path
    on_network: bool = False


class RuntimeFile(msgspec.Struct, frozen=True, kw_only=True):
    """What a running master tells the programs of its own user on its own machine; mode 0600."""

    url: str
    """Base of the HTTP server, ending in `/`; the API is at `mgpu/api/v1` below it."""
    token: str
    link_address: str
    link_public_key: str
    enrol_public_key: str
    enrol_secret_key: str
    host: str
    boot_id: str
    pid: int
    port: int
    started_at: float
    certificate_pin: str = ""
    """SHA-256 of the HTTPS certificate; empty for plain HTTP."""


def boot_id() -> str:
    """Return the kernel's id of this boot."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def host_name() -> str:
    """Return this machine's host name."""
    return socket.gethostname()


def state_place(env: Mapping[str, str] | None = None) -> StatePlace:
    """Return the first candidate that is writable and not on a network; a directory named by `MGPU_STATE_DIR`
    is used as it is.
    """
    env = os.environ if env is None else env
    if named := env.get("MGPU_STATE_DIR"):
        path = Path(named).expanduser().absolute()
        if not _make_writable(path):
            raise InvalidRequest(
                "state-dir", f"MGPU_STATE_DIR={named} is not writable: point it at a directory of your own."
            )
        return StatePlace(path, is_on_network(path))
    home_state = env.get("XDG_STATE_HOME") or f"{env.get('HOME') or os.path.expanduser('~')}/.local/state"
    candidates = [
        SYSTEM_STATE_DIR,
        Path(home_state) / "mgpu" / host_name(),
        Path(f"/var/tmp/mgpu-{os.getuid()}"),  # noqa: S108
    ]
    for path in candidates:
        if not is_on_network(path) and _make_writable(path):
            return StatePlace(path)
    for path in candidates:
        if _make_writable(path):
            return StatePlace(path, on_network=True)
    raise Unavailable(
        "state-dir", "No directory for state is writable: set MGPU_STATE_DIR to one of your own."
    )


def is_on_network(path: Path, mountinfo: str | None = None) -> bool:
    """Tell whether `path` (or the nearest parent that exists) is on a network file system."""
    text = Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo
    real = os.path.realpath(path)
    best, kind = "", ""
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        mount_point = left.split()[4].replace("\\040", " ")
        inside = real == mount_point or real.startswith(mount_point.rstrip("/") + "/")
        if inside and len(mount_point) >= len(best):
            best, kind = mount_point, right.split()[0]
    return kind in NETWORK_FILE_SYSTEMS


def make_private_dir(path: Path, *, durable: bool = True) -> Path:
    """Create `path` for its owner alone, or refuse one that others can enter.

    A name survives a power cut once the directory that holds it is synced; what need not survive one
    (`durable=False`) waits for no disk.
    """
    _make_dir(path, durable=durable)
    _check_private(path, PRIVATE_DIR_MODE)
    return path


def _make_dir(path: Path, *, durable: bool = True) -> None:
    missing = [one for one in (path, *path.parents) if not one.exists()] if durable else []
    path.mkdir(mode=PRIVATE_DIR_MODE, parents=True, exist_ok=True)
    for one in reversed(missing):
        _sync_directory(one.parent)


def _sync_directory(path: Path) -> None:
    directory = os.open(path, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def check_private_state(state: Path) -> None:
    """Refuse a state directory whose keys others can read, or that they can enter."""
    make_private_dir(state)
    for name in PRIVATE_DIRS:
        if (state / name).exists():
            make_private_dir(state / name)
    for pattern in PRIVATE_FILES:
        for path in sorted(state.glob(pattern)):
            _check_private(path, PRIVATE_FILE_MODE)


def check_private_file(path: Path) -> None:
    """Refuse a file that others can read; a missing one is fine."""
    if path.exists():
        _check_private(path, PRIVATE_FILE_MODE)


def _check_private(path: Path, mode: int) -> None:
    kind, what = ("directory", "belong to") if mode == PRIVATE_DIR_MODE else ("file", "be readable by")
    if path.is_symlink() and path.lstat().st_uid not in (0, os.getuid()):
        # In a directory for all, like /var/tmp, a link could choose which of our own files is written to.
        raise InvalidRequest(
            f"unsafe-{kind}", f"{path} is a link that another user made: remove it, or name another {kind}."
        )
    info = path.stat()
    if info.st_uid != os.getuid():
        raise InvalidRequest(
            f"unsafe-{kind}", f"{path} belongs to another user: run  sudo chown {os.getuid()} {path}"
        )
    if info.st_mode & 0o077:
        raise InvalidRequest(f"unsafe-{kind}", f"{path} must {what} you alone: run  chmod {mode:o} {path}")


def write_private_file(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all, readable by its owner alone, and durable."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE_MODE)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    _sync_directory(path.parent)


def read_private_file(path: Path) -> bytes:
    """Read `path`, or refuse one that others can read."""
    _check_private(path, PRIVATE_FILE_MODE)
    return path.read_bytes()


def write_runtime_file(state: Path, content: RuntimeFile) -> Path:
    """Publish how its own user reaches the master of `content.port` on this machine."""
    path = make_private_dir(state / "run") / f"master-{content.port}.json"
    write_private_file(path, msgspec.json.encode(content))
    return path


def find_runtime_file(state: Path, port: int | None = None) -> RuntimeFile | None:
    """Return the newest runtime file of a master that runs on this machine since boot (on `port`, if
    given).
    """
    here = (host_name(), boot_id())
    found: RuntimeFile | None = None
    for path in (state / "run").glob("master-*.json"):
        try:
            candidate = msgspec.json.decode(read_private_file(path), type=RuntimeFile)
        except (OSError, msgspec.DecodeError, InvalidRequest):
            continue
        current = (
            (candidate.host, candidate.boot_id) == here
            and port in (None, candidate.port)
            and _is_alive(candidate.pid)
        )
        if current and (found is None or candidate.started_at > found.started_at):
            found = candidate
    return found


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _make_writable(path: Path) -> bool:
    try:
        _make_dir(path)
    except OSError:
        return False
    return os.access(path, os.W_OK | os.X_OK)
