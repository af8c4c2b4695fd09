"""Ann's job: lays a secret into every place that a job may use, says where, and stays. Standard library only;
runs as her.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
from multiprocessing import resource_tracker, shared_memory

SECRET = "ann's secret"
ADD_KEY = {"x86_64": 248, "aarch64": 217}
SESSION_KEYRING = -3
PAGE = 4096
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.shmat.restype = ctypes.c_void_p
LIBC.sem_open.restype = ctypes.c_void_p


def main() -> None:
    """Plant, tell, stay."""
    mark = os.environ["MGPU_JOB_ID"].lower()
    facts = {"pid": os.getpid(), "uid": os.getuid(), "umask": _umask(), "cwd": os.getcwd(), "mark": mark}
    facts |= _files(mark)
    facts |= _memory(mark)
    facts |= _sockets(mark)
    facts |= _core()
    facts["socket"], facts["task"] = os.environ.get("MGPU_JOB_SOCKET", ""), os.environ.get("MGPU_TASK", "")
    facts["own_port"] = int(os.environ.get("MASTER_PORT", "0"))
    print(json.dumps(facts), flush=True)
    while True:
        time.sleep(60)


def _umask() -> int:
    before = os.umask(0o077)
    os.umask(before)
    return before


def _write(path: str, mode: int | None = None) -> str:
    with open(path, "w") as file:
        file.write(SECRET)
    if mode is not None:
        os.chmod(path, mode)
    return path


def _files(mark: str) -> dict[str, object]:
    held = os.open(_write(os.path.expanduser("~/held")), os.O_RDONLY)
    descriptor, unpredictable = tempfile.mkstemp(prefix="ann-")
    os.write(descriptor, SECRET.encode())
    return {
        "fd": held,
        "home": os.path.expanduser("~/held"),
        "in_cwd": os.path.abspath(_write("secret.txt", 0o644)),
        "temporary": unpredictable,
        "predictable": _write(f"/tmp/ann-{mark}"),
        "for_all": _write(f"/tmp/ann-{mark}-for-all", 0o644),
    }


def _memory(mark: str) -> dict[str, object]:
    block = shared_memory.SharedMemory(f"ann-{mark}", create=True, size=PAGE)
    resource_tracker.unregister(f"/ann-{mark}", "shared_memory")
    block.buf[: len(SECRET)] = SECRET.encode()
    block.close()
    segment = LIBC.shmget(0, PAGE, 0o1600)
    ctypes.memmove(LIBC.shmat(segment, None, 0), SECRET.encode(), len(SECRET))
    semaphore, queue = LIBC.semget(0, 1, 0o1600), LIBC.msgget(0, 0o1600)
    message = ctypes.create_string_buffer((1).to_bytes(8, sys.byteorder) + SECRET.encode())
    LIBC.msgsnd(queue, message, len(SECRET), 0)
    posix = LIBC.mq_open(f"/ann-{mark}".encode(), os.O_CREAT | os.O_RDWR, 0o600, None)
    LIBC.mq_send(posix, SECRET.encode(), len(SECRET), 1)
    LIBC.sem_open(f"/ann-{mark}".encode(), os.O_CREAT, 0o600, 1)
    number = ADD_KEY.get(os.uname().machine)
    key = (
        LIBC.syscall(number, b"user", mark.encode(), SECRET.encode(), len(SECRET), SESSION_KEYRING)
        if number
        else -1
    )
    return {
        "segment": segment,
        "semaphore": semaphore,
        "queue": queue,
        "key": key,
        "shared_file": _write(f"/dev/shm/ann-{mark}-file"),
    }


def _sockets(mark: str) -> dict[str, object]:
    abstract = _serve(socket.AF_UNIX, f"\0ann-{mark}")
    path = os.path.join(os.getcwd(), "sock")
    _serve(socket.AF_UNIX, path)
    loopback = _serve(socket.AF_INET, ("127.0.0.1", int(os.environ.get("MASTER_PORT", "0"))))
    return {"abstract": abstract.lstrip("\0"), "socket_file": path, "port": loopback[1]}


def _serve(family: int, address):
    listener = socket.socket(family)
    if family == socket.AF_INET:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(address)
    listener.listen(8)

    def answer() -> None:
        while True:
            connection, _ = listener.accept()
            connection.sendall(SECRET.encode())
            connection.close()

    threading.Thread(target=answer, daemon=True).start()
    name = listener.getsockname()
    return name.decode() if isinstance(name, bytes) else name


def _core() -> dict[str, object]:
    """Crash a child, so that a core is written where the system writes them for this job, if it does."""
    child = os.fork()
    if child == 0:
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
        signal.signal(signal.SIGABRT, signal.SIG_DFL)
        os.abort()
    os.waitpid(child, 0)
    cores = [os.path.join(os.getcwd(), name) for name in os.listdir() if name.startswith("core")]
    return {"core": cores[0] if cores else os.path.join(os.getcwd(), "core")}


if __name__ == "__main__":
    main()
