"""What a page costs, seen from outside through Chromium's own counters: main thread, memory, frames of
sockets, frames while scrolling.

Also the readings that are fed to it. Knows nothing of what the page shows, and sets no limits.
"""

from __future__ import annotations

import json
import random
import statistics
from typing import Any

from msgspec.structs import replace
from playwright.sync_api import Page

from mgpu_agent.protocol.messages import Heartbeat
from tests.bench.live import reading
from tests.chaos.light import LightAgent

_LONG_TASKS = """
() => {
  window.__longest = 0;
  new PerformanceObserver(list => {
    for (const entry of list.getEntries()) window.__longest = Math.max(window.__longest, entry.duration);
  }).observe({ type: 'longtask' });
}
"""
_SCROLL = """
async ([selector, seconds]) => {
  const section = document.querySelector(selector);
  const intervals = [];
  let rows = 0, last = performance.now(), step = 40;
  const end = last + seconds * 1000;
  await new Promise(done => {
    const frame = now => {
      intervals.push(now - last);
      last = now;
      const before = section.scrollTop;
      section.scrollTop += step;
      if (section.scrollTop === before) step = -step;
      rows = Math.max(rows, section.querySelectorAll('[role=row]').length);
      now < end ? requestAnimationFrame(frame) : done();
    };
    requestAnimationFrame(frame);
  });
  return [intervals.slice(1), rows];
}
"""


class Readings:
    """Gives heartbeats their readings: `moving` GPUs of the first nodes have new ones each time, the others
    stay as they were.
    """

    def __init__(self, seed: int, moving: int) -> None:
        self.moving = moving
        self._draw = random.Random(seed)
        self._load: dict[str, float] = {}

    def __call__(self, agent: LightAgent, beat: Heartbeat) -> Heartbeat:
        """Add readings to a heartbeat."""
        before = int(agent.id.rsplit("-", 1)[1]) * len(agent.facts.gpus)
        samples = []
        for number, gpu in enumerate(agent.facts.gpus, before):
            load = self._load.setdefault(gpu.uuid, self._draw.uniform(5, 95))
            if number < self.moving:
                load += self._draw.choice((-7, -5, -3, 3, 5, 7))
                self._load[gpu.uuid] = load = load if 0 <= load <= 100 else 50.0
            samples.append(reading(gpu, load))
        return replace(beat, samples=tuple(samples), cpu_percent=50.0, memory_available_bytes=1 << 37)


class Frames:
    """The frames that the events of the cluster send to a page, kept as text."""

    def __init__(self, page: Page) -> None:
        self.sockets = 0
        self._frames: list[str] = []
        page.on(
            "websocket", lambda socket: self._watch(socket) if "/mgpu/api/v1/events" in socket.url else None
        )

    def _watch(self, socket: Any) -> None:
        self.sockets += 1
        socket.on("framereceived", lambda payload: self._frames.append(str(payload)))

    def clear(self) -> None:
        """Forget what came so far."""
        self._frames.clear()

    def of(self, kind: str) -> list[str]:
        """Return the frames of one kind."""
        return [frame for frame in self._frames if json.loads(frame)["type"] == kind]


class Watched:
    """A page's own counters."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self._session = page.context.new_cdp_session(page)
        self._session.send("Performance.enable")

    def _metrics(self) -> dict[str, float]:
        return {one["name"]: one["value"] for one in self._session.send("Performance.getMetrics")["metrics"]}

    def look(self, seconds: float) -> dict[str, float]:
        """Return what share of the time the main thread was busy, and with what."""
        self._page.evaluate(_LONG_TASKS)
        before = self._metrics()
        self._page.wait_for_timeout(1000 * seconds)
        after = self._metrics()
        spent = {name: after[name] - before[name] for name in after}

        def share(*names: str) -> float:
            return 100 * sum(spent[name] for name in names) / spent["Timestamp"]

        return {
            "tasks_percent": share("TaskDuration"),
            "script_percent": share("ScriptDuration"),
            "layout_percent": share("LayoutDuration", "RecalcStyleDuration"),
            "cpu_percent": share("ThreadTime"),
            "longest_task_ms": self._page.evaluate("() => window.__longest"),
            "nodes": after["Nodes"],
        }

    def held(self) -> dict[str, float]:
        """Return what the page holds after a collection."""
        self._session.send("HeapProfiler.collectGarbage")
        metrics = self._metrics()
        return {
            "heap_mb": metrics["JSHeapUsedSize"] / 1e6,
            "nodes": metrics["Nodes"],
            "listeners": metrics["JSEventListeners"],
        }

    def scroll(self, selector: str, seconds: float = 4.0) -> dict[str, float]:
        """Scroll a section through and back; return times between frames, processor time for each, and how
        many rows there were.
        """
        before = self._metrics()["ThreadTime"]
        intervals, rows = self._page.evaluate(_SCROLL, [selector, seconds])
        return {
            "frames": len(intervals),
            "cpu_ms": 1000 * (self._metrics()["ThreadTime"] - before) / len(intervals),
            "median_ms": statistics.median(intervals),
            "p95_ms": statistics.quantiles(intervals, n=20)[-1],
            "longest_ms": max(intervals),
            "rows_in_page": rows,
        }
