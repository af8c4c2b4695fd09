"""Agents as the protocol demands them, in memory: what the histories of `test_world` and `test_partitions`
happen to.
"""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, NodeId
from mgpu_agent.protocol.model import GpuTrouble, LaunchSpec, TaskStatus
from mgpu_jupyter.scheduler.events import Event, LaunchWasPrepared, LaunchWasRefused, NodeJoined, TaskReported
from tests.builders import facts

NODES = {"n1": 2, "n2": 1}
LEASE_S, GRACE_S, SILENCE_S, STEP_S = 100.0, 30.0, 60.0, 10.0


class Beat(msgspec.Struct, frozen=True):
    """A sign of life, on its way to the master."""

    at: float


class Heard(msgspec.Struct, frozen=True):
    """The master's answer to one, on its way to the node."""

    node_id: NodeId
    beat: float


class FakeAgent:
    """An agent and its keeper, as the protocol demands them: idempotent launches, tombstones, incarnations,
    preparations, leases.
    """

    def __init__(self, node_id: str) -> None:
        self.id = NodeId(node_id)
        self.boots = 1
        self.live: dict[tuple[AttemptKey, int], TaskStatus] = {}
        self.over: dict[tuple[AttemptKey, int], TaskStatus] = {}
        self.stones: set[AttemptKey] = set()
        self.troubles: dict[GpuUuid, GpuTrouble] = {}
        self.prepared: dict[AttemptKey, LaunchSpec] = {}
        self.leases: dict[AttemptKey, float] = {}
        self.alive_at = 0.0

    @property
    def incarnation(self) -> str:
        return f"boot-{self.boots}/ledger"

    def launch(self, spec: LaunchSpec, at: float) -> Event:
        (task,) = spec.tasks
        slot = (spec.key, task.rank)
        if slot in self.live or slot in self.over:
            return TaskReported(at=at, status=self.live.get(slot) or self.over[slot])
        is_late = spec.lease_s and at >= self.alive_at + spec.lease_s
        if spec.incarnation != self.incarnation or spec.key in self.stones or is_late:
            return LaunchWasRefused(
                at=at, node_id=self.id, key=spec.key, code="stale", message="Stale.", fault="stale"
            )
        self.prepared.pop(spec.key, None)
        self.leases[spec.key] = spec.lease_s
        self.live[slot] = TaskStatus(
            key=spec.key,
            rank=task.rank,
            node_id=self.id,
            host="h",
            address="a",
            pid=1,
            started_at=at,
            gpus=spec.gpus,
        )
        return TaskReported(at=at, status=self.live[slot])

    def prepare(self, spec: LaunchSpec, at: float) -> Event:
        slot = (spec.key, spec.tasks[0].rank)
        if (
            slot in self.live
            or slot in self.over
            or spec.incarnation != self.incarnation
            or spec.key in self.stones
        ):
            return self.launch(spec, at)
        self.prepared[spec.key] = spec
        return LaunchWasPrepared(at=at, node_id=self.id, key=spec.key)

    def start(self, key: AttemptKey, at: float) -> list[Event]:
        if key in self.prepared:
            return [self.launch(self.prepared[key], at)]
        known = [status for slot, status in (self.live | self.over).items() if slot[0] == key]
        if known:
            return [TaskReported(at=at, status=status) for status in known]
        self.stones.add(key)
        return [
            LaunchWasRefused(
                at=at, node_id=self.id, key=key, code="not-prepared", message="Let go.", fault="stale"
            )
        ]

    def expire(self, at: float) -> list[Event]:
        """End what has outlived its lease, at the last moment at which the keeper may."""
        late = [
            slot
            for slot in self.live
            if self.leases[slot[0]] and at >= self.alive_at + self.leases[slot[0]] + GRACE_S
        ]
        return [self.end(slot, at, signal=9, lost=True) for slot in late]

    def refuse(self, spec: LaunchSpec, at: float) -> Event:
        (task,) = spec.tasks
        if (spec.key, task.rank) in self.live or (spec.key, task.rank) in self.over:
            return self.launch(spec, at)
        self.stones.add(spec.key)
        self.prepared.pop(spec.key, None)
        return LaunchWasRefused(at=at, node_id=self.id, key=spec.key, code="no", message="No.", fault="node")

    def stop(self, key: AttemptKey, at: float) -> list[Event]:
        slots = [slot for slot in self.live if slot[0] == key]
        if slots:
            return [self.end(slot, at, signal=15) for slot in slots]
        if any(slot[0] == key for slot in self.over):
            return [
                TaskReported(at=at, status=status) for slot, status in self.over.items() if slot[0] == key
            ]
        self.stones.add(key)
        self.prepared.pop(key, None)
        return [
            LaunchWasRefused(
                at=at, node_id=self.id, key=key, code="stopped", message="Stopped.", fault="stale"
            )
        ]

    def end(
        self,
        slot: tuple[AttemptKey, int],
        at: float,
        *,
        exit_code: int | None = None,
        signal: int | None = None,
        lost: bool = False,
    ) -> Event:
        status = self.live.pop(slot)
        self.over[slot] = TaskStatus(
            **{
                name: getattr(status, name)
                for name in ("key", "rank", "node_id", "host", "address", "pid", "started_at", "gpus")
            },
            ended_at=at,
            exit_code=exit_code,
            signal=signal,
            lost=lost,
        )
        return TaskReported(at=at, status=self.over[slot])

    def reboot(self) -> None:
        self.boots += 1
        self.live.clear()
        self.over.clear()
        self.stones.clear()
        self.prepared.clear()
        self.alive_at = 0.0

    def hello(self, at: float, gpus: int) -> Event:
        tasks = (*self.live.values(), *self.over.values())
        return NodeJoined(
            at=at,
            node_id=self.id,
            facts=facts(self.id, gpus, incarnation=self.incarnation),
            tasks=tasks,
            prepared=tuple(self.prepared),
            troubles=self.troubles,
        )
