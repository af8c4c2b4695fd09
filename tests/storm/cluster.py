"""One seed: a cluster, its clients and a storm; then calm, until every job is over; then the judgement."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise

from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.settings import LinkSettings, Retries, Scheduling
from mgpu_jupyter.scheduler.model import Policy
from tests.checker.history import Fault, History, Settings
from tests.checker.rules import check
from tests.storm.clients import Clients
from tests.storm.faults import Storm
from tests.storm.jobs import COMMAND
from tests.storm.network import Network
from tests.storm.node import Node
from tests.storm.server import MasterProcess
from tests.storm.time_machine import installed
from tests.storm.world import World

LEASE_S, GRACE_S, MARGIN_S = 20.0, 3.0, 3.0
STORM_S = 100.0
CALM_S = 3000.0
STUCK_S = 120.0
"""When nothing changed for so long after the storm, nothing will."""
LINK = LinkSettings(cluster="storm", heartbeat_s=2.0, sample_s=0.0, timeout_s=8.0, output_window_bytes=4096)


@dataclass
class Outcome:
    """What came of one seed."""

    seed: int
    digest: str
    violations: list[str] = field(default_factory=list)
    jobs: int = 0
    processes: int = 0
    events: int = 0
    seconds: float = 0.0
    """Of virtual time."""
    points: dict[str, int] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)


class Cluster:
    """All parts, wired by hand."""

    def __init__(self, seed: int, *, keep_lines: bool = False) -> None:
        world = self.world = World(seed, keep_lines=keep_lines)
        random = world.random
        scheduling = Scheduling(retries=Retries(probe_after_s=3.0, probe_cap_s=20.0, backoff_cap_s=5.0))
        self.policy = Policy(
            kill_grace_s=GRACE_S,
            on_disconnect=random.choice(("keep", "fence")),
            lease_s=LEASE_S,
            lease_margin_s=MARGIN_S,
            prepare_s=5.0,
            scheduling=scheduling,
        )
        self.network = Network(world)
        self.master = MasterProcess(world, self.network, self.policy, LINK)
        paces = [1.0 + random.choice((-1, 0, 1)) * 0.001 for _ in range(4)]
        self.nodes = [
            Node(world, self.network, f"n{number}", random.randint(1, 3), paces[number])
            for number in range(random.randint(1, 4))
        ]
        self.history = History()
        self.clients = Clients(world, self.master, self.history)
        self.storm = Storm(self, STORM_S, LEASE_S, MARGIN_S)
        self.requests = random.randint(4, 24)
        self.over = False

    def live(self) -> None:
        """Let it all happen."""
        world = self.world
        self.master.start()
        for node in self.nodes:
            world.later(world.spread(0.01, 3.0), node.switch_on)
        for number in range(self.requests):
            world.later(world.random.random() * STORM_S, lambda number=number: self._request(number))
        for _ in range(world.random.randint(0, self.requests)):
            world.later(world.random.random() * STORM_S, self._order)
        world.later(3.0, self.storm.begin)
        self._each_second()
        world.run_until(STORM_S)
        self.storm.end()
        self.calm()
        world.run_until(
            STORM_S + CALM_S, lambda: self.over or world.now > max(STORM_S, self.clients.changed_at) + STUCK_S
        )
        self.clients.look()
        # What lives on although its job is over would show within this.
        world.run_until(world.now + GRACE_S + 6.0)
        self.clients.look()

    def calm(self) -> None:
        """Bring up what is down, and let go of what is held."""
        self.master.start()
        for node in self.nodes:
            if not node.is_on:
                node.switch_on()
            node.agent.start()

    def is_over(self) -> bool:
        """Tell whether every request was answered, every job is over, and every machine awake: one that
        sleeps may still hold processes.
        """
        jobs = self.master.store.all_jobs()
        is_awake = all(node.machine.frozen_at is None for node in self.nodes)
        return (
            is_awake
            and not self.clients.open
            and not self.clients.held
            and all(saved.job.state.is_final for saved in jobs.values())
        )

    def _each_second(self) -> None:
        if self.world.random.random() < 0.2:
            self.clients.look()
        if self.storm.is_over:
            self.calm()
            self.clients.release_all()
            self.over = self.is_over()
        self.world.later(1.0, self._each_second)

    # --- what people want ----------------------------------------------------------------------------

    def _request(self, number: int) -> None:
        random = self.world.random
        seconds = random.choice(
            (self.world.spread(0.02, 1.0), self.world.spread(0.5, 10.0), random.uniform(15.0, 45.0))
        )
        code = random.choice((0, 0, 0, 3))
        gang = random.random() < 0.3 and len(self.nodes) > 1
        spec = JobSpec(
            command=(
                COMMAND,
                f"{seconds:.3f}",
                str(code),
                random.choice("0001"),
                str(random.choice((0, 1, 3, 40))),
            ),
            nodes=random.randint(2, len(self.nodes)) if gang else None,
            gpus_per_node=random.choice((0, 1)) if gang else None,
            gpus=None if gang else random.choice((0, 1, 1, 2)),
            ntasks_per_node=random.choice((None, None, None, 2)),
            distributed=gang and random.random() < 0.5,
            wait_for_nodes=True,
            on_disconnect=random.choice(("", "", "keep", "fence")),
            requeue=random.random() < 0.8,
            time_limit_s=random.choice((None, None, 2.0, 20.0)),
            array=random.choice(("", "", "", "", "0-3", "1-4%2")),
            hold=random.random() < 0.05,
            dependency=f"afterany:{random.choice(self.clients.jobs)}"
            if self.clients.jobs and random.random() < 0.1
            else "",
        )
        if (spec.gpus or 0) > max(len(node.gpus) for node in self.nodes):
            spec = JobSpec(command=spec.command)
        if spec.hold:
            # Whoever is told its id lets it go in the end.
            self.world.later(STORM_S, self._release_held)
        self.clients.submit(f"user{number % 3}", f"key{number}", spec)

    def _release_held(self) -> None:
        for saved in self.master.store.all_jobs().values():
            if saved.job.held:
                self.clients.change(saved.job.id, held=False)

    def _order(self) -> None:
        random, clients = self.world.random, self.clients
        if clients.jobs:
            job_id = random.choice(clients.jobs)
            what = random.choice(("cancel", "cancel", "requeue", "hold", "release", "limit"))
            if what == "cancel":
                clients.cancel(job_id)
            elif what == "requeue":
                clients.requeue(job_id)
            elif what == "limit":
                clients.change(job_id, time_limit_s=random.choice((1.0, 30.0)))
            else:
                clients.change(job_id, held=what == "hold")

    # --- judgement -----------------------------------------------------------------------------------

    def judge(self) -> list[str]:
        """Return everything that is wrong."""
        history = self.history
        history.settings = Settings(
            kill_grace_s=GRACE_S,
            gang_limit_s=self.storm.outages_s + LEASE_S + 4 * GRACE_S + 30.0,
            starts_fail=True,
        )
        history.runs = [job.run() for node in self.nodes for job in node.history]
        history.faults += [
            Fault("given-up", node.name, at, job) for node in self.nodes for job, at in node.given_up
        ]
        history.faults += [Fault("node-lost", node.name, at) for node in self.nodes for at in node.lost_at]
        history.faults += [
            Fault("given-up", run.node, run.started_at, run.job)
            for run in history.runs
            if (run.job, run.attempt) in self.clients.requeued
        ]
        history.faults += self._unheard()
        broken = [str(violation) for violation in check(history)]
        broken += [f"invariant: {sentence}" for sentence in dict.fromkeys(self.master.broken)]
        if self.clients.open:
            broken.append(f"{self.clients.open} requests were never answered")
        broken += [
            f"job {job._name()} still runs on {node.name}"
            for node in self.nodes
            for job in node.processes.values()
            if job.is_witness
        ]
        keys = Counter(
            (saved.job.user, saved.job.key)
            for saved in self.master.store.all_jobs().values()
            if saved.job.key
        )
        broken += [
            f"rule 1: the key {key} of {user} became {count} jobs"
            for (user, key), count in sorted(keys.items())
            if count > 1
        ]
        broken += self._lost_output()
        return broken

    def _unheard(self) -> list[Fault]:
        """Return the causes to run fenced jobs again: their node was not heard for longer than the lease."""
        faults = []
        jobs = self.master.store.all_jobs()
        fenced = {job_id for job_id, saved in jobs.items() if self.policy.lease_of(saved.job.spec)}
        for node in self.nodes:
            heard = [0.0, *self.master.heard.get(node.name, ()), self.world.now]
            gaps = [earlier + LEASE_S for earlier, later in pairwise(heard) if later - earlier > LEASE_S]
            names = {job.key[0] for job in node.history} & fenced
            faults += [Fault("given-up", node.name, at, name) for at in gaps for name in sorted(names)]
        return faults

    def _lost_output(self) -> list[str]:
        """Compare what completed jobs said with what was kept of it: all, unless the power of their node went
        off before it was sent.
        """
        from mgpu_jupyter.master.ports import LogKey

        broken = []
        completed = {told.job: told.attempt for told in self.history.told if told.state == "completed"}
        for node in self.nodes:
            for job in node.history:
                name, attempt, _ = job.key
                if completed.get(name) == attempt:
                    kept = bytes(self.master.logs.files.get((LogKey(name, attempt, job.rank), 1), b""))
                    said = "".join(
                        f"{job._name()} {word} {n}\n"
                        for word in ("started", "ends")
                        for n in range(job._lines)
                    ).encode()
                    if kept != said and not (job in node.lost_output and said.startswith(kept)):
                        broken.append(
                            f"output of {job._name()}: {len(said)} bytes were written, {len(kept)} were kept"
                        )
        return broken


def run(seed: int, *, keep_lines: bool = False) -> Outcome:
    """Run one seed and judge it."""
    cluster = Cluster(seed, keep_lines=keep_lines)
    with installed(cluster.world):
        try:
            cluster.live()
            violations = cluster.judge()
        except Exception as error:  # a bug in the product or here: either way this seed failed
            import traceback

            violations = [f"{type(error).__name__}: {error}", *traceback.format_exc().splitlines()[-8:]]
    world = cluster.world
    return Outcome(
        seed=seed,
        digest=world.digest,
        violations=violations,
        jobs=len(cluster.clients.jobs),
        processes=sum(len(node.history) for node in cluster.nodes),
        events=world.events,
        seconds=world.now,
        points=world.points,
        lines=world.lines or [],
    )
