"""What a node finds out about itself: its load, and, by checks in a thread of their own, the state of its
disk, its address, its Python and of what a program of the site reports. Reports; decides nothing.

A GPU whose driver does not answer is noticed by the sampler, and a wrong clock by the master, which can
compare two.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import psutil

from mgpu_agent.core.events import Measured
from mgpu_agent.protocol.addresses import FoundAddress, FoundBy
from mgpu_agent.protocol.model import Ailment, GpuInfo, HealthChecks
from mgpu_agent.protocol.wording import exact, size
from mgpu_agent.run_as.programs import run_program

log = logging.getLogger("mgpu.checks")

WORDS_LIMIT = 200
LOOKED_UP = (FoundBy.WAY_TO_MASTER, FoundBy.DEFAULT_ROUTE)
OUTPUT_LIMIT = 4096
_ABOUT_GPU = re.compile(r"gpu\s+(?P<index>\d+)\s*[:,-]?\s*(?P<text>.*)", re.IGNORECASE)


class Checks:
    """Repeats the checks until it is closed. Owns its thread."""

    def __init__(self, node_id: str, directory: Path, found: FoundAddress, gpus: Sequence[GpuInfo]) -> None:
        self._node_id = node_id
        self._directory = directory
        self._found = found
        self._gpus = {gpu.index: gpu.uuid for gpu in gpus}
        self._checks: HealthChecks | None = None
        self._newest: tuple[Ailment, ...] | None = None
        self._lock = threading.Lock()
        self._changed = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="mgpu-checks", daemon=True)
        self._thread.start()

    def set(self, checks: HealthChecks) -> None:
        """Use these checks from now on; the first round is at once."""
        self._checks = checks
        self._changed.set()

    def take(self) -> tuple[Ailment, ...] | None:
        """Return the findings of the newest round, once; None when there was none since the last call."""
        with self._lock:
            newest, self._newest = self._newest, None
        return newest

    def close(self) -> None:
        """End the thread; a program that still runs is ended by its own limit."""
        self._is_closed = True
        self._changed.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        while not self._is_closed:
            checks = self._checks
            self._changed.wait(None if checks is None else checks.every_s)
            self._changed.clear()
            checks = self._checks
            if self._is_closed or checks is None:
                continue
            try:
                found = self._look(checks)
            except Exception:  # the thread must live: a check that breaks is a bug, the others still count
                log.exception("checking this node failed")
                continue
            with self._lock:
                self._newest = found

    def _look(self, checks: HealthChecks) -> tuple[Ailment, ...]:
        found = [
            *check_disk(self._directory, checks.min_free_bytes),
            *check_address(self._found),
            *check_interpreter(sys.executable),
        ]
        if checks.program:
            found += self._ask_program(checks)
        return tuple(found)

    def _ask_program(self, checks: HealthChecks) -> list[Ailment]:
        """Run the site's program: exit code 0 means healthy; else a line about `GPU N` is about that GPU, and
        the first other line about the node.
        """
        name = Path(checks.program[0]).name
        with tempfile.TemporaryFile() as said:
            env = {**os.environ, "MGPU_NODE_ID": self._node_id}
            try:
                code = run_program(checks.program, env, said, checks.program_timeout_s)
            except OSError as error:
                why = error.strerror or type(error).__name__
                return [
                    Ailment(check="program", text=f"The site's health check {name} cannot be run: {why}.")
                ]
            said.seek(0)
            lines = [
                line.strip()
                for line in said.read(OUTPUT_LIMIT).decode(errors="replace").splitlines()
                if line.strip()
            ]
        if code is None:
            return [
                Ailment(
                    check="program",
                    text=f"The site's health check {name} did not end within {checks.program_timeout_s:g} s.",
                )
            ]
        return [] if code == 0 else self._read(name, code, lines)

    def _read(self, name: str, code: int, lines: list[str]) -> list[Ailment]:
        about_gpus: dict[int, str] = {}
        others: list[str] = []
        for line in lines:
            match = _ABOUT_GPU.fullmatch(line)
            if match is not None and int(match["index"]) in self._gpus:
                about_gpus.setdefault(int(match["index"]), match["text"])
            else:
                others.append(line)
        says = f"The site's health check {name} says: "
        found = [
            Ailment(check="program", text=_sentence(says + (text or "it is not well")), gpu=self._gpus[index])
            for index, text in sorted(about_gpus.items())
        ]
        if others or not found:
            words = others[0] if others else f"exit code {code}"
            found.insert(0, Ailment(check="program", text=_sentence(says + words)))
        return found


def check_disk(directory: Path, min_free_bytes: int) -> list[Ailment]:
    """Tell whether the disk of this directory can be written and has room."""
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            probe.write(b"\0")
        free = psutil.disk_usage(str(directory)).free
    except OSError as error:
        why = error.strerror or type(error).__name__
        return [
            Ailment(
                check="disk",
                text=f"Its state directory cannot be written ({why}): make room or mount it writable.",
            )
        ]
    if free >= min_free_bytes:
        return []
    text = (
        f"Its disk has {size(free)} left and should have {exact(min_free_bytes)}: make room under "
        f"its state directory."
    )
    return [Ailment(check="disk", text=text)]


def check_address(found: FoundAddress) -> list[Ailment]:
    """Tell whether the address that peers were given still belongs to this machine; one that was set by
    hand may be a gateway's.
    """
    if found.by not in LOOKED_UP or found.address in _own_addresses():
        return []
    text = (
        f"Its address {found.address} is on no interface of the machine any more: restart mgpu_node, or "
        f"give it --host ADDRESS."
    )
    return [Ailment(check="address", text=text)]


def check_interpreter(path: str) -> list[Ailment]:
    """Tell whether the default Python of cells is still there."""
    if os.access(path, os.X_OK):
        return []
    text = (
        f"Its Python {path} is gone, so that cells cannot run: install mgpu-jupyter there anew and "
        f"restart mgpu_node."
    )
    return [Ailment(check="interpreter", text=text)]


def _own_addresses() -> set[str]:
    families = (socket.AF_INET, socket.AF_INET6)
    return {
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in families
    }


def _sentence(text: str) -> str:
    return text[:WORDS_LIMIT].rstrip(". ") + "."


INTERVAL_S = 2.0


class Gauge:
    """The machine's load. A reading covers one interval, and is used until the next one is over."""

    def __init__(self) -> None:
        psutil.cpu_percent()  # the first interval begins here
        self._read_at: float | None = None
        self._newest = Measured()

    def read(self, now: float) -> Measured:
        """Return the newest reading."""
        if self._read_at is None:
            self._read_at = now
        if now - self._read_at >= INTERVAL_S:
            self._read_at = now
            self._newest = Measured(
                load=os.getloadavg()[0],
                cpu_percent=psutil.cpu_percent(),
                memory_available_bytes=psutil.virtual_memory().available,
            )
        return self._newest
