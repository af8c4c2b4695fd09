"""What is really there: this node's own name, and processes of jobs as the system shows them. Reads only, and
remembers nothing.

What a process was given is read from its own environment, not from what the agent believes, so that a
mistake shows.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterable

import psutil

from mgpu_agent import __version__
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Pong
from mgpu_agent.protocol.model import CellPython, ProcessSeen, TaskStatus
from mgpu_agent.protocol.places import host_name

MAX_PORTS = 32


def answer(
    number: int,
    node_id: NodeId,
    address: str,
    link: str,
    statuses: Iterable[TaskStatus],
    *,
    cell: CellPython | None = None,
) -> Pong:
    """Return who and where this node is, and the state of these processes."""
    return Pong(
        number=number,
        node_id=node_id,
        host=host_name(),
        address=address,
        agent_version=__version__,
        python=sys.executable,
        pid=os.getpid(),
        at=time.time(),
        link=link,
        started_at=psutil.Process().create_time(),
        processes=tuple(look_at(status) for status in statuses),
        cell=cell,
    )


def look_at(status: TaskStatus) -> ProcessSeen:
    """Return what the system shows of one process of a job."""
    gone = ProcessSeen(rank=status.rank, pid=status.pid, alive=False)
    if status.ended_at is not None or status.pid <= 0:
        return gone
    try:
        process = psutil.Process(status.pid)
        with process.oneshot():
            environ, started_at = process.environ(), process.create_time()
            seen = ProcessSeen(
                rank=status.rank,
                pid=process.pid,
                alive=process.status() != psutil.STATUS_ZOMBIE,
                host=_host_of(process.pid),
                node_id=environ.get("MGPU_NODE_ID", ""),
                job_id=environ.get("MGPU_JOB_ID", ""),
                attempt=environ.get("MGPU_ATTEMPT", ""),
                cwd=process.cwd(),
                user=process.username(),
                started_at=started_at,
                ports=_ports(process),
                master_port=environ.get("MASTER_PORT", ""),
            )
    except psutil.NoSuchProcess:
        return gone
    except (psutil.Error, OSError) as error:
        return ProcessSeen(
            rank=status.rank,
            pid=status.pid,
            alive=True,
            note=f"The node may not look at it ({type(error).__name__}).",
        )
    return seen


def _host_of(pid: int) -> str:
    """Return the machine's name as the process sees it; empty when it has another that cannot be read."""
    own, its = os.stat("/proc/self/ns/uts"), os.stat(f"/proc/{pid}/ns/uts")
    return host_name() if (own.st_dev, own.st_ino) == (its.st_dev, its.st_ino) else ""


def _ports(process: psutil.Process) -> tuple[str, ...]:
    """Return the addresses on which a process and its children listen."""
    found: set[tuple[int, str]] = set()
    for one in (process, *process.children(recursive=True)):
        with contextlib.suppress(psutil.Error, OSError):
            ask = getattr(one, "net_connections", None) or one.connections  # the older name, before psutil 6
            for connection in ask(kind="tcp"):
                if connection.status == psutil.CONN_LISTEN:
                    found.add((connection.laddr.port, connection.laddr.ip))
    return tuple(f"{ip}:{port}" for port, ip in sorted(found)[:MAX_PORTS])
