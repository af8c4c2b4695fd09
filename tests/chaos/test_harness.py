"""The harness itself: a network that holds what goes one way, figures that stay, and growth that is seen."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.__main__ import keep
from tests.chaos.proxy import BOTH, TO_AGENT, TO_MASTER, Gate, Proxy
from tests.chaos.result import Result
from tests.chaos.rows.soak import MOST_GROWTH, Watch
from tests.chaos.rows.table import ROWS

LIMIT_S = 10.0


class Network:
    """A master that takes connections, and an agent's connection to it through a gate."""

    def __init__(self, proxy: Proxy, listener: socket.socket) -> None:
        self.proxy, self._listener = proxy, listener
        self.gate: Gate = proxy.gate()

    def connect(self) -> socket.socket:
        agent = socket.create_connection(("127.0.0.1", self.gate.port), LIMIT_S)
        agent.settimeout(LIMIT_S)
        return agent

    def accept(self) -> socket.socket:
        master, _ = self._listener.accept()
        master.settimeout(LIMIT_S)
        return master


@pytest.fixture
def network() -> Iterator[Network]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(LIMIT_S)
        with Proxy(listener.getsockname()[1], random.Random(1)) as proxy:
            yield Network(proxy, listener)


def nothing_comes(receiver: socket.socket) -> bool:
    receiver.settimeout(0.1)
    try:
        return receiver.recv(1) == b"-"
    except TimeoutError:
        return True
    finally:
        receiver.settimeout(LIMIT_S)


@pytest.mark.parametrize("ways", [(TO_MASTER,), (TO_AGENT,), BOTH])
def test_a_cut_holds_its_ways_and_no_other_and_healing_delivers(
    network: Network, ways: tuple[str, ...]
) -> None:
    with network.connect() as agent, network.accept() as master:
        agent.sendall(b"1")
        assert master.recv(1) == b"1"
        network.proxy.cut(network.gate, ways)
        agent.sendall(b"up")
        master.sendall(b"down")
        for way, receiver, data in ((TO_MASTER, master, b"up"), (TO_AGENT, agent, b"down")):
            assert nothing_comes(receiver) if way in ways else receiver.recv(8) == data
        network.proxy.heal(network.gate)
        for way, receiver, data in ((TO_MASTER, master, b"up"), (TO_AGENT, agent, b"down")):
            if way in ways:
                assert receiver.recv(8) == data


def test_an_end_is_held_too_and_a_broken_connection_delivers_nothing(network: Network) -> None:
    with network.connect() as agent, network.accept() as master:
        network.proxy.cut(network.gate, BOTH)
        agent.sendall(b"last")
        agent.close()
        assert nothing_comes(master)
        network.proxy.heal(network.gate)
        assert (master.recv(8), master.recv(8)) == (b"last", b"")
    with network.connect() as agent, network.accept() as master:
        network.proxy.cut(network.gate, BOTH)
        agent.sendall(b"never")
        network.proxy.heal(network.gate, broken=True)
        with contextlib.suppress(ConnectionResetError):
            assert master.recv(8) == b""


def test_a_connection_that_is_made_during_a_cut_comes_about_afterwards(network: Network) -> None:
    network.proxy.cut(network.gate, (TO_AGENT,))
    with network.connect() as agent:
        agent.sendall(b"hello")
        healed: list[bool] = []

        def heal() -> None:
            healed.append(True)
            network.proxy.heal(network.gate)

        healer = threading.Timer(0.2, heal)
        healer.start()
        with network.accept() as master:
            assert healed == [True]
            assert master.recv(8) == b"hello"
        healer.join()


def test_figures_of_other_rows_stay(tmp_path: Path) -> None:
    path = tmp_path / "chaos.json"
    for row, times in ((5, 8), (4, 5), (5, 200)):
        keep(path, Result(row, "what", times, 1, 2.0, {"n": times}, []))

    assert [(row["row"], row["times"]) for row in json.loads(path.read_text())["rows"]] == [(4, 5), (5, 200)]


def test_only_the_soak_is_left_out_of_make_test() -> None:
    assert [number for number, row in ROWS.items() if not row.small] == [12]


def test_growth_is_seen_and_a_warm_up_is_none() -> None:
    watch = Watch.__new__(Watch)
    flat = [(40.0 + min(number, 10), 20) for number in range(100)]
    leak = [(40.0 + number, 20) for number in range(100)]
    files = [(40.0, 20 + number) for number in range(100)]
    short = leak[:10]
    watch.samples = {
        ("master", "", 1): flat,
        ("agent", "n1", 2): leak,
        ("keeper", "n1", 3): files,
        ("agent", "n2", 4): short,
    }

    problems, figures = watch.judge(50)

    assert problems == [
        f"memory_grew_mb of agent n1 (pid 2): 60.0, and {MOST_GROWTH['agent'][0]:g} are allowed",
        f"descriptors_grew of keeper n1 (pid 3): 60.0, and {MOST_GROWTH['keeper'][1]:g} are allowed",
    ]
    assert figures["judged"] == {"master": 1, "agent": 1, "keeper": 1}
    watch.samples = {("agent", "n2", 4): short}
    assert watch.judge(50)[0] == [f"no {role} lived long enough to be judged" for role in MOST_GROWTH]
