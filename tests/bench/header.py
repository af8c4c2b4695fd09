"""What an update of a cell's header costs the kernel, with 1,000 queued jobs and 100 nodes of 8 GPUs: `python -m tests.bench.header`.

The job holds all 800 GPUs, the worst case; the mirror's view is as large as the cluster, and new at each update.
"""

from __future__ import annotations

import json
import statistics
import time

from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.gauges import LiveGauges
from mgpu_jupyter.notebook.header import Facts, html_of, text_of
from tests.notebook.test_header import FakeReader, a_job, a_large_view

ROUNDS = 300


def main() -> None:
    """Print median and worst milliseconds of processor time of an update while it waits and while it runs."""
    told: dict[str, dict[str, float]] = {}
    for name, job in (("waiting", a_job(JobState.QUEUED)), ("running", a_job(JobState.RUNNING, nodes=100, gpus=8))):
        reader, now = FakeReader(a_large_view()), [0.0]
        gauges = LiveGauges(lambda reader=reader: reader, clock=lambda now=now: now[0])  # type: ignore[misc, return-value]
        costs = []
        for _ in range(ROUNDS):
            now[0] += 1.0
            reader.view = a_large_view()
            started = time.thread_time()
            facts = Facts(job=job, now=time.time(), waits=gauges.waits(job), load=gauges.load(job))
            _ = html_of(facts), text_of(facts)
            costs.append(1000 * (time.thread_time() - started))
        told[name] = {"median_ms": round(statistics.median(costs), 2), "worst_ms": round(max(costs), 2)}
    print(json.dumps(told))


if __name__ == "__main__":
    main()
