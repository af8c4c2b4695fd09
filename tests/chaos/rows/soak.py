"""Row 12: half an hour with jobs all the time and a fault of another kind each minute; nothing may pile up in
memory or descriptors.

How that is judged: every five seconds the memory (RSS) and the descriptors of master, agents and keepers are
written down. Some of them are killed on the way; each process that lived for at least a third of the soak is
judged. The median of its last fifth may be above that of its second fifth by no more than `MOST_GROWTH`; its
first fifth, in which caches fill, does not count. Before that, every node is flooded once: pyzmq makes a
context of its own with the first large frame, with seven descriptors, and keeps it.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import statistics
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Self

import psutil

from tests.chaos.nodes import LOST, NodeStage
from tests.chaos.proxy import BOTH, TO_AGENT, TO_MASTER
from tests.chaos.result import Findings, Row
from tests.chaos.rows.trees import HOSTILE
from tests.chaos.stage import Busy
from tests.checker.history import read
from tests.processes import WaitedTooLong

LEASE_S, GRACE_S, MARGIN_S = 10.0, 2.0, 2.0
TRAITS = (
    f"--MgpuApp.lease={LEASE_S}",
    f"--MgpuApp.kill_grace={GRACE_S}",
    f"--MgpuApp.lease_margin={MARGIN_S}",
    "--MgpuApp.timeout=5",
    f"--MgpuApp.output_cap={16 * 2**20}",
)
NODES = 4
LASTING = ("n2", "n3")
"""Nodes whose programs are never killed, only cut off: they live for the whole soak."""
GPUS = 4
PAUSE_S = 0.3
SAMPLE_S = 5.0
MOST_GROWTH = {"master": (24.0, 8), "agent": (8.0, 6), "keeper": (8.0, 6)}
"""MB and descriptors."""
SETTLE_S = 90.0
DRAIN_S = 180.0
FLOOD = "import os\nfor _ in range(2000):\n os.write(1, b'x' * 65535 + b'\\n')"


class Watch:
    """Writes down memory and descriptors of every program, in a thread of its own."""

    def __init__(self, stage: NodeStage) -> None:
        self._stage = stage
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.samples: dict[tuple[str, str, int], list[tuple[float, int]]] = defaultdict(list)
        """MB and descriptors by role, node and pid."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped.wait(SAMPLE_S):
            found = (
                [("master", "", psutil.Process(self._stage.pid("master")))]
                if self._stage.has_master()
                else []
            )
            for number in range(NODES):
                node = f"n{number}"
                with contextlib.suppress(psutil.Error, KeyError):
                    found.append(("agent", node, psutil.Process(self._stage.pid(node))))
                if (keeper := self._stage.keeper_of(node)) is not None:
                    found.append(("keeper", node, keeper))
            for role, node, process in found:
                with contextlib.suppress(psutil.Error, OSError):
                    self.samples[role, node, process.pid].append(
                        (process.memory_info().rss / 2**20, process.num_fds())
                    )

    def judge(self, least: int) -> tuple[list[str], dict[str, object]]:
        """Return what grew, and the figures of each role; processes with fewer samples than `least` are left
        out.
        """
        problems: list[str] = []
        figures: dict[str, object] = {}
        judged: dict[str, int] = defaultdict(int)
        for (role, node, pid), samples in self.samples.items():
            if len(samples) < max(least, 5):
                continue
            fifth = len(samples) // 5
            early, late = samples[fifth : 2 * fifth], samples[-fifth:]
            grown = [
                statistics.median(one[kind] for one in late) - statistics.median(one[kind] for one in early)
                for kind in (0, 1)
            ]
            judged[role] += 1
            for kind, (name, limit) in enumerate(
                zip(("memory_grew_mb", "descriptors_grew"), MOST_GROWTH[role], strict=True)
            ):
                key = f"{role}_{name}_most"
                figures[key] = max(round(grown[kind], 1), float(str(figures.get(key, -1e9))))
                if grown[kind] > limit:
                    problems.append(
                        f"{name} of {role} {node} (pid {pid}): {grown[kind]:.1f}, and {limit:g} are allowed"
                    )
        problems += [f"no {role} lived long enough to be judged" for role in MOST_GROWTH if not judged[role]]
        return problems, figures | {"judged": dict(judged)}


# --- faults ------------------------------------------------------------------------------------------

Fault = Callable[[NodeStage, random.Random], None]


def _mortal(rng: random.Random) -> str:
    return rng.choice([f"n{number}" for number in range(NODES) if f"n{number}" not in LASTING])


def kill_master(stage: NodeStage, rng: random.Random) -> None:
    """The master dies and is started again."""
    stage.kill("master")
    time.sleep(rng.uniform(0.0, 3.0))
    stage.warm_master(*TRAITS)


def kill_agent(stage: NodeStage, rng: random.Random) -> None:
    """An agent dies and is started again."""
    node = _mortal(rng)
    stage.kill(node)
    time.sleep(rng.uniform(0.0, 3.0))
    stage.fork_node(node, GPUS)


def kill_keeper(stage: NodeStage, rng: random.Random) -> None:
    """A keeper dies; its agent starts another."""
    node = _mortal(rng)
    if (keeper := stage.keeper_of(node)) is not None:
        stage.write("fault", kind=LOST, node=node)
        with contextlib.suppress(psutil.NoSuchProcess):
            keeper.kill()
        time.sleep(0.5)
        stage.write("fault", kind=LOST, node=node)


def kill_node(stage: NodeStage, rng: random.Random) -> None:
    """A whole node dies and comes back in a new boot."""
    node = _mortal(rng)
    stage.kill_node(node)
    stage.boot(node)
    time.sleep(rng.uniform(0.0, 3.0))
    stage.fork_node(node, GPUS)


def cut_off(stage: NodeStage, rng: random.Random) -> None:
    """Any node is cut off for up to twice the lease."""
    node = f"n{rng.randrange(NODES)}"
    stage.cut(node, rng.choice([(TO_MASTER,), (TO_AGENT,), BOTH]))
    end = time.monotonic() + rng.uniform(1.0, 2 * LEASE_S)
    while time.monotonic() < end:
        stage.write("fault", kind=LOST, node=node)
        time.sleep(0.5)
    stage.heal(node, broken=rng.random() < 0.3)
    stage.write("fault", kind=LOST, node=node)


def flood(stage: NodeStage, rng: random.Random) -> None:
    """A job writes 130 MB as fast as it can."""
    _submit(stage, f"flood-{rng.randrange(10**9)}", [sys.executable, "-IS", "-c", FLOOD])


def cancel_trees(stage: NodeStage, rng: random.Random) -> None:
    """Jobs that do not want to end are cancelled."""
    jobs = []
    for kind in ("deaf", "double_fork", "own_session"):
        path = stage.record / f"tree-{rng.randrange(10**9)}"
        jobs.append(_submit(stage, path.name, [sys.executable, "-IS", str(HOSTILE), kind, str(path)]))
    time.sleep(5)
    for job in jobs:
        stage.client.cancel(job)


def _submit(stage: NodeStage, key: str, command: list[str], **more: str) -> str:
    stage.write("asked", key=key, witness=False)
    job = stage.client.submit(command, gpus=1, name=key, **more).id
    stage.write("acknowledged", key=key, job=job)
    stage.acknowledged[key] = job
    return job


FAULTS: tuple[Fault, ...] = (kill_master, kill_agent, kill_keeper, kill_node, cut_off, flood, cancel_trees)
AFTER_THE_MASTER = FAULTS[1:]


def soak(directory: Path, minutes: int, rng: random.Random) -> Findings:
    """Go on for so many minutes with a fault in each; masters are killed in the first third only, so that the
    last one lives long.
    """
    choices = random.Random(rng.random())
    done: dict[str, int] = defaultdict(int)
    with NodeStage(
        directory, rng, settings={"kill_grace_s": GRACE_S, "gang_limit_s": 60.0}, boots=True
    ) as stage:
        stage.warm_master(*TRAITS)
        names = stage.join_nodes(NODES, GPUS)
        for name in names:
            _submit(stage, f"first-flood-{name}", [sys.executable, "-IS", "-c", FLOOD], nodelist=name)
        stage.drain(DRAIN_S)

        def submit(number: int) -> None:
            stage.submit(
                f"job-{number}",
                choices.uniform(0.1, 2.0),
                gpus=choices.choice([0, 1, 1, 2]),
                on_disconnect="fence",
            )

        began = time.monotonic()
        decks = {is_first: _deck(FAULTS if is_first else AFTER_THE_MASTER, rng) for is_first in (True, False)}
        with Watch(stage) as watch, Busy(stage, submit, pause_s=PAUSE_S):
            for minute in range(minutes):
                fault = next(decks[minute * 3 < minutes and minutes > 1])
                done[fault.__name__] += 1
                fault(stage, rng)
                time.sleep(max(0.0, began + 60 * (minute + 1) - time.monotonic()))
        with contextlib.suppress(WaitedTooLong):
            stage.wait_online(names, SETTLE_S)
        stage.drain(DRAIN_S)
        stage.survey()
        problems, grown = watch.judge(int(minutes * 60 / SAMPLE_S / 3))
        stage.problems += problems
        history = read(stage.record)
        figures: dict[str, object] = {
            "minutes": minutes,
            "faults": dict(done),
            "jobs": len(stage.acknowledged),
        }
        return Findings(stage.judge(), figures | {"processes": len(history.runs)} | grown)


def _deck(faults: tuple[Fault, ...], rng: random.Random) -> itertools.chain[Fault]:
    return itertools.chain.from_iterable(rng.sample(faults, len(faults)) for _ in itertools.count())


ROWS = (Row(12, "soak: jobs all the time, a fault of another kind each minute", 0, 30, soak, "minutes"),)
