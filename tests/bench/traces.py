"""`python -m tests.bench.traces`: what the policies make of real traces, as the table of docs/scheduling.md.
Takes minutes.

`MGPU_TRACES` names the folder of the traces; words on the command line choose rows, as in `venus` or
`default`.
"""

from __future__ import annotations

import sys

from mgpu_jupyter.model.policies import planning_of
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.simulate.figures import Figures, figures_of
from mgpu_jupyter.simulate.traces import read_trace
from mgpu_jupyter.simulate.world import KnownTimes, Replay, SimulatedCluster, replay
from tests.simulate.places import folder

TRACES = {
    "kth": ("kth_sp2_1996.csv.gz", SimulatedCluster(nodes=100, gpus_per_node=1)),
    "venus": ("helios_venus_sept.csv.gz", SimulatedCluster(nodes=80, gpus_per_node=8)),
    "philly": ("philly_sample1000.csv.gz", SimulatedCluster(nodes=4, gpus_per_node=8)),
}
ROWS = [
    *(
        ("venus", policy, "perfect")
        for policy in ("fifo", "easy", "easy-spare", "conservative", "sjf", "sjf-strict", "default")
    ),
    *(("venus", policy, "learned") for policy in ("easy", "default")),
    *(("kth", policy, "perfect") for policy in ("fifo", "easy", "conservative", "sjf", "default")),
    *(("kth", policy, "user") for policy in ("easy", "default")),
    *(("kth", policy, "learned") for policy in ("easy", "default")),
    *(("philly", policy, "perfect") for policy in ("fifo", "easy", "sjf", "default")),
    *(("philly", policy, "learned") for policy in ("easy", "default")),
]


def run(trace: str, policy: str, estimates: str) -> Replay:
    """Replay one trace under one policy."""
    name, cluster = TRACES[trace]
    found = folder()
    if found is None:
        sys.exit("There are no traces: set MGPU_TRACES to a folder that has them.")
    return replay(
        read_trace(found / name), cluster, Scheduling(planning=planning_of(policy)), KnownTimes(estimates)
    )


def line(row: tuple[str, str, str], figures: Figures) -> str:
    """Return one row of the table."""
    shown = (figures.avg_wait_s, figures.p95_wait_s, figures.max_wait_s, figures.avg_jct_s)
    numbers = " | ".join(f"{number:,.0f}" for number in shown)
    return f"| {' | '.join(row)} | {numbers} | {figures.avg_bsld:,.1f} | {figures.utilisation:.3f} |"


def main() -> None:
    """Print the table."""
    print(
        "| trace | policy | estimates | mean wait | p95 wait | max wait | mean JCT | bounded slowdown | use |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for row in ROWS:
        if set(sys.argv[1:]) <= set(row):
            print(line(row, figures_of(run(*row))), flush=True)


if __name__ == "__main__":
    main()
