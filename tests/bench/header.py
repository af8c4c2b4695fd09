"""What the header of a cell costs with 1,000 queued jobs and 100 nodes of 8 GPUs: its first paint, and each
update.

`make bench-panel` measures both in a real kernel and, with Chromium, in a real JupyterLab, from pressing Run
to the header on the screen. `python -m tests.bench.header` measures the update alone in the worst case: the
job holds all 800 GPUs, and the view is new at each.
"""

from __future__ import annotations

import json
import statistics
import time
from typing import Any

from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.gauges import LiveGauges
from mgpu_jupyter.notebook.header import html_of
from mgpu_jupyter.notebook.header_text import Facts, text_of
from tests.browser.lab import Lab
from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook
from tests.notebook.test_header import FakeReader, a_job, a_large_view

ROUNDS = 300
LINE = "%mgpu_srun --background --as job --gpus 8 --name watched -t 01:00:00 -- true"
CELL = "%%mgpu_srun --gpus 8 --name watched -t 01:00:00\nprint(1)"
WATCH = """
import json, resource, time
from mgpu_jupyter.notebook import screen
def used():
    told = resource.getrusage(resource.RUSAGE_SELF)
    return told.ru_utime + told.ru_stime
drawn, plain = [], screen.RichHeader.show
def counted(self, facts):
    began = time.perf_counter()
    plain(self, facts)
    drawn.append(time.perf_counter() - began)
screen.RichHeader.show = counted
before = used()
time.sleep({seconds})
screen.RichHeader.show = plain
print(json.dumps(dict(updates=len(drawn), draw_ms=1000 * sum(drawn) / len(drawn), cpu_ms=1000 * (used() - before) / len(drawn))))
"""  # noqa: E501


def in_a_kernel(cluster: Cluster, seconds: float) -> dict[str, Any]:
    """Submit a job in the background; return when its header came, and what each update costs, the live
    mirror with it.
    """
    with Notebook(cluster.env, cluster.directory) as kernel:
        kernel.run("%load_ext mgpu_jupyter")
        began = time.monotonic()
        ran = kernel.run(LINE)
        assert ran.error is None, ran.error
        first = next(
            piece.at
            for piece in ran.pieces
            if "mgpu-head" in piece.content.get("data", {}).get("text/html", "")
        )
        watched = kernel.run(WATCH.format(seconds=seconds), limit_s=seconds + 60)
        assert watched.error is None, watched.error
        kernel.run("job.cancel()")
        return {"first_s": first - began, **json.loads(watched.text().splitlines()[-1])}


def in_a_browser(lab: Lab, rounds: int) -> dict[str, float]:
    """Run a cell that waits in JupyterLab; return how long it takes from Run to the header, for the first and
    for later times.
    """
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import ARGUMENTS, CHROMIUM

    lab.write_notebook("header.ipynb", ["%load_ext mgpu_jupyter", CELL])
    took = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = lab.open(browser.new_context(viewport={"width": 1280, "height": 900}), "header.ipynb")
        page.wait_for_kernel()
        page.run(0)
        for _ in range(rounds + 1):
            page.page.evaluate("() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')")
            page.output(1).locator(".mgpu-head").wait_for(state="detached")
            began = time.perf_counter()
            page.run(1, wait=False)
            page.output(1).locator(".mgpu-waiting").wait_for()
            took.append(time.perf_counter() - began)
            for job in lab.client.jobs(name="watched", state="active"):
                job.cancel()
            page.wait_for_cell(1)
        browser.close()
    return {"first_s": took[0], "later_s": statistics.median(took[1:])}


def main() -> None:
    """Print median and worst milliseconds of processor time of an update while it waits and while it runs."""
    told: dict[str, dict[str, float]] = {}
    for name, job in (
        ("waiting", a_job(JobState.QUEUED)),
        ("running", a_job(JobState.RUNNING, nodes=100, gpus=8)),
    ):
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
