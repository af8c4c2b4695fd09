"""Bob's job: tries each way to Ann's job by name and says of each whether it got through. Standard library
only; runs as him.

He is given all that there is to know: names, numbers and paths. What he must lack is the right. `{way:
"denied …" | "open …"}` is printed as one JSON document.
"""

from __future__ import annotations

import ctypes
import glob
import json
import os
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable

ARCH = os.uname().machine
EVERYWHERE = {"pidfd_open": 434, "pidfd_getfd": 438, "pidfd_send_signal": 424}
CALLS = {
    "x86_64": {"process_vm_readv": 310, "keyctl": 250, **EVERYWHERE},
    "aarch64": {"process_vm_readv": 270, "keyctl": 219, **EVERYWHERE},
}
PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
KEYCTL_READ, KEYCTL_SEARCH, SESSION_KEYRING = 11, 10, -3
IPC_RMID, IPC_STAT = 0, 2
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
LIBC.sem_open.restype = ctypes.c_void_p
LIMIT_S = 5.0


class Denied(Exception):
    """It did not work; the text says how that was told."""


with open(sys.argv[1]) as _given:
    ANN = json.load(_given)
PID = ANN["pid"]
WAYS: dict[str, Callable[[], object]] = {}


def way(name: str) -> Callable[[Callable[[], object]], Callable[[], object]]:
    """Give a way its name."""

    def add(function: Callable[[], object]) -> Callable[[], object]:
        assert name not in WAYS
        WAYS[name] = function
        return function

    return add


def call(function: str, *arguments: object) -> int:
    """Call the C library, or the kernel by number where it has no name; an error becomes an exception."""
    number = CALLS[ARCH].get(function)
    whole = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    answer = (
        getattr(LIBC, function)(*whole) if number is None else LIBC.syscall(ctypes.c_long(number), *whole)
    )
    if answer in (-1, 2**64 - 1, None):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


def read(path: str) -> str:
    with open(path, "rb") as file:
        return repr(file.read(64))


def talk(family: int, address: object, kind: int = socket.SOCK_STREAM) -> str:
    """Connect and return what is said first; nobody who hangs up has let us in."""
    with socket.socket(family, kind) as connection:
        connection.settimeout(LIMIT_S)
        connection.connect(address)
        said = connection.recv(64)
    if not said:
        raise Denied("hung up")
    return repr(said)


# --- what he was given -----------------------------------------------------------------------------------


@way("inherited: descriptors")
def _() -> object:
    own = {0, 1, 2}
    found = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the listing itself
        if int(name) not in own and target != f"/proc/{os.getpid()}/fd":
            found[name] = target
    if not found:
        raise Denied("none")
    return found


@way("inherited: groups")
def _() -> object:
    if set(os.getgroups()) <= {os.getgid()}:
        raise Denied("his own")
    return os.getgroups()


@way("inherited: tokens and keys in the environment")
def _() -> object:
    found = [
        name
        for name in os.environ
        if any(word in name for word in ("TOKEN", "SECRET", "PASSWORD", "_KEY", "PLANTED"))
    ]
    if not found:
        raise Denied("none")
    return found


# --- its processes ---------------------------------------------------------------------------------------

for _name in ("environ", "maps", "mem", "stack", "io", "syscall", "auxv"):
    way(f"/proc: {_name}")(lambda name=_name: read(f"/proc/{PID}/{name}"))
for _name in ("cwd", "root", "exe"):
    way(f"/proc: {_name}")(lambda name=_name: os.readlink(f"/proc/{PID}/{name}"))
way("/proc: cmdline")(lambda: read(f"/proc/{PID}/cmdline"))
way("/proc: file below cwd")(lambda: read(f"/proc/{PID}/cwd/secret.txt"))
way("/proc: file below root")(lambda: read(f"/proc/{PID}/root{ANN['home']}"))
way("/proc: environ of a thread")(lambda: read(f"/proc/{PID}/task/{PID}/environ"))
way("/proc: list of descriptors")(lambda: os.listdir(f"/proc/{PID}/fd"))
way("/proc: open descriptor")(lambda: read(f"/proc/{PID}/fd/{ANN['fd']}"))
way("ptrace: attach")(lambda: call("ptrace", PTRACE_ATTACH, PID, None, None))
way("ptrace: seize")(lambda: call("ptrace", PTRACE_SEIZE, PID, None, None))
way("signal: to a process")(lambda: os.kill(PID, signal.SIGURG))
way("signal: to its group")(lambda: os.killpg(os.getpgid(PID), signal.SIGURG))
way("signal: by pidfd")(lambda: call("pidfd_send_signal", call("pidfd_open", PID, 0), signal.SIGURG, None, 0))
way("pidfd: its descriptor")(lambda: call("pidfd_getfd", call("pidfd_open", PID, 0), ANN["fd"], 0))
way("scheduling: nice")(lambda: os.setpriority(os.PRIO_PROCESS, PID, 19))
way("scheduling: cores")(lambda: os.sched_setaffinity(PID, {0}))
way("limits: prlimit")(lambda: resource.prlimit(PID, resource.RLIMIT_NOFILE))
way("ids: become her")(lambda: os.setuid(ANN["uid"]))


@way("memory: process_vm_readv")
def _() -> object:
    room = ctypes.create_string_buffer(64)

    class Part(ctypes.Structure):
        _fields_ = (("base", ctypes.c_void_p), ("size", ctypes.c_size_t))

    here, there = Part(ctypes.addressof(room), 64), Part(0x400000, 64)
    return call("process_vm_readv", PID, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)


@way("/proc: oom score")
def _() -> object:
    with open(f"/proc/{PID}/oom_score_adj", "w") as file:
        return file.write("1000")


# --- memory and messages between processes ----------------------------------------------------------------

way("shared memory: of a library")(lambda: read(f"/dev/shm/ann-{ANN['mark']}"))
way("shared memory: a file of hers")(lambda: read(ANN["shared_file"]))
way("shared memory: names")(lambda: next(name for name in os.listdir("/dev/shm") if ANN["mark"] in name))
way("System V: shared memory")(lambda: call("shmat", ANN["segment"], None, 0))
way("System V: removal")(lambda: call("shmctl", ANN["segment"], IPC_RMID, None))
way("System V: semaphore")(
    lambda: call("semctl", ANN["semaphore"], 0, IPC_STAT, ctypes.create_string_buffer(256))
)
way("System V: messages")(
    lambda: call("msgrcv", ANN["queue"], ctypes.create_string_buffer(256), 64, 0, 0o4000)
)
way("POSIX: message queue")(lambda: call("mq_open", f"/ann-{ANN['mark']}".encode(), os.O_RDONLY))
way("POSIX: semaphore")(lambda: call("sem_open", f"/ann-{ANN['mark']}".encode(), 0))


@way("keyring: of the session")
def _() -> object:
    room = ctypes.create_string_buffer(64)
    key = call("keyctl", KEYCTL_SEARCH, SESSION_KEYRING, b"user", ANN["mark"].encode(), 0)
    call("keyctl", KEYCTL_READ, key, room, 64, 0)
    return room.value


@way("keyring: by its number")
def _() -> object:
    room = ctypes.create_string_buffer(64)
    call("keyctl", KEYCTL_READ, ANN["key"], room, 64, 0)
    return room.value


# --- sockets and ports ------------------------------------------------------------------------------------

way("socket: file in her directory")(lambda: talk(socket.AF_UNIX, ANN["socket_file"]))
way("socket: abstract name of hers")(lambda: talk(socket.AF_UNIX, f"\0{ANN['abstract']}"))
way("port: connect to hers on loopback")(lambda: talk(socket.AF_INET, ("127.0.0.1", ANN["port"])))
way("socket: the keeper's")(lambda: talk(socket.AF_UNIX, f"{ANN['node']}/keeper.sock"))


@way("port: take MASTER_PORT that she listens on")
def _() -> object:
    with socket.socket() as taker:
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        taker.bind(("127.0.0.1", ANN["port"]))
        taker.listen(1)


@way("port: take MASTER_PORT before she does")
def _() -> object:
    with socket.socket() as taker:
        taker.bind(("127.0.0.1", ANN["unused_port"]))
        taker.listen(1)


@way("port: the master's link without a key")
def _() -> object:
    host, port = ANN["link"].removeprefix("tcp://").split(":")
    with socket.create_connection((host, int(port)), timeout=LIMIT_S) as connection:
        connection.settimeout(LIMIT_S)
        # A greeting of ZMTP 3.1 without encryption, and a message: only a peer that is let in hears more.
        greeting = b"\xff" + bytes(8) + b"\x7f\x03\x01" + b"NULL".ljust(20, b"\0") + bytes(32)
        connection.sendall(greeting + b"\x04\x19\x05READY" + bytes(20))
        said = b""
        while part := connection.recv(256):
            said += part
            if len(said) > 64:
                return repr(said[64:])
    raise Denied("hung up after the greeting")


def forged(task: str) -> str:
    """Speak to the agent's socket for jobs as a process that says to be hers; return the first answer."""
    script = """
import os, socket, sys
place, name = os.path.split(os.environ["MGPU_JOB_SOCKET"])
# By its directory's descriptor: the path of a socket may have 108 bytes only.
address = f"/proc/self/fd/{os.open(place, os.O_PATH)}/{name}" if place else "\\0" + name
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
    connection.settimeout(3)
    connection.connect(address)
    sys.stdout.write("connected\\n")
    sys.stdout.flush()
    # Parcel(to, data) of msgpack, and in it an order to run a program on the other node.
    order = b"\\x83\\xa4type\\xa3run\\xa6number\\xa1x\\xa4text" + bytes((0xA0 + len(TEXT),)) + TEXT
    connection.send(b"\\x82\\xa2to\\xa2n2\\xa4data\\xc4" + bytes((len(order),)) + order)
    print(connection.recv(4096))
""".replace("TEXT", repr(f"id>/tmp/bob-{ANN['mark']}".encode()))
    env = {**os.environ, "MGPU_TASK": task, "MGPU_JOB_SOCKET": ANN["mpi_socket"]}
    done = subprocess.run(
        [sys.executable, "-c", script], env=env, capture_output=True, text=True, timeout=20, check=False
    )
    if "b'" not in done.stdout or done.stdout.endswith("b''\n"):
        raise Denied((done.stdout + done.stderr).strip().splitlines()[-1][:60])
    return done.stdout


way("MPI: her attempt named on the agent's socket")(lambda: forged(ANN["mpi_task"]))


@way("MPI: a program of his as her")
def _() -> object:
    path = f"/tmp/bob-{ANN['mark']}"
    for _ in range(5):
        if os.path.exists(path):
            return read(path)
        time.sleep(0.2)
    raise Denied("nothing ran")


# --- files ------------------------------------------------------------------------------------------------

way("file: in her home")(lambda: read(ANN["home"]))
way("file: in her directory of the job")(lambda: read(ANN["in_cwd"]))
way("file: core dump")(lambda: read(ANN["core"]))
way("file: her temporary file")(lambda: read(ANN["temporary"]))
way("file: of a predictable name in /tmp")(lambda: read(ANN["predictable"]))
way("file: that she opened to all")(lambda: read(ANN["for_all"]))
way("directory of jobs: list")(lambda: os.listdir(os.path.dirname(ANN["scratch"])))
way("directory of jobs: list hers")(lambda: os.listdir(ANN["scratch"]))
way("directory of jobs: make one first")(lambda: os.mkdir(f"{os.path.dirname(ANN['scratch'])}/NEXTJOB1"))
way("directory of jobs: move hers away")(lambda: os.rename(ANN["scratch"], f"{ANN['scratch']}.old"))
way("directory of jobs: cells")(lambda: os.listdir(ANN["cells"]))
way("cell: its source")(lambda: read(ANN["cell"]))
way("cell: put another in its place")(lambda: os.replace(sys.argv[1], ANN["cell"]))
way("cell: the runner that all use")(lambda: os.open(ANN["runner"], os.O_WRONLY))
way("variables: that were sent in")(lambda: read(f"{ANN['values']}/in"))
way("variables: list")(lambda: os.listdir(ANN["values"]))
way("folder: as it was laid out")(lambda: read(f"{ANN['folder']}/data.txt"))
way("folder: pieces on the node")(lambda: os.listdir(f"{ANN['node']}/pieces"))
way("folder: pieces on the master")(lambda: os.listdir(f"{ANN['state']}/pieces"))
way("output: spool of the node")(lambda: os.listdir(f"{ANN['node']}/spool"))
way("output: files of the master")(lambda: os.listdir(f"{ANN['state']}/logs"))
way("results: files of the master")(lambda: os.listdir(f"{ANN['state']}/results"))
way("state: database")(lambda: read(f"{ANN['state']}/mgpu.db"))
way("state: keys")(lambda: os.listdir(f"{ANN['state']}/keys"))
way("state: ledger of the keeper")(lambda: os.listdir(ANN["node"]))
way("terminal: read hers")(lambda: os.open(ANN["terminal"], os.O_RDONLY | os.O_NONBLOCK))
way("terminal: write to hers")(lambda: os.open(ANN["terminal"], os.O_WRONLY | os.O_NONBLOCK))


BY_CHANCE = re.compile(r"[-.][a-z0-9_]{8}$")
"""How names end that Python's tempfile makes up."""


@way("temporary files: of mgpu itself")
def _() -> object:
    """Whatever mgpu left in places that all may write must be closed to others."""
    # Names that end by chance were made where TMPDIR says, which here is nobody else's: in the places of the
    # machine they belong to other programs, such as tests that run beside this one.
    places = ("/tmp", "/var/tmp", "/dev/shm", "/run")
    fixed = [path for place in places for path in glob.glob(f"{place}/*mgpu*") if not BY_CHANCE.search(path)]
    own = [path for path in glob.glob(f"{os.environ['TMPDIR']}/*") if path != ANN["temporary"]]
    found = fixed + own
    opened = [path for path in found if os.stat(path).st_uid != os.getuid() and os.access(path, os.R_OK)]
    if not opened:
        raise Denied(f"{len(found)} there, none open")
    return opened


def linked(path: str, name: str, make: Callable[[str, str], None]) -> str:
    """Link to a file of hers, where the results of this job are collected, and read it by that name."""
    make(path, name)
    return read(name)


way("link: hard, to a file that she keeps to herself")(
    lambda: linked(ANN["temporary"], "results.hard", os.link)
)
way("link: soft, to a file that she keeps to herself")(
    lambda: linked(ANN["temporary"], "results.soft", os.symlink)
)

# --- what the agent is ------------------------------------------------------------------------------------

for _name in ("agent", "keeper"):
    way(f"the {_name}: environ")(lambda name=_name: read(f"/proc/{ANN[name]}/environ"))
    way(f"the {_name}: ptrace")(lambda name=_name: call("ptrace", PTRACE_ATTACH, ANN[name], None, None))
    way(f"the {_name}: signal")(lambda name=_name: os.kill(ANN[name], signal.SIGURG))


# --- the API, with his own login --------------------------------------------------------------------------


def ask(path: str, method: str = "GET", body: object = None) -> str:
    request = urllib.request.Request(
        f"{ANN['url']}mgpu/api/v1/{path}",
        method=method,
        data=None if method == "GET" else json.dumps(body or {}).encode(),
        headers={"Authorization": f"mgpu {ANN['token']}"},
    )
    with urllib.request.urlopen(request, timeout=20, context=ssl._create_unverified_context()) as answer:
        return repr(answer.read(64))


JOB, CELL = ANN["job"], ANN["cell_job"]
for _name in ("output", "output?follow=1", "results", "result?node=n1&number=0", "values", "stream"):
    way(f"API: {_name.partition('?')[0] if _name != 'output?follow=1' else 'output as it comes'}")(
        lambda name=_name: ask(f"jobs/{CELL if name.startswith('value') else JOB}/{name}")
    )
for _name in ("cancel", "requeue", "rerun"):
    way(f"API: {_name}")(lambda name=_name: ask(f"jobs/{JOB}/{name}", "POST"))
way("API: change")(lambda: ask(f"jobs/{JOB}", "PATCH", {"time_limit_s": 1}))
way("API: replace")(lambda: ask(f"jobs/{JOB}/replace", "POST", {"patch": {"gpus": 0}}))
way("API: her folder by its digest")(
    lambda: ask("jobs", "POST", {"command": ["cat", "data.txt"], "gpus": 0, "sync": ANN["digest"]})
)


def main() -> None:
    """Try all."""
    found = {}
    for name, attempt in WAYS.items():
        try:
            found[name] = f"open {str(attempt())[:200]}"
        except Denied as error:
            found[name] = f"denied {error}"
        except urllib.error.HTTPError as error:
            found[name] = f"denied {error.code} {json.loads(error.read())['code']}"
        except TimeoutError:
            found[name] = "denied silence"
        except FileNotFoundError as error:
            found[name] = f"nothing there: {error}"  # no denial: what was to be tried was not tried
        except OSError as error:
            found[name] = f"denied {error.strerror or error}"
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
