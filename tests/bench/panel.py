"""`make bench-panel`: what `%mgpu_panel` costs with 1,000 waiting jobs and 100 nodes of 8 GPUs: first paint,
and each update.

The nodes are many agents in one process that speak the real protocol; each tells new readings with every
heartbeat, and the queue moves. The panel is opened in a real kernel; with Chromium also in a real JupyterLab,
where what counts is the time from pressing Run to the first row on the screen. The header of a cell is
measured in the same cluster (`header.py`). No thresholds: the numbers are printed and written.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from mgpu_agent.protocol.messages import Heartbeat
from mgpu_agent.protocol.model import GpuSample
from mgpu_agent.protocol.places import RuntimeFile
from mgpu_jupyter.demo.program import StopRequested, end_on_signals
from tests.bench import header
from tests.browser.lab import Lab
from tests.chaos import light
from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook
from tests.processes import wait_until

TABS = ("queue", "gpus", "submit", "job")
LIMIT_S = 900

OPEN = """
import time
from mgpu_jupyter import Client
from mgpu_jupyter.notebook.panel import Panels, Wanted
panels = Panels(get_ipython(), Client())
began = time.perf_counter()
panels.show(Wanted({tab!r}, {job!r}), {{}})
print(time.perf_counter() - began)
panel = next(iter(panels._by_cell.values()))
"""
WATCH = """
import resource
def used():
    told = resource.getrusage(resource.RUSAGE_SELF)
    return told.ru_utime + told.ru_stime
sent = []
plain = panel.widget.comm.__class__.publish_msg
def counted(self, kind, data=None, metadata=None, buffers=None, **keys):
    sent.append(len(repr(data)))
    return plain(self, kind, data, metadata, buffers, **keys)
panel.widget.comm.__class__.publish_msg = counted
before, drawn, draw_s, cpu = time.perf_counter(), panel.drawn, panel.draw_s, used()
time.sleep({seconds})
count = max(panel.drawn - drawn, 1)
panel.widget.comm.__class__.publish_msg = plain
import json
print(json.dumps(dict(updates=count, draw_ms=1000 * (panel.draw_s - draw_s) / count, cpu_ms=1000 * (used() - cpu) / count,
    messages=len(sent) / count, kilobytes=sum(sent) / 1000 / count)))
panels.close()
"""  # noqa: E501


class Busy(light.LightAgents):
    """Light agents in a thread, whose jobs do not end and whose GPUs tell something new with each
    heartbeat.
    """

    def __init__(self, runtime: RuntimeFile, count: int, gpus: int) -> None:
        super().__init__(runtime, count, gpus, runs_s=1e9, read=self._tell)
        self._round = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to speak."""
        self._thread.start()

    def stop(self) -> None:
        """End."""
        self._stop.set()
        self._thread.join(30)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.turn()

    def _tell(self, agent: light.LightAgent, beat: Heartbeat) -> Heartbeat:
        self._round += 1
        samples = tuple(
            GpuSample(
                uuid=gpu.uuid,
                utilisation_percent=float((self._round * 7 + number * 13) % 100),
                memory_used_bytes=gpu.memory_bytes * ((self._round + number) % 10) // 10,
                temperature_c=40.0 + (self._round + number) % 30,
            )
            for number, gpu in enumerate(agent.facts.gpus)
        )
        return replace(beat, samples=samples, cpu_percent=50.0)


@contextlib.contextmanager
def filled(cluster: Cluster, runtime: RuntimeFile, nodes: int, gpus: int, jobs: int) -> Iterator[str]:
    """Have so many nodes, all of them full, and so many jobs that wait; yield a job that runs."""
    with Busy(runtime, nodes, gpus) as agents:
        agents.start()
        try:
            cluster.wait_until(lambda: agents.welcome == nodes, "all agents are welcome", 120)
            running = cluster.client.submit_many(
                [["true"]] * nodes, gpus=gpus, name="fills", time_limit=36_000
            )
            cluster.wait_until(
                lambda: all(job.refresh().state == "running" for job in running[-3:]),
                "the nodes are full",
                120,
            )
            for start in range(0, jobs, 100):
                cluster.client.submit_many(
                    [["true"]] * min(100, jobs - start), gpus=gpus, name=f"waits-{start}", time_limit=3_600
                )
            yield running[0].id
        finally:
            agents.stop()


def in_a_kernel(cluster: Cluster, job: str, seconds: float) -> dict[str, dict[str, Any]]:
    """Open each tab in a kernel and watch it for a while, with the queue moving once a second."""
    found: dict[str, dict[str, Any]] = {}
    with Notebook(cluster.env, cluster.directory) as kernel, moving(cluster):
        kernel.run("%load_ext mgpu_jupyter")
        for tab in TABS:
            opened = kernel.run(OPEN.format(tab=tab, job=job if tab == "job" else ""))
            assert opened.error is None, opened.error
            watched = kernel.run(WATCH.format(seconds=seconds), limit_s=seconds + 60)
            assert watched.error is None, watched.error
            found[tab] = {
                "open_s": float(opened.text().split()[-1]),
                **json.loads(watched.text().splitlines()[-1]),
            }
    return found


@contextlib.contextmanager
def moving(cluster: Cluster) -> Iterator[None]:
    """Change the queue once a second: another job has another priority."""
    stop = threading.Event()
    waiting = list(cluster.client.jobs(state="queued", limit=200))

    def move() -> None:
        number = 0
        while not stop.wait(1.0):
            with contextlib.suppress(Exception):
                waiting[number % len(waiting)].update(priority=number % 7)
            number += 1

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def in_a_browser(lab: Lab, job: str, rounds: int) -> dict[str, dict[str, float]]:
    """Open each tab in JupyterLab; return how long it takes from Run to the first row, for the first and for
    later times.
    """
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import ARGUMENTS, CHROMIUM

    marks = {"queue": "[data-job]", "gpus": "tr[data-gpu]", "submit": ".mgpu-pick", "job": ".mgpu-way"}
    cells = [f"%mgpu_panel {tab}{f' {job}' if tab == 'job' else ''}" for tab in TABS]
    lab.write_notebook("panel.ipynb", ["%load_ext mgpu_jupyter", *cells])
    found: dict[str, dict[str, float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        page = lab.open(
            browser.new_context(viewport={"width": 1280, "height": 900}), "panel.ipynb", workspace="panel"
        )
        page.wait_for_kernel()
        page.run(0)
        for number, tab in enumerate(TABS, 1):
            took = []
            for _ in range(rounds + 1):
                page.page.evaluate(
                    "() => window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs')"
                )
                page.output(number).locator(".mgpu-panel").wait_for(state="detached")
                began = time.perf_counter()
                page.run(number, wait=False)
                page.output(number).locator(marks[tab]).first.wait_for()
                took.append(time.perf_counter() - began)
                page.wait_for_cell(number)
            found[tab] = {"first_s": took[0], "later_s": statistics.median(took[1:])}
        browser.close()
    return found


def main() -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="make bench-panel", description=__doc__.splitlines()[0] if __doc__ else None
    )
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="how long each tab is watched")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="how often each tab is opened in the browser after the first time",
    )
    parser.add_argument(
        "--only-header", action="store_true", help="measure the header of a cell, not the panel"
    )
    parser.add_argument("--out", type=Path, default=Path("bench-panel.json"))
    options = parser.parse_args()
    end_on_signals()
    signal.alarm(LIMIT_S)
    with_browser = any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome")))
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mgpu-bench-") as directory,
            Lab(Path(directory) / "cluster", simulate="") as lab,
        ):
            lab.start_lab("--MgpuApp.local_agent=False")
            with filled(lab, lab.runtime(), options.nodes, options.gpus, options.jobs) as job:
                wait_until(
                    lambda: len(list(lab.client.jobs(state="queued"))) >= options.jobs, "the jobs wait", 60
                )
                result: dict[str, Any] = {"nodes": options.nodes, "gpus": options.gpus, "jobs": options.jobs}
                with moving(lab):
                    result["header"] = {"kernel": header.in_a_kernel(lab, options.seconds)}
                    if with_browser:
                        result["header"]["browser"] = header.in_a_browser(lab, options.rounds)
                result["kernel"] = {} if options.only_header else in_a_kernel(lab, job, options.seconds)
                if with_browser and not options.only_header:
                    with moving(lab):
                        result["browser"] = in_a_browser(lab, job, options.rounds)
    except StopRequested as error:
        print(f"Stopped by {error}.", file=sys.stderr)
        return 1
    for tab, told in result["kernel"].items():
        shown = result.get("browser", {}).get(tab, {})
        print(
            f"{tab:7} open {told['open_s']:.2f} s; update {told['draw_ms']:.1f} ms drawn, "
            f"{told['cpu_ms']:.1f} ms of processor in all, "
            f"{told['messages']:.1f} messages, {told['kilobytes']:.1f} kB ({told['updates']} updates)"
            + (
                f"; on the screen after {shown['first_s']:.2f} s, then {shown['later_s']:.2f} s"
                if shown
                else ""
            )
        )
    told, shown = result["header"]["kernel"], result["header"].get("browser", {})
    print(
        f"header  first message {told['first_s']:.2f} s; update {told['draw_ms']:.1f} ms drawn, "
        f"{told['cpu_ms']:.1f} ms of processor in all ({told['updates']} updates)"
        + (f"; on the screen after {shown['first_s']:.2f} s, then {shown['later_s']:.2f} s" if shown else "")
    )
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(f"Written to {options.out}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
