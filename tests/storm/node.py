"""A simulated machine with GPUs: its clocks, its disk, its processes, and the product's agent and keeper on
it.
"""

from __future__ import annotations

from mgpu_agent.identity import SavedEnrolment
from tests.builders import a_gpu
from tests.storm.agent_side import AgentProcess
from tests.storm.jobs import Job
from tests.storm.keeper_side import KeeperProcess
from tests.storm.network import Network
from tests.storm.time_machine import Machine
from tests.storm.world import World


class Disk:
    """What stays when programs end: the ledger, spool files, the enrolment."""

    def __init__(self) -> None:
        self.ledger = b""
        self.spool: dict[str, bytearray] = {}
        self.enrolment: SavedEnrolment | None = None
        self.is_full = False


class Node:
    """One machine."""

    def __init__(self, world: World, network: Network, name: str, gpus: int, pace: float) -> None:
        self.world = world
        self.network = network
        self.name = name
        self.machine = Machine(world, pace)
        self.machine.last_frozen_at = 0.0
        self.disk = Disk()
        self.boots = 0
        self.processes: dict[int, Job] = {}
        self.history: list[Job] = []
        self.spawn_fails = False
        self.gpus = tuple(a_gpu(name, index) for index in range(gpus))
        self.keeper = KeeperProcess(self)
        self.agent = AgentProcess(self)
        self.boot_id = ""
        self.is_on = False
        self.given_up: list[tuple[str, float]] = []
        """Jobs that the node itself ended or lost, and when: causes for another attempt."""
        self.lost_at: list[float] = []
        """When its power was cut: whatever it had not told yet is gone."""
        self.lost_output: set[Job] = set()
        """Processes of which output was on the disk, and with the master only in part, when the power was
        cut.
        """
        self._pids = 0

    def switch_on(self) -> None:
        """Boot; the agent starts with the machine."""
        self.boots += 1
        self.boot_id = f"{self.name}-boot-{self.boots}"
        self.is_on = True
        self.machine.boot()
        self.world.note(self.name, f"boot {self.boots}")
        self.agent.start()

    def power_cut(self) -> None:
        """Lose all that runs, and a part of what was written last."""
        self.world.note(self.name, "power cut")
        self.is_on = False
        self.machine.resume()
        self.lost_at.append(self.world.now)
        self.network.machine_ended(self.name)
        self.agent.crash("with its machine")
        self.keeper.crash("with its machine")
        for job in list(self.processes.values()):
            self.lose(job)
            job.kill()
        # Output is not synced either. What the master had all of was deleted before.
        self.lost_output.update(job for job in self.history if f"{job.stem}.out" in self.disk.spool)
        kept = self.world.random.choice(
            (len(self.disk.ledger), self.world.random.randint(0, len(self.disk.ledger)), 0)
        )
        self.disk.ledger = self.disk.ledger[:kept]

    def lose(self, job: Job) -> None:
        """Note that the node is the cause of a process's end."""
        if job.is_witness:
            self.given_up.append((job.key[0], self.world.now))

    # --- processes -----------------------------------------------------------------------------------

    def spawn(self, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str) -> int:
        self._pids += 1
        pid = 1000 * self.boots + self._pids
        self.disk.spool.setdefault(f"{stem}.out", bytearray())
        self.disk.spool.setdefault(f"{stem}.err", bytearray())
        job = self.processes[pid] = Job(self, argv, env, stem, pid)
        if job.is_witness:
            self.history.append(job)
        self.world.note(self.name, f"process {job._name()} pid {pid} began on {job._value('MGPU_GPUS')}")
        return pid

    def process_ended(self, job: Job) -> None:
        self.processes.pop(job.pid, None)
        self.keeper.live.note_exit(job)
        self.keeper.turn_at(self.world.now)

    def write(self, stem: str, data: bytes) -> None:
        self.disk.spool.setdefault(f"{stem}.out", bytearray()).extend(data)
        self.agent.grown[f"{stem}.out"] = None
        self.agent.turn_at(self.world.now)
