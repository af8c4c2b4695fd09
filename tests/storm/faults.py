"""What is done to the cluster and when: drawn from the seed, each seed with kinds and a strength of its
own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.storm.network import DOWN, UP

HOUR_S, DAY_S = 3600.0, 86_400.0


class Storm:
    """Draws faults for one cluster and brings them about."""

    def __init__(self, cluster: Any, until: float, lease_s: float, margin_s: float) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._until = until
        self._lease_s = lease_s
        self._margin_s = margin_s
        self.outages_s = 0.0
        """How long nodes were out of reach, summed up."""
        self.is_over = False
        kinds: dict[str, Callable[[], None]] = {
            "master": self.master_ends,
            "master-point": self.master_ends_at_a_failpoint,
            "agent": self.agent_ends,
            "agent-point": self.agent_ends_at_a_failpoint,
            "agent-stop": self.agent_stops,
            "keeper": self.keeper_ends,
            "keeper-point": self.keeper_ends_at_a_failpoint,
            "power": self.power_cut,
            "cut": self.network_is_cut,
            "slow": self.network_is_slow,
            "hostile": self.network_is_hostile,
            "slow-disk": self.disk_is_slow,
            "full-disk": self.disk_is_full,
            "node-disk": self.node_disk_is_full,
            "clock": self.clock_jumps,
            "pause": self.process_is_stopped,
            "sleep": self.machine_sleeps,
            "spawn": self.starts_fail,
        }
        random = self._world.random
        names = sorted(kinds)
        self.chosen = sorted(random.sample(names, random.randint(1, len(names))))
        self._kinds = [kinds[name] for name in self.chosen]
        self._pause_s = self._world.spread(1.0, 20.0)

    def begin(self) -> None:
        """Let faults happen until the storm is over."""
        random, weather, clients = self._world.random, self._cluster.network.weather, self._cluster.clients
        if random.random() < 0.5:
            weather.usual = (
                random.choice((0.0, 0.01)),
                random.choice((0.0, 0.05, 0.2)),
                random.choice((0.0, 0.05, 0.2)),
            )
            clients.loss = clients.usual_loss = random.choice((0.0, 0.1, 0.3))
            weather.clear()
        self._world.note(
            "storm", f"{' '.join(self.chosen)}, one in {self._pause_s:.1f} s, network {weather.usual}"
        )
        self._next()

    def end(self) -> None:
        """Stop, and let all that is down come up again."""
        self.is_over = True
        cluster = self._cluster
        cluster.network.weather.usual = (0.0, 0.0, 0.0)
        cluster.network.weather.clear()
        cluster.clients.loss = cluster.clients.usual_loss = 0.0
        cluster.master.store.commit_s = None
        cluster.master.store.is_full = False
        for process in (
            cluster.master,
            *(node.agent for node in cluster.nodes),
            *(node.keeper for node in cluster.nodes),
        ):
            process.points_left = None
        for node in cluster.nodes:
            node.spawn_fails = node.disk.is_full = False
            node.machine.wall_offset_s = 0.0
        cluster.master.machine.wall_offset_s = 0.0
        self._world.note("storm", "is over")

    def _next(self) -> None:
        wait_s = self._world.random.expovariate(1.0 / self._pause_s)
        self._world.later(wait_s, self._strike)

    def _strike(self) -> None:
        if not self.is_over and self._world.now < self._until:
            self._world.random.choice(self._kinds)()
            self._next()

    # --- programs ------------------------------------------------------------------------------------

    def master_ends(self) -> None:
        self._cluster.master.crash("by the storm")
        self._bring_back_master()

    def master_ends_at_a_failpoint(self) -> None:
        self._plant(self._cluster.master)
        self._bring_back_master()

    def _bring_back_master(self) -> None:
        down_s = self._world.spread(0.1, 2.0 * self._lease_s)
        self.outages_s += down_s
        master = self._cluster.master

        def back() -> None:
            if master.is_up:
                self._later_unless_over(back)
            else:
                master.start()

        self._world.later(down_s, back)

    def agent_ends(self) -> None:
        node = self._node()
        if node.machine.frozen_at is not None:
            return
        node.agent.crash("by the storm")
        self._bring_back_agent(node)

    def agent_stops(self) -> None:
        node = self._node()
        if node.machine.frozen_at is not None:
            return
        node.agent.ask_to_end()
        self._bring_back_agent(node)

    def agent_ends_at_a_failpoint(self) -> None:
        node = self._node()
        if node.machine.frozen_at is not None:
            return
        self._plant(node.agent)
        self._bring_back_agent(node)

    def _bring_back_agent(self, node: Any) -> None:
        down_s = self._world.spread(0.1, 2.0 * self._lease_s)
        self.outages_s += down_s
        self._world.later(down_s, node.agent.start)

    def keeper_ends(self) -> None:
        node = self._node()
        if node.machine.frozen_at is not None:
            return
        node.keeper.crash("by the storm")
        if self._world.random.random() < 0.3:
            node.agent.crash("with its keeper")
            self._bring_back_agent(node)

    def keeper_ends_at_a_failpoint(self) -> None:
        self._plant(self._node().keeper)

    def process_is_stopped(self) -> None:
        """Stop a program for a while, as a machine that swaps does; a keeper not for longer than the margin
        allows for.
        """
        node = self._node()
        process = self._world.random.choice((node.agent, node.agent, node.keeper, self._cluster.master))
        limit_s = 0.5 * self._margin_s if process is node.keeper else self._lease_s
        seconds = self._world.spread(0.05, limit_s)
        process.paused_until = max(process.paused_until, self._world.now + seconds)
        self.outages_s += seconds
        self._world.note(process.name, f"stopped for {seconds:.2f} s")

    def _plant(self, process: Any) -> None:
        process.points_left = self._world.random.randint(1, 40)
        process.point_name = ""

    # --- machines ------------------------------------------------------------------------------------

    def power_cut(self) -> None:
        node = self._node()
        if node.is_on:
            node.power_cut()
            down_s = self._world.spread(1.0, 3.0 * self._lease_s)
            self.outages_s += down_s
            self._world.later(down_s, lambda: None if node.is_on else node.switch_on())

    def machine_sleeps(self) -> None:
        node = self._node()
        if node.is_on and node.machine.frozen_at is None:
            seconds = self._world.random.choice((self._world.spread(0.5, self._lease_s), self._long()))
            self.outages_s += seconds
            node.machine.freeze(seconds)
            self._world.note(node.name, f"sleeps for {seconds:.1f} s")
            self._world.later(seconds, node.machine.resume)
            self._cluster.network.cut(node.name, (UP, DOWN), seconds)

    def clock_jumps(self) -> None:
        machine = self._world.random.choice((self._cluster.master.machine, self._node().machine))
        machine.wall_offset_s += self._world.random.choice((-DAY_S, -HOUR_S, -10.0, 10.0, HOUR_S, DAY_S))
        self._world.note("storm", "a clock was set anew")

    def starts_fail(self) -> None:
        node = self._node()
        node.spawn_fails = True
        self._for_a_while(lambda: setattr(node, "spawn_fails", False))

    def node_disk_is_full(self) -> None:
        node = self._node()
        node.disk.is_full = True
        self._for_a_while(lambda: setattr(node.disk, "is_full", False))

    def disk_is_slow(self) -> None:
        store = self._cluster.master.store
        store.commit_s = (0.01, self._world.spread(0.02, 3.0))
        self._for_a_while(lambda: setattr(store, "commit_s", None))

    def disk_is_full(self) -> None:
        store = self._cluster.master.store
        store.is_full = True
        self._for_a_while(lambda: setattr(store, "is_full", False))

    # --- the network ---------------------------------------------------------------------------------

    def network_is_cut(self) -> None:
        directions = self._world.random.choice(((UP,), (DOWN,), (UP, DOWN)))
        nodes = [self._node()] if self._world.random.random() < 0.7 else self._cluster.nodes
        seconds = (
            self._world.spread(0.2, 3.0 * self._lease_s)
            if self._world.random.random() < 0.5
            else self._long()
        )
        self.outages_s += seconds
        for node in nodes:
            self._cluster.network.cut(node.name, directions, seconds)

    def network_is_slow(self) -> None:
        weather = self._cluster.network.weather
        weather.latency_s = (0.01, self._world.spread(0.1, 8.0))
        self._for_a_while(lambda: setattr(weather, "latency_s", (0.0002, 0.02)))

    def network_is_hostile(self) -> None:
        random, weather = self._world.random, self._cluster.network.weather
        weather.loss, weather.twice, weather.overtakes = (random.choice((0.0, 0.02, 0.1)) for _ in range(3))
        self._cluster.clients.loss = random.choice((0.0, 0.1, 0.3))
        self._for_a_while(
            lambda: (
                weather.clear(),
                setattr(self._cluster.clients, "loss", self._cluster.clients.usual_loss),
            )
        )

    def _for_a_while(self, undo: Callable[[], Any]) -> None:
        seconds = self._world.spread(0.5, 1.5 * self._lease_s)
        self.outages_s += seconds
        self._world.later(seconds, undo)

    def _long(self) -> float:
        return self._world.random.uniform(0.9, 2.5) * self._lease_s

    def _node(self) -> Any:
        return self._world.random.choice(self._cluster.nodes)

    def _later_unless_over(self, action: Callable[[], None]) -> None:
        if not self.is_over:
            self._world.later(1.0, action)
