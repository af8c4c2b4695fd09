"""`make bench-ui`: what the JupyterLab extension costs a page with 100 nodes of 8 GPUs, one reading a second,
and 5,000 jobs.

A real JupyterLab in Chromium, and agents in one process that speak the real protocol. Four questions: how
busy is the main thread (with all sections of the sidebar open, with the pointer in the queue, with the
dashboard, with a job's view), does scrolling stay smooth, does memory stay flat, and is an update as large as
what changed. Prints a table, writes the numbers, and fails when a limit is not met. Busy is judged by the
processor time of the main thread and by its tasks on the clock. Those are longer, since a task may wait for
other threads, and on a busy machine also for a processor: run it where nothing else runs.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from playwright.sync_api import Page, expect, sync_playwright

from mgpu_jupyter.demo.program import StopRequested, end_on_signals
from mgpu_jupyter.model.job import JobSpec
from tests.bench.live import GPUS, turning
from tests.bench.page import Frames, Readings, Watched
from tests.browser.conftest import ARGUMENTS, CHROMIUM, SIZE
from tests.browser.lab import Lab
from tests.chaos.light import LightAgents

MAX_BUSY_PERCENT = 20.0
MAX_FRAME_MS = 1000 / 60  # of processor time, all else that happens meanwhile included
MAX_BYTES_PER_GPU = 40
MAX_GROWTH = 1.10
WARM_UP_S = 60.0
SETTLE_S = 3.0
# Here all jobs are one's own and one ends every two seconds: JupyterLab would draw moving toasts all the
# time.
QUIET: dict[str, dict[str, object]] = {"@mgpu/labextension:core": {"notify": False}}
CHANGED = (0, 8, 80, 800)


@contextlib.contextmanager
def filled(lab: Lab, readings: Readings, nodes: int, jobs: int) -> Iterator[str]:
    """Have so many nodes, all of them full, and so many jobs that wait; yield one that runs."""
    client = lab.client
    with LightAgents(lab.runtime(), nodes, GPUS, runs_s=86_400.0, read=readings) as agents, turning(agents):
        lab.wait_until(lambda: agents.welcome == nodes, "all agents are welcome", 120)
        running = client.submit_many(
            [JobSpec(command=("true",), gpus=GPUS, name=f"train-{number}") for number in range(nodes)]
        )
        lab.wait_until(lambda: client.cluster().jobs.get("running") == nodes, "all GPUs are held", 120)
        specs = [
            JobSpec(command=("true",), gpus=1 + number % GPUS, name=f"sweep-{number}")
            for number in range(jobs)
        ]
        for start in range(0, jobs, 1000):
            client.submit_many(specs[start : start + 1000])
        yield running[-1].id


@contextlib.contextmanager
def moving(lab: Lab, every_s: float = 2.0) -> Iterator[None]:
    """Let the cluster live: every two seconds a job ends and others start, and one moves in the queue."""
    stop = threading.Event()
    order = [job.id for job in lab.client.jobs(state="running", limit=1000)]
    waiting = [job.id for job in lab.client.jobs(state="queued", limit=200)]

    def move() -> None:
        number = 0
        while not stop.wait(every_s):
            with contextlib.suppress(Exception):
                lab.client.job(waiting[number % len(waiting)]).update(priority=number % 7)
                if number < len(order) - 1:  # the last one is looked at
                    lab.client.job(order[number]).cancel()
            number += 1

    thread = threading.Thread(target=move, name="moving")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(30)


def open_page(lab: Lab, page: Page, jobs: int) -> None:
    """Show the sidebar with its three sections, and all jobs."""
    page.set_default_timeout(120_000)
    do(page, "mgpu:show-panel")
    expect(page.locator("[data-live=live]")).to_be_visible(timeout=120_000)
    page.locator("#mgpu-queue").get_by_role("radio", name="All").click()
    grid = page.locator("#mgpu-queue [role=grid]")
    lab.wait_until(
        lambda: int(grid.get_attribute("aria-rowcount") or 0) >= jobs, "all jobs are in the list", 120
    )
    for section in ("cluster", "queue", "history"):
        expect(page.locator(f"#mgpu-{section}")).to_be_visible()


def do(page: Page, command: str, **arguments: object) -> None:
    """Carry out a command."""
    page.evaluate(
        "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args); }",
        [command, arguments],
    )


def scenes(page: Page, watched: Watched, job: str, seconds: float) -> dict[str, dict[str, float]]:
    """Return how busy the page is in each of its states."""
    found: dict[str, dict[str, float]] = {}

    def look(name: str) -> None:
        page.wait_for_timeout(1000 * SETTLE_S)
        found[name] = watched.look(seconds)
        print(
            f"  {name}: {found[name]['cpu_percent']:.1f} % busy, longest task "
            f"{found[name]['longest_task_ms']:.0f} ms",
            flush=True,
        )

    look("sidebar")
    page.locator("#mgpu-queue [data-job]").nth(3).hover()
    look("sidebar, pointer in the queue")
    page.mouse.move(800, 500)
    do(page, "mgpu:open-job", id=job)
    expect(page.locator("[data-job-view]:visible")).to_be_visible()
    look("sidebar and a job")
    do(page, "mgpu:open-dashboard")
    expect(page.locator(".mgp-dashboard:visible .mgp-column").first).to_be_visible()
    look("sidebar and dashboard")
    do(page, "application:toggle-left-area")
    expect(page.locator("#mgpu-cluster")).to_be_hidden()
    do(page, "launcher:create")
    look("nothing of mgpu in sight but the status bar")
    do(page, "mgpu:show-panel")
    return found


def sizes(
    page: Page, frames: Frames, readings: Readings, seconds: float, gpus: int
) -> dict[str, dict[str, float]]:
    """Return how many bytes come for so many changed GPUs."""
    found: dict[str, dict[str, float]] = {}
    for changed in (*(one for one in CHANGED if one < gpus), gpus):
        readings.moving = changed
        page.wait_for_timeout(1000 * SETTLE_S)
        frames.clear()
        page.wait_for_timeout(1000 * seconds)
        found[str(changed)] = {
            "frames_per_s": len(frames.of("samples")) / seconds,
            "bytes_per_s": sum(map(len, frames.of("samples"))) / seconds,
            "gpus_per_s": sum(map(told, frames.of("samples"))) / seconds,
        }
    readings.moving = gpus
    return found


def told(frame: str) -> int:
    """Return how many GPUs a frame tells of."""
    return sum(len(node.get("gpus", {})) for node in json.loads(frame)["nodes"].values())


def memory(page: Page, watched: Watched, minutes: float) -> list[dict[str, float]]:
    """Return what the page holds after a collection, every so often."""
    begun, series = time.monotonic(), []
    while (at := time.monotonic() - begun) < 60 * minutes or len(series) < 4:
        series.append({"at_s": round(at, 1)} | watched.held())
        page.wait_for_timeout(min(30_000.0, 60_000 * minutes / 8))
    return series


def growth(series: list[dict[str, float]], what: str) -> float:
    """Return the last third's mean by that of the first third after the warm-up."""
    warm = [one[what] for one in series if one["at_s"] >= min(WARM_UP_S, series[-1]["at_s"] / 4)]
    third = max(1, len(warm) // 3)
    return statistics.mean(warm[-third:]) / statistics.mean(warm[:third])


def problems(result: dict[str, Any]) -> list[str]:
    """Return which limits were not met."""
    said = [
        f"{name}: the main thread {does} {scene[what]:.1f} % of the time, more than {MAX_BUSY_PERCENT:.0f} %"
        for name, scene in result["scenes"].items()
        for what, does in (("cpu_percent", "computes"), ("tasks_percent", "has tasks"))
        if scene[what] >= MAX_BUSY_PERCENT
    ]
    for name, scrolled in result["scrolling"].items():
        if scrolled["cpu_ms"] > MAX_FRAME_MS:
            said.append(f"scrolling the {name}: a frame takes {scrolled['cpu_ms']:.1f} ms of the main thread")
        if scrolled["rows_in_page"] > 60:
            said.append(f"scrolling the {name}: {scrolled['rows_in_page']} rows are in the page")
    for what in ("heap_mb", "nodes", "listeners"):
        grown = growth(result["memory"], what)
        said += [f"{what} grew to {grown:.2f} times"] if grown > MAX_GROWTH else []
    for changed, size in result["bytes"].items():
        if (
            size["bytes_per_s"] > MAX_BYTES_PER_GPU * size["gpus_per_s"] + 40 * size["frames_per_s"]
            or size["frames_per_s"] > 1.5
        ):
            said.append(f"{changed} GPUs that changed: {size}")
    return said


def show(result: dict[str, Any]) -> None:
    """Print the tables."""
    print(f"\n{'':48}{'busy':>8}{'tasks':>8}{'script':>8}{'layout':>8}{'longest':>9}{'nodes':>8}")
    for name, one in result["scenes"].items():
        print(
            f"{name:48}{one['cpu_percent']:7.1f}%{one['tasks_percent']:7.1f}%{one['script_percent']:7.1f}%{one['layout_percent']:7.1f}%"
            f"{one['longest_task_ms']:6.0f} ms{one['nodes']:8.0f}"
        )
    for name, one in result["scrolling"].items():
        times = (
            f"median {one['median_ms']:.1f} ms, p95 {one['p95_ms']:.1f} ms, longest "
            f"{one['longest_ms']:.0f} ms"
        )
        print(
            f"scrolling the {name}: {one['frames']} frames of {one['cpu_ms']:.1f} ms; between them {times}; "
            f"{one['rows_in_page']} rows"
        )
    for changed, one in result["bytes"].items():
        print(
            f"{changed:>4} GPUs change: {one['bytes_per_s']:.0f} bytes a second in "
            f"{one['frames_per_s']:.1f} frames"
        )
    first, last = result["memory"][0], result["memory"][-1]
    print(
        f"memory over {last['at_s']:.0f} s: {first['heap_mb']:.1f} to {last['heap_mb']:.1f} MB of heap, "
        f"{first['nodes']:.0f} to "
        f"{last['nodes']:.0f} DOM nodes; growth {growth(result['memory'], 'heap_mb'):.3f}"
    )


def measure(lab: Lab, nodes: int, jobs: int, seconds: float, minutes: float) -> dict[str, Any]:
    """Return all figures."""
    readings = Readings(7, nodes * GPUS)
    with filled(lab, readings, nodes, jobs) as job, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=[*ARGUMENTS, "--enable-precise-memory-info"]
        )
        context = browser.new_context(viewport=SIZE, locale="en-GB")
        opened = lab.open(context)
        page = opened.page
        frames, watched = Frames(page), Watched(page)
        page.reload()
        page.wait_for_function("() => window.jupyterapp && document.querySelector('.jp-Launcher')")
        open_page(lab, page, jobs)
        result: dict[str, Any] = {
            "nodes": nodes,
            "gpus": nodes * GPUS,
            "jobs": jobs,
            "seconds": seconds,
            "minutes": minutes,
        }
        result["load"] = os.getloadavg()[0]
        with moving(lab):
            result["scenes"] = scenes(page, watched, job, seconds)
            result["scrolling"] = {name: watched.scroll(f"#mgpu-{name}") for name in ("queue", "cluster")}
            do(page, "mgpu:open-dashboard")
            result["memory"] = memory(page, watched, minutes)
        result["bytes"] = sizes(page, frames, readings, min(10.0, seconds), nodes * GPUS)
        browser.close()
    return result


def main() -> int:
    """Measure, print and write; return the exit code."""
    parser = argparse.ArgumentParser(prog="make bench-ui", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--jobs", type=int, default=5_000)
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="how long each state of the page is watched"
    )
    parser.add_argument(
        "--minutes", type=float, default=2.0, help="how long memory is watched; 10 is the full form"
    )
    parser.add_argument("--out", type=Path, default=Path("bench-ui.json"))
    options = parser.parse_args()
    if CHROMIUM is None:
        print("There is no Chromium: install your system's chromium package.", file=sys.stderr)
        return 1
    end_on_signals()
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mgpu-bench-ui-") as directory,
            Lab(Path(directory) / "cluster", simulate="") as lab,
        ):
            lab.settings |= QUIET
            lab.start_lab("--MgpuApp.local_agent=False", "--MgpuApp.heartbeat_interval=1")
            result = measure(lab, options.nodes, options.jobs, options.seconds, options.minutes)
    except StopRequested as error:
        print(f"Stopped by {error}.", file=sys.stderr)
        return 1
    show(result)
    result["problems"] = problems(result)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print("\n".join([f"Written to {options.out}.", *result["problems"]]))
    return 1 if result["problems"] else 0


if __name__ == "__main__":
    sys.exit(main())
