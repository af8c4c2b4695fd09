"""Examines a set-up from outside: state directory, path to the server, the server, nodes. Changes nothing.

Every problem that is found comes with what to do about it.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
import psutil
from msgspec.structs import replace

from mgpu_agent import __version__
from mgpu_agent.protocol.errors import MgpuError, Unauthorised, Unavailable
from mgpu_agent.protocol.places import RuntimeFile, check_private_state, find_runtime_file, state_place
from mgpu_agent.protocol.text import printable
from mgpu_agent.protocol.wording import size
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.login import is_loopback
from mgpu_jupyter.client.transport import Timeouts

MIN_FREE_BYTES = 100_000_000
QUICK = Timeouts(connect_s=3.0, request_s=5.0, retry_s=0.0)
UPGRADE = "install the same version on both: pip install --upgrade mgpu-jupyter"

Level = Literal["ok", "warning", "error"]


class SetupFinding(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one check, and what to do when there is a problem."""

    check: str
    level: Level
    text: str
    fix: str = ""


def examine(env: Mapping[str, str], make_client: Callable[[], Client]) -> Iterator[SetupFinding]:
    """Yield findings, one line each, in this order: this machine, the path, the server, the nodes."""
    for finding in _examine(env, make_client):
        yield replace(finding, text=printable(finding.text), fix=printable(finding.fix))


def _examine(env: Mapping[str, str], make_client: Callable[[], Client]) -> Iterator[SetupFinding]:
    found = list(_look_here(env))
    yield from found
    try:
        with make_client() as client:
            health = client.health()
            yield SetupFinding(
                check="server", level="ok", text=f"The server answers (mgpu {health.version})."
            )
            yield from _look_at_server(health)
            if health.status == "ok" or health.relays_to:
                yield from _look_at_nodes(client.nodes(), health)
    except Unauthorised as error:
        fix = "log in again with a line of `mgpu user add`, or unset MGPU_TOKEN"
        yield SetupFinding(check="key", level="error", text=error.message, fix=fix)
    except Unavailable as error:
        yield from _why_unavailable(error, env)
    except MgpuError as error:
        yield SetupFinding(check="server", level="error", text=error.message)


# --- this machine -----------------------------------------------------------------------------------


def _look_here(env: Mapping[str, str]) -> Iterator[SetupFinding]:
    try:
        place = state_place(env)
    except MgpuError as error:
        yield SetupFinding(check="state", level="error", text=error.message)
        return
    if place.on_network:
        text, fix = (
            f"{place.path} is on a network file system.",
            "set MGPU_STATE_DIR to a directory on a local disk",
        )
        yield SetupFinding(check="state", level="warning", text=text, fix=fix)
    else:
        yield SetupFinding(check="state", level="ok", text=f"State is kept in {place.path}.")
    yield _permissions(place.path)
    yield _disk(place.path)
    yield from _left_behind(place.path)


def _permissions(path: Path) -> SetupFinding:
    try:
        check_private_state(path)
    except MgpuError as error:
        what, _, command = error.message.partition(": run ")
        return SetupFinding(
            check="permissions", level="error", text=f"{what}.", fix=f"run  {command.strip()}"
        )
    except OSError as error:
        return SetupFinding(
            check="permissions",
            level="error",
            text=f"{path}: {error.strerror}.",
            fix=f"run  sudo chown -R {os.getuid()} {path}",
        )
    return SetupFinding(check="permissions", level="ok", text="Keys and records are readable by you alone.")


def _disk(path: Path) -> SetupFinding:
    free = psutil.disk_usage(str(path)).free
    if free < MIN_FREE_BYTES:
        text = f"The disk of {path} has {size(free)} left: submits are refused when it is full."
        return SetupFinding(
            check="disk",
            level="error",
            text=text,
            fix="make room there, or set MGPU_STATE_DIR to another disk",
        )
    return SetupFinding(check="disk", level="ok", text=f"{size(free)} are free there.")


def _left_behind(state: Path) -> Iterator[SetupFinding]:
    """Look for leftovers of a master that died or hangs."""
    for path in sorted((state / "run").glob("master-*.json")):
        try:
            runtime = msgspec.json.decode(path.read_bytes(), type=RuntimeFile)
        except (OSError, msgspec.DecodeError):
            yield SetupFinding(
                check="lock", level="warning", text=f"{path} cannot be read.", fix=f"run  rm {path}"
            )
            continue
        if find_runtime_file(state, runtime.port) is None:
            text = f"{path.name} is left of a master that is gone (process {runtime.pid} on {runtime.host})."
            yield SetupFinding(
                check="lock", level="warning", text=text, fix=f"start the master again, or run  rm {path}"
            )


def _holder_of_lock(state: Path) -> str:
    """Return the process that holds the master's lock; empty when none does."""
    try:
        descriptor = os.open(state / "master.lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return os.pread(descriptor, 64, 0).decode(errors="replace").strip() or "unknown"
    finally:
        os.close(descriptor)
    return ""


def _why_unavailable(error: Unavailable, env: Mapping[str, str]) -> Iterator[SetupFinding]:
    try:
        holder = _holder_of_lock(state_place(env).path)
    except MgpuError:
        holder = ""
    if holder:
        text = f"Process {holder} holds the master's lock and does not answer."
        yield SetupFinding(
            check="lock",
            level="error",
            text=text,
            fix=f"look at it (ps {holder}); if it hangs, run  kill {holder}  and start it again",
        )
    what, _, fix = error.message.partition(": ")
    fix = fix.rstrip(".") or "start JupyterLab with mgpu-jupyter, or run mgpu_master"
    yield SetupFinding(check="port", level="error", text=f"{what.rstrip('.')}.", fix=fix)


# --- the server and its nodes -----------------------------------------------------------------------


def _look_at_server(health: models.Health) -> Iterator[SetupFinding]:
    if health.status != "ok":
        yield SetupFinding(
            check="master", level="error", text=health.message or f"The master is {health.status}."
        )
    if health.version != __version__:
        yield SetupFinding(
            check="version",
            level="warning",
            text=f"The server has mgpu {health.version}, this program {__version__}.",
            fix=UPGRADE,
        )
    for warning in health.warnings:
        what, colon, fix = warning.partition(": ")
        yield SetupFinding(
            check="server",
            level="warning",
            text=f"{what.rstrip('.')}." if colon else warning,
            fix=fix.rstrip("."),
        )


def _look_at_nodes(nodes: tuple[models.Node, ...], health: models.Health) -> Iterator[SetupFinding]:
    if not nodes:
        fix = "run mgpu_node on a machine with GPUs; `mgpu join-token` prints the line for another machine"
        yield SetupFinding(check="nodes", level="warning", text="There are no nodes yet.", fix=fix)
    for node in nodes:
        found = list(_look_at_node(node, health, several=len(nodes) > 1))
        yield from found or [SetupFinding(check="nodes", level="ok", text=f"{node.id} is online.")]


def _look_at_node(node: models.Node, health: models.Health, *, several: bool) -> Iterator[SetupFinding]:
    reason = node.reason.rstrip(".")
    if node.state in ("offline", "suspect"):
        link = (health.link_addresses or (health.link_address,))[0]
        fix = (
            f"start mgpu_node there; if it runs, see its log and whether {link} can be reached from "
            f"{node.host}"
        )
        yield SetupFinding(
            check="unreachable", level="error", text=f"{node.id} is {node.state}: {reason}.", fix=fix
        )
    elif node.state == "unhealthy":
        what, _, fix = reason.rpartition(": ")
        yield SetupFinding(
            check="health",
            level="error",
            text=f"{node.id} gets no jobs: {what or reason}.",
            fix=fix if what else "",
        )
    elif node.state != "online":
        text, fix = (
            f"{node.id} is {node.state}: {reason}.",
            f"mgpu node resume {node.id}  gives it jobs again",
        )
        yield SetupFinding(check="orders", level="warning", text=text, fix=fix)
    if node.agent_version != health.version:
        text = f"{node.id} runs mgpu {node.agent_version}, the server {health.version}."
        yield SetupFinding(check="version", level="warning", text=text, fix=UPGRADE)
    if not node.gpus and node.gpu_note:
        fix = "make nvidia-smi work there, then restart its mgpu_node"
        yield SetupFinding(
            check="driver", level="warning", text=f"{node.id} offers no GPU. {node.gpu_note}", fix=fix
        )
    if several and is_loopback(node.address) and node.host != socket.gethostname():
        text = f"{node.id} announces {node.address}, by which no other machine reaches it."
        yield SetupFinding(
            check="address", level="warning", text=text, fix="start its mgpu_node with --host ADDRESS"
        )
    for gpu in node.gpus:
        if gpu.state == "unhealthy":
            yield SetupFinding(
                check="gpu", level="warning", text=f"GPU {gpu.index} of {node.id}: {gpu.reason}"
            )
