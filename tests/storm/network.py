"""The network between agents and the master: connections that carry messages late, twice, out of order or
never, and that break.

A connection behaves as ZeroMQ over TCP does, and worse: in a hostile network a message is lost (and the
connection falls some time later), comes twice, or overtakes another. What a cut holds back arrives when it
heals, unless the connection is gone by then.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from mgpu_agent.link import KeyPair, LinkEvent, Target
from mgpu_agent.protocol.failpoints import reach
from mgpu_jupyter.master.node_link import Incoming
from tests.storm.world import Process, World

UP, DOWN = "up", "down"
TIMEOUT_S = 10.0  # of the link's own heartbeats
HANG_UP = 0.2  # of the tries to connect through a cut end by a break in the middle of the handshake


class Weather:
    """How the network is now."""

    def __init__(self) -> None:
        self.latency_s = (0.0002, 0.02)
        self.loss = self.twice = self.overtakes = 0.0
        self.usual = (0.0, 0.0, 0.0)
        self.cut: dict[tuple[str, str], int] = {}
        """Directions of nodes that nothing passes, and by how many faults."""

    def clear(self) -> None:
        """Be as usual again."""
        self.latency_s = (0.0002, 0.02)
        self.loss, self.twice, self.overtakes = self.usual


class Connection:
    """One connection of an agent to the master."""

    def __init__(self, network: Network, node: str, key: str, number: int) -> None:
        self.network = network
        self.node = node
        self.key = key
        self.route = number.to_bytes(5, "big")
        self.is_open = True
        """For the agent."""
        self.master_life = 0
        """The life of the master that it is connected to; 0 before it is."""
        self.is_known_gone = False
        """For the master."""
        self.events: list[LinkEvent] = []
        self.frames: list[bytes] = []
        self.last_at = {UP: 0.0, DOWN: 0.0}


class Network:
    """All connections."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.weather = Weather()
        self.master: Any = None
        self.agents: dict[str, Process] = {}
        self._held: list[tuple[Connection, str, list[bytes]]] = []
        self._connections: dict[bytes, Connection] = {}
        self._count = 0

    # --- cuts ----------------------------------------------------------------------------------------

    def passes(self, node: str, *directions: str) -> bool:
        """Tell whether messages of a node get through."""
        return not any(self.weather.cut.get((node, direction)) for direction in directions)

    def cut(self, node: str, directions: tuple[str, ...], seconds: float) -> None:
        """Let nothing through for a while; a connection that hears nothing for long falls."""
        cut = self.weather.cut
        for direction in directions:
            cut[node, direction] = cut.get((node, direction), 0) + 1
        self.world.note("network", f"cut {node} {'+'.join(directions)} for {seconds:.1f} s")

        def heal() -> None:
            for direction in directions:
                cut[node, direction] -= 1
            self.world.note("network", f"healed {node} {'+'.join(directions)}")
            self._let_go()

        self.world.later(seconds, heal)
        for connection in [one for one in self._connections.values() if one.node == node and one.is_open]:
            self.world.later(
                TIMEOUT_S,
                lambda one=connection: (
                    None if self.passes(node, UP, DOWN) else self.break_(one, by_timeout=True)
                ),
            )

    def _let_go(self) -> None:
        """Bring on their way the messages that a cut held back."""
        held, self._held = self._held, []
        for connection, direction, frames in held:
            if self.passes(connection.node, direction):
                self._carry(connection, direction, frames, again=True)
            else:
                self._held.append((connection, direction, frames))

    # --- connections ---------------------------------------------------------------------------------

    def connect(self, node: str, key: str) -> Connection:
        """Begin to connect; it goes on trying until it succeeds or is closed."""
        self._count += 1
        connection = Connection(self, node, key, self._count)
        self._connections[connection.route] = connection
        self.world.later(self.world.spread(0.001, 0.05), lambda: self._try(connection, 0.1))
        return connection

    def _try(self, connection: Connection, again_s: float) -> None:
        if not connection.is_open:
            return
        master = self.master
        if not self.passes(connection.node, UP, DOWN) and self.world.random.random() < HANG_UP:
            connection.is_open = False
            self._tell(connection, LinkEvent(is_up=False, hung_up=True))
        elif not (master.is_up and master.is_listening and self.passes(connection.node, UP, DOWN)):
            self.world.later(again_s, lambda: self._try(connection, min(2.0, again_s * 2)))
        elif master.router.holder(connection.key) is None:
            connection.is_open = False
            self._tell(connection, LinkEvent(is_up=False, keys_refused=True))
        else:
            connection.master_life = master.life
            self._tell(connection, LinkEvent(is_up=True))

    def _tell(self, connection: Connection, event: LinkEvent) -> None:
        connection.events.append(event)
        self.agents[connection.node].turn_at(self.world.now)

    def close(self, connection: Connection) -> None:
        """The agent lets go of it; the master hears of that when it can."""
        if connection.is_open:
            connection.is_open = False
            self._master_will_see(connection)

    def break_(self, connection: Connection, *, by_timeout: bool = False) -> None:
        """Let the connection fall, as seen by the agent."""
        if connection.is_open and connection.master_life:
            connection.is_open = False
            self.world.note(
                "network", f"connection of {connection.node} falls{' by time-out' if by_timeout else ''}"
            )
            self._tell(connection, LinkEvent(is_up=False))
            self._master_will_see(connection)

    def _master_will_see(self, connection: Connection) -> None:
        def see() -> None:
            if self.passes(connection.node, UP):
                connection.is_known_gone = True
                self.master.lose(connection)
            else:
                self.world.later(5.0, see)

        self.world.later(self.world.spread(0.001, 0.5), see)

    def master_ended(self) -> None:
        """Every connection of the master's falls; agents that are cut off see it later."""

        def fall(connection: Connection) -> None:
            if connection.is_open and not self.passes(connection.node, DOWN):
                self.world.later(1.0, lambda: fall(connection))
            else:
                self.break_(connection)

        for connection in self._connections.values():
            if connection.master_life == self.master.life:
                self.world.later(self.world.spread(0.001, 0.2), lambda one=connection: fall(one))

    def agent_ended(self, node: str) -> None:
        """The kernel closes what the agent had open."""
        for connection in self._connections.values():
            if connection.node == node:
                self.close(connection)

    def machine_ended(self, node: str) -> None:
        """Nobody closes anything: what was under way is gone."""
        for connection in self._connections.values():
            if connection.node == node:
                connection.is_open = False
        self._held = [one for one in self._held if one[0].node != node]

    # --- messages ------------------------------------------------------------------------------------

    def send(self, connection: Connection, direction: str, frames: list[bytes]) -> None:
        """Carry a message, as the weather is."""
        random, weather = self.world.random, self.weather
        for frame in frames:
            self.world.feed(frame)
        if random.random() < weather.loss:
            self.world.note("network", f"lost a message {direction} of {connection.node}")
            self.world.later(self.world.spread(0.1, TIMEOUT_S), lambda: self.break_(connection))
            return
        self._carry(connection, direction, frames)
        if random.random() < weather.twice:
            self.world.note("network", f"a message {direction} of {connection.node} will come twice")
            self.world.later(
                self.world.spread(0.01, 20.0), lambda: self._arrive(connection, direction, frames)
            )

    def _carry(
        self, connection: Connection, direction: str, frames: list[bytes], *, again: bool = False
    ) -> None:
        at = self.world.now + self.world.spread(*self.weather.latency_s)
        if self.world.random.random() < self.weather.overtakes and not again:
            self.world.note("network", f"a message {direction} of {connection.node} may be overtaken")
            self.world.at(
                at + self.world.spread(0.01, 5.0), lambda: self._arrive(connection, direction, frames)
            )
            return
        at = connection.last_at[direction] = max(at, connection.last_at[direction])
        self.world.at(at, lambda: self._arrive(connection, direction, frames))

    def _arrive(self, connection: Connection, direction: str, frames: list[bytes]) -> None:
        if not self.passes(connection.node, direction):
            self._held.append((connection, direction, frames))
            return
        if direction == UP:
            self.master.hear(connection, frames)
        elif connection.is_open:
            connection.frames += frames
            self.agents[connection.node].turn_at(self.world.now)


class AgentSide:
    """The link of one agent, as `mgpu_agent.link.Link`."""

    def __init__(self, network: Network, node: str) -> None:
        self._network = network
        self._node = node
        self._connection: Connection | None = None

    @property
    def has_news(self) -> bool:
        connection = self._connection
        return connection is not None and bool(connection.events or connection.frames)

    def open(self, target: Target, keys: KeyPair) -> None:
        self.drop()
        self._connection = self._network.connect(self._node, keys.public)

    def drop(self) -> None:
        if self._connection is not None:
            self._network.close(self._connection)
            self._connection = None

    def events(self) -> Iterator[LinkEvent]:
        connection = self._connection
        while connection is not None and connection is self._connection and connection.events:
            yield connection.events.pop(0)

    def receive(self) -> list[bytes]:
        if self._connection is None:
            return []
        frames, self._connection.frames = self._connection.frames, []
        if frames:
            reach("agent.receive")
        return frames

    def send(self, frames: list[bytes]) -> None:
        if self._connection is not None and self._connection.is_open:
            reach("agent.send.before")
            self._network.send(self._connection, UP, frames)
            reach("agent.send.after")


class MasterSide:
    """The link of one life of the master, as `mgpu_jupyter.transport.router.Router`."""

    def __init__(self, network: Network, master: Process) -> None:
        self._network = network
        self._master = master
        self._names: dict[str, str] = {}
        self._refusals: dict[str, str] = {}
        self.incoming: list[Incoming] = []
        self.ended: list[bytes] = []

    def wait(self, timeout_s: float) -> None:
        """Return at once: the world wakes the master."""

    def wake(self) -> None:
        self._master.turn_at(self._network.world.now)

    def receive(self, limit: int) -> list[Incoming]:
        taken, self.incoming = self.incoming[:limit], self.incoming[limit:]
        return taken

    def send(self, route: bytes, frames: list[bytes]) -> bool:
        connection = self._network._connections[route]
        if connection.is_known_gone:
            return False
        reach("link.send.before")
        self._network.send(connection, DOWN, frames)
        reach("link.send.after")
        return True

    def take_ended(self) -> list[bytes]:
        ended, self.ended = self.ended, []
        return ended

    def bind(self, host: str, port: int) -> int:
        return port

    def allow(self, public_key: str, user_id: str) -> None:
        self._names = {key: name for key, name in self._names.items() if name != user_id} | {
            public_key: user_id
        }

    def forbid(self, user_id: str, why: str) -> None:
        self._names = {key: name for key, name in self._names.items() if name != user_id}

    def remember(self, public_key: str, user_id: str, why: str) -> None:
        """Nobody asks why."""

    def holder(self, public_key: str) -> str | None:
        return self._names.get(public_key)

    def knows(self, user_id: str) -> bool:
        return user_id in self._names.values()

    def close(self) -> None:
        """Nothing is open."""
