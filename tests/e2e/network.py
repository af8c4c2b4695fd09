"""Hosts with addresses of their own on one machine: network namespaces on a bridge. Takes down all that it
set up, whatever happens.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import string
import subprocess
from types import TracebackType
from typing import Self

import pytest

NEEDS = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("ip") is None,
    reason="network namespaces need root and the program `ip` (package iproute2)",
)


LETTERS = string.ascii_lowercase
_numbers = itertools.count()


class Network:
    """A bridge in this namespace with the address `master`, and one namespace for each name, joined to it by
    a veth pair.
    """

    def __init__(self, *names: str) -> None:
        # Names of interfaces have 15 characters at most; the process id keeps two runs apart, a number those
        # of one run: the system takes down a namespace and its interfaces some time after it was told to.
        self._mark = f"mg{os.getpid() % 100_000}{LETTERS[next(_numbers) % len(LETTERS)]}"
        self._subnet = f"10.{64 + os.getpid() % 128}.{os.getpid() // 128 % 256}"
        self.master = f"{self._subnet}.1"
        self._more: list[str] = []
        self.hosts = {name: f"{self._subnet}.{number}" for number, name in enumerate(names, start=2)}

    def __enter__(self) -> Self:
        try:
            self._set_up()
        except BaseException:
            self._take_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._take_down()

    def inside(self, name: str, command: list[str]) -> list[str]:
        """Return the command that runs `command` on a host."""
        return ["ip", "netns", "exec", self._namespace(name), *command]

    def cut(self, name: str) -> None:
        """Let nothing of what a host sends or is sent get through."""
        _ip("-n", self._namespace(name), "link", "set", "eth0", "down")

    def heal(self, name: str) -> None:
        """Let a host be reached again."""
        _ip("-n", self._namespace(name), "link", "set", "eth0", "up")

    def join_second(self, *names: str) -> dict[str, str]:
        """Give these hosts a second interface, eth1, on a network of their own; return their addresses
        there.
        """
        bridge = f"{self._mark}b2"
        _ip("link", "add", bridge, "type", "bridge")
        _ip("link", "set", bridge, "up")
        self._more.append(bridge)
        subnet = self._subnet.replace("10.", "172.", 1)
        found = {}
        for number, name in enumerate(names, start=2):
            outer = f"{self._mark}w{number}"
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth1", "netns", self._namespace(name))
            _ip("link", "set", outer, "master", bridge, "up")
            found[name] = f"{subnet}.{number}"
            _ip("-n", self._namespace(name), "address", "add", f"{found[name]}/24", "dev", "eth1")
            _ip("-n", self._namespace(name), "link", "set", "eth1", "up")
        return found

    def block(self, name: str, address: str) -> None:
        """Let a host drop what comes from or goes to an address, as a firewall does."""
        for words in (("INPUT", "-s"), ("OUTPUT", "-d")):
            command = self.inside(name, ["iptables", "-w", "-A", words[0], words[1], address, "-j", "DROP"])
            subprocess.run(command, check=True, capture_output=True, timeout=120)

    def _namespace(self, name: str) -> str:
        return f"{self._mark}-{name}"

    @property
    def _bridge(self) -> str:
        return f"{self._mark}br"

    def _set_up(self) -> None:
        _ip("link", "add", self._bridge, "type", "bridge")
        _ip("address", "add", f"{self.master}/24", "dev", self._bridge)
        _ip("link", "set", self._bridge, "up")
        for number, (name, address) in enumerate(self.hosts.items()):
            namespace, outer = self._namespace(name), f"{self._mark}v{number}"
            _ip("netns", "add", namespace)
            _ip("link", "add", outer, "type", "veth", "peer", "name", "eth0", "netns", namespace)
            _ip("link", "set", outer, "master", self._bridge, "up")
            _ip("-n", namespace, "address", "add", f"{address}/24", "dev", "eth0")
            _ip("-n", namespace, "link", "set", "eth0", "up")
            _ip("-n", namespace, "link", "set", "lo", "up")

    def _take_down(self) -> None:
        for number, name in enumerate(self.hosts):
            # The address must be free for the next: with its outer end an interface goes at once.
            for words in (
                ("link", "delete", f"{self._mark}v{number}"),
                ("netns", "delete", self._namespace(name)),
            ):
                with contextlib.suppress(subprocess.CalledProcessError):
                    _ip(*words)
        for bridge in (self._bridge, *self._more):
            with contextlib.suppress(subprocess.CalledProcessError):
                _ip("link", "delete", bridge)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=120)
