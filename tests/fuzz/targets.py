"""Who is thrown at: the product's own receivers, with sockets, disks and processes that are stand-ins. Each
tells whether it is well.

Whatever escapes a receiver escapes `feed`. `true_ones` says what an honest sender could say right now.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
from msgspec.structs import replace

from mgpu_agent.channel import Channel
from mgpu_agent.keeper import messages as keeper
from mgpu_agent.protocol import codec
from mgpu_agent.protocol.ids import AttemptKey, JobId
from mgpu_agent.protocol.messages import Hello, Resync
from mgpu_agent.run_as.account import Account
from tests.fuzz.master_target import EPOCH, TURN_S, MasterTarget, tree_of
from tests.fuzz.mutate import known_as
from tests.protocol.samples import TO_AGENT
from tests.storm.jobs import Job
from tests.storm.network import Network
from tests.storm.node import Node
from tests.storm.time_machine import installed
from tests.storm.world import World

# --- agent and keeper, on a simulated machine ------------------------------------------------------------


class Machine(Node):
    """A machine of the storm that starts whatever it is told to, for a while."""

    def spawn(self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str) -> int:
        self._pids += 1
        pid = 1_000 + self._pids
        job = self.processes[pid] = Job(
            self, (b"anything",), {b"MGPU_ATTEMPT": b"1", b"MGPU_EPOCH": b"1"}, stem, pid
        )
        assert not job.is_witness
        return pid


class Ground:
    """The world that both stand on."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.network = Network(self.world)
        self.network.master = SimpleNamespace(
            is_up=True,
            is_listening=True,
            life=1,
            hear=self._hear,
            router=SimpleNamespace(holder=lambda _: "n1"),
            lose=lambda _: None,
        )
        self.heard: list[bytes] = []
        self.node = Machine(self.world, self.network, "n1", 2, 1.0)
        self._installed = installed(self.world)
        self._installed.__enter__()

    def _hear(self, _: Any, frames: list[bytes]) -> None:
        self.heard += frames
        del self.heard[:-1_000]

    def go_on(self, seconds: float, is_over: Callable[[], Any] = lambda: False) -> None:
        """Let time pass."""
        self.world.run_until(self.world.now + seconds, is_over)

    def close(self) -> None:
        """Give the clocks back."""
        self._installed.__exit__(None, None, None)


class AgentTarget(Ground):
    """The product's agent and, behind it, the product's keeper."""

    LAST_WORDS = ("refuse", "bye", "enrolled")  # after these it goes or connects anew: one in so many rounds

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._rounds = 0
        self._round_epoch = 0
        self.restarts = 0
        self.node.switch_on()
        self.is_well()

    @property
    def _epoch(self) -> int:
        """The newest that it has heard of: what is older is nobody's word."""
        return self.node.agent.agent._machine.master_epoch

    def envelope(self, body: bytes, dice: random.Random) -> bytes:
        """Put a body into an envelope as this agent's master does; now and then it is an earlier or a later
        one.
        """
        step = 0 if dice.random() < 0.9 else int(dice.random() * 4) - 2
        return b"\x93\x01" + msgspec.msgpack.encode(min(max(0, self._round_epoch + step), 2**64 - 1)) + body

    @property
    def _connection(self) -> Any:
        return self.node.agent.link._connection

    def true_ones(self) -> list[Any]:
        """Every message that a master may send, about something that runs here where there is something."""
        self._rounds += 1
        self._round_epoch = self._epoch
        running = [key for key, _ in self.node.keeper.live.tasks]
        key: AttemptKey = running[-1] if running else AttemptKey(JobId(f"JB{self._rounds:06d}"), 1, EPOCH)
        names = {"AB12CD34": key.job_id}
        messages = [
            one for name, one in TO_AGENT.items() if name not in self.LAST_WORDS or self._rounds % 50 == 0
        ]
        trees = [known_as(tree_of(one), tree_of(key), names) for one in messages]
        for tree in trees:  # a launch for the node as it is, or it is stale
            if isinstance(tree.get("spec"), dict) and (snapshot := self._incarnation()):
                tree["spec"]["incarnation"] = snapshot
        return trees

    def _incarnation(self) -> str:
        ledger = (
            self.node.keeper.keeper_machine._ledger if self.node.keeper.keeper_machine is not None else None
        )
        return "" if ledger is None else keeper.incarnation(ledger.boot_id, ledger.ledger_id)

    def feed(self, frames: list[bytes]) -> None:
        """Let these arrive on the connection, if there is one, and let the agent go on."""
        if self._connection is None or not self._connection.is_open:
            self._recover()
        self._connection.frames += frames
        self.node.agent.turn_at(self.world.now)
        self.go_on(TURN_S)

    def _recover(self) -> None:
        if not self.node.agent.is_up:
            assert self.node.agent.agent.end_reason is not None
            self.restarts += 1
            self.node.disk.enrolment = None
            self.node.agent.start()
        self.go_on(
            120.0,
            lambda: (
                self._connection is not None and self._connection.is_open and self._connection.master_life
            ),
        )

    def is_well(self) -> None:
        """Asked to tell all, it does; it lets go of what is not needed."""
        if self._connection is None or not self._connection.is_open or not self.node.agent.is_up:
            self._recover()
        self.heard.clear()
        self._connection.frames.append(codec.encode(Resync(), self._epoch))
        self.node.agent.turn_at(self.world.now)
        self.go_on(10.0, self._has_hello)
        assert self._has_hello(), "the agent says no Hello"
        self._connection.frames.append(codec.encode(TO_AGENT["welcome"], self._epoch))

    def _has_hello(self) -> bool:
        return any(isinstance(codec.decode_to_master(frame)[1], Hello) for frame in self.heard)


class KeeperTarget(Ground):
    """The product's decisions and ledger behind the product's channel, on real bytes of a real socket."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.node.is_on, self.node.boot_id = True, "boot-1"
        self.node.machine.boot()
        self._keeper = self.node.keeper
        agent: Any = self.node.agent
        agent.keeper = SimpleNamespace(deliver=self._deliver, lost=lambda: None)
        self._keeper.start("lost")
        self.told: list[Any] = []
        self._rounds = self._looks = 0
        self._dice = random.Random(seed)
        self._connect()
        self.is_well()

    @staticmethod
    def envelope(body: bytes, dice: random.Random) -> bytes:
        """Put the length before it; now and then it is another one."""
        length = (
            len(body) if dice.random() < 0.97 else int(dice.random() * 2 ** (1 + int(dice.random() * 32)))
        )
        return length.to_bytes(4, "big") + body

    def _deliver(self, messages: list[Any]) -> None:
        self.told += messages
        del self.told[:-1_000]

    def _connect(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._channel: Channel[keeper.ToKeeper] = Channel(theirs, keeper.to_keeper_decoder)
        self._keeper.keeper_machine.is_attached = self._keeper.keeper_machine.is_leaving = False
        self._ours.sendall(_framed(keeper.Attach(environment={b"PATH": b"/usr/bin:/bin"})))

    def true_ones(self) -> list[Any]:
        """Every message that an agent may send."""
        self._rounds += 1
        keeper_machine = self._keeper.keeper_machine
        running = [key for key, _ in keeper_machine.live.tasks]
        fresh = AttemptKey(JobId(f"JB{self._rounds:06d}"), 1, EPOCH)
        key = running[0] if running and self._rounds % 2 else fresh
        here = keeper.incarnation(keeper_machine._ledger.boot_id, keeper_machine._ledger.ledger_id)
        ranks = (keeper.RankStart(0, {b"A": b"b"}), keeper.RankStart(1, {}))
        hooks = (keeper.Hook("true", site=True), keeper.Hook("exit 1"))
        account = Account("ann", 1000, 1000, (1000,), "/home/ann", "/bin/sh")
        start = keeper.StartTasks(key=key, incarnation=here, argv=(b"true",), ranks=ranks, cwd="/")
        messages = (
            keeper.Attach(environment={b"PATH": b"/usr/bin:/bin"}),
            start,
            replace(start, lease_s=5.0, grace_s=1.0, alive_at=1e9, collect=keeper.Collect(("*",), 1)),
            replace(start, prolog=hooks[:1], epilog=hooks, account=account),
            keeper.StopTasks(key=key, grace_s=0.1, reason="stop", cause="cancelled"),
            keeper.ForgetTasks(keys=tuple(known for known, _ in keeper_machine._ledger.tasks)[:50] or (key,)),
            keeper.MasterAlive(alive_at=5.0),
            *(replace(TO_AGENT[name], key=key) for name in ("input", "resize", "warn")),
        )
        return [tree_of(message) for message in messages]

    def feed(self, frames: list[bytes]) -> None:
        """Write these to the socket; a conversation that turned into nonsense ends, and the next frame begins
        another.
        """
        at = 0
        while at < len(frames):
            count = 1 + int(self._dice.random() * 4)  # what is read at once
            self._ours.sendall(b"".join(frames[at : at + count]) or b"\0")
            self._read()
            at += count
        self.go_on(TURN_S)

    def _read(self) -> None:
        messages = self._channel.receive()
        if (
            messages is None or len(self._channel._incoming) > 100_000
        ):  # in the middle of a length that lied: the agent hangs up
            self._channel.close()
            self._ours.close()
            self._connect()
        elif messages:
            self._keeper.hear(messages)

    def is_well(self) -> None:
        """A new agent attaches, hears of all, and a process starts and ends."""
        self._looks += 1
        self._channel.close()
        self._ours.close()
        self._connect()
        self._read()
        self.go_on(30.0)
        snapshots = [one for one in self.told if isinstance(one, keeper.Snapshot)]
        assert snapshots, "the keeper tells an agent nothing"
        key = AttemptKey(JobId(f"OK{self._looks:06d}"), 1, EPOCH)
        here = keeper.incarnation(snapshots[-1].boot_id, snapshots[-1].ledger_id)
        start = keeper.StartTasks(
            key=key, incarnation=here, argv=(b"true",), ranks=(keeper.RankStart(0, {}),), cwd="/"
        )
        self.told.clear()
        self._keeper.hear([start])
        self.go_on(30.0)
        ends = [
            one.record for one in self.told if isinstance(one, keeper.TaskChanged) and one.record.key == key
        ]
        assert [one.exit_code for one in ends][-1:] == [0], (
            f"a process neither started nor ended: {ends} {self.told}"
        )
        self._keeper.hear(
            [
                keeper.ForgetTasks(
                    keys=tuple({known for known, _ in self._keeper.keeper_machine._ledger.tasks})
                )
            ]
        )
        self.go_on(TURN_S)

    def close(self) -> None:
        """Close the socket, and give the clocks back."""
        self._channel.close()
        self._ours.close()
        super().close()


def _framed(message: Any) -> bytes:
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


TARGETS: dict[str, Callable[[int], Any]] = {
    "master": MasterTarget,
    "agent": AgentTarget,
    "keeper": KeeperTarget,
}
