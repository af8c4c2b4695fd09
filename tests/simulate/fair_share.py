"""Two users with equal shares: Ann asks for three times all there is, Bob comes a day later and asks for a
little over half.
"""

from __future__ import annotations

from random import Random

from mgpu_jupyter.model.policies import planning_of
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.simulate.traces import TraceJob
from mgpu_jupyter.simulate.world import Replay, SimulatedCluster, replay

DAY_S = 86_400.0
DAYS = 8
CLUSTER = SimulatedCluster(nodes=4, gpus_per_node=4)
DEMAND = {"ann": (0.0, 3.0), "bob": (DAY_S, 0.75)}
"""For each user, when they begin and how much of the cluster they ask for."""
MEAN_S = 3600.0


def trace(seed: int = 4) -> list[TraceJob]:
    """Return their jobs: one to four GPUs, an hour on average, at random times."""
    random = Random(seed)
    works = []
    for user, (at, demand) in DEMAND.items():
        gap_s = MEAN_S * 2.5 / (CLUSTER.gpus * demand)
        while (at := at + random.expovariate(1 / gap_s)) < DAYS * DAY_S:
            works.append(
                TraceJob(
                    round(at), round(random.expovariate(1 / MEAN_S)) + 1, random.randint(1, 4), None, user
                )
            )
    return sorted(works, key=lambda work: work.submit_s)


def run(policy: str) -> Replay:
    """Replay it; what was used counts half after a day."""
    return replay(trace(), CLUSTER, Scheduling(planning=planning_of(policy), half_life_s=DAY_S))
