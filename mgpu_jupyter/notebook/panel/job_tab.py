"""The tab Job: one job with its timeline, the end of its log, and how it uses its GPUs. Reads nothing while
it is hidden.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import ipywidgets as widgets

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import frames, models
from mgpu_jupyter.client.job import Job, rank_count
from mgpu_jupyter.client.queue_rows import UNDER_WAY, title
from mgpu_jupyter.notebook.panel.job_views import (
    GpuLine,
    Log,
    count_text,
    efficiency_html,
    head_html,
    log_html,
    plots_html,
    timeline_html,
)
from mgpu_jupyter.notebook.panel.log_reader import LogReader
from mgpu_jupyter.notebook.panel.marks import mean
from mgpu_jupyter.notebook.panel.parts import Choice, Host, Kit, has_class, show_if
from mgpu_jupyter.notebook.panel.seen import Seen
from mgpu_jupyter.notebook.panel.track import Track

MAX_CHIPS = 16
OFFERED = 30
DRAW_LOG_S = 0.2
PERCENT = 100.0


class JobTab:
    """A chooser, the head, the timeline, the log and the column beside it."""

    def __init__(self, host: Host, job_id: str = "") -> None:
        self._host = host
        self._id = job_id
        self._job: models.Job | None = None
        self._usage: Any = None
        self._track: Track[tuple[str, int]] = Track(None)
        self._log, self._note = Log(), ""
        self._reader: LogReader | None = None
        self._rank: int | None = None
        self._is_shown = False
        self._problem = ""
        kit, post = Kit(), host.loop.post
        self.chooser = widgets.Dropdown(
            options=[("choose a job", "")], value="", layout=widgets.Layout(width="220px")
        )
        self.chooser.tooltip = "The job that is shown"
        self._chooser = Choice(self.chooser, self._chosen)
        self.head = kit.section()
        self.again = kit.button("Run again", lambda: post(self._run_again))
        self.cancel = kit.button("Cancel", lambda: post(self._ask_cancel))
        self.sure = kit.button("Cancel it now", lambda: post(self._cancel), "mgpu-hide")
        self.way = kit.section()
        self.chips = widgets.ToggleButtons(options=[("All", -1)], value=-1, style={"button_width": "auto"})
        self.chips.add_class("mgpu-chips")
        self._chips = Choice(self.chips, lambda rank: post(partial(self._set_rank, rank)))
        self.count = kit.section()
        self.lines = kit.section()
        self.efficiency, self.plots = kit.section(), kit.section()
        log = kit.column(
            kit.row(self.chips, kit.spacer(), self.count.widget, classes=("mgpu-top",)),
            self.lines.widget,
            classes=("mgpu-log",),
        )
        rail = kit.column(self.efficiency.widget, self.plots.widget, classes=("mgpu-rail",))
        self.body = kit.column(self.way.widget, kit.row(log, rail, classes=("mgpu-split",)))
        top = kit.row(
            self.head.widget, kit.spacer(), self.again, self.cancel, self.sure, classes=("mgpu-top",)
        )
        self.box = kit.column(self.chooser, top, self.body)

    @property
    def job_id(self) -> str:
        """The job that is shown."""
        return self._id

    def shown(self) -> None:
        """Begin to read."""
        self._is_shown = True
        if self._id:
            self._open(self._id)

    def hidden(self) -> None:
        """Stop reading; everything is read again when the tab is shown again."""
        self._is_shown = False
        if self._reader is not None:
            self._reader.stop()
            self._reader = None

    def open(self, job_id: str) -> None:
        """Show a job."""
        self._id = job_id
        if self._is_shown:
            self._open(job_id)

    def draw(self, seen: Seen) -> None:
        """Show what changed."""
        self._offer_jobs(seen)
        before, job = self._job, self._newest(seen)
        show_if(self.body, job is not None)
        show_if(self.again, job is not None and job.state.is_final and seen.may_change(job))
        show_if(self.cancel, job is not None and not job.state.is_final and seen.may_change(job))
        if job is None:
            told = self._problem or (
                "" if self._id else "Choose one of your jobs, or open one in the tab Queue."
            )
            self.head.show(f'<span class="quiet">{told}</span>')
            return
        self._job = job
        if before is not None and (before.state, before.attempt) != (job.state, job.attempt):
            self._host.loop.post(self._read_usage)
            if before.attempt not in (0, job.attempt):
                self._host.loop.post(partial(self._open, job.id))
        self.head.show(head_html(seen, job))
        self.way.show(timeline_html(job, seen.now))
        self._draw_chips(job)
        self._draw_log()
        self._draw_use(seen, job)

    def _newest(self, seen: Seen) -> models.Job | None:
        return seen.jobs.get(JobId(self._id), self._job) if self._id else None

    def _offer_jobs(self, seen: Seen) -> None:
        jobs = [job for job in seen.jobs.values() if seen.is_mine(job)]
        jobs.sort(key=lambda job: (job.state.is_final, job.state not in UNDER_WAY, -job.submitted_at))
        options = [
            ("choose a job", ""),
            *((f"{title(job)[:24]} · {job.id}", str(job.id)) for job in jobs[:OFFERED]),
        ]
        if self._id and self._id not in [value for _, value in options]:
            options.append((f"{title(self._job)[:24] if self._job else 'job'} · {self._id}", self._id))
        self._chooser.offer(options, self._id)

    def _draw_chips(self, job: models.Job) -> None:
        ranks = min(rank_count(job), MAX_CHIPS)
        options = [("All", -1), *((str(rank), rank) for rank in range(ranks))] if ranks > 1 else [("All", -1)]
        self._chips.offer(options, -1 if self._rank is None or self._rank >= ranks else self._rank)

    def _draw_log(self) -> None:
        self.lines.show(log_html(self._log, self._rank, self._note))
        self.count.show(f'<span class="quiet n">{count_text(self._log, self._rank)}</span>')

    def _draw_use(self, seen: Seen, job: models.Job) -> None:
        if job.state in UNDER_WAY:
            for placement in job.placements:
                for gpu in seen.gpus(NodeId(placement.node)):
                    if gpu.job_id == job.id:
                        self._track.add((str(placement.node), gpu.index), seen.now, gpu.utilisation_percent)
        usage = self._usage
        told = {} if usage is None else {(str(gpu.node), gpu.index): gpu for gpu in usage.gpus}
        lines = []
        for key in sorted({*self._track.lines, *told}):
            node, index = key
            times, busy = self._track.lines.get(key, ([], []))
            was = told.get(key)
            average = was.busy_mean if was is not None and job.state.is_final else mean(busy)
            lines.append(GpuLine(f"{node}:{index}", was.rank if was else None, times, busy, average))
        used = usage.used if usage is not None and job.state.is_final else None
        if used is None and lines and any(line.mean is not None for line in lines):
            used = sum(line.mean or 0.0 for line in lines) / PERCENT
        hint, message = ("", "") if usage is None else (usage.hint, usage.message)
        self.efficiency.show(efficiency_html(job.gpus, used, hint, message))
        since = min((line.times[0] for line in lines if line.times), default=job.started_at or seen.now)
        step = 2.0 if usage is None else usage.step_s
        self.plots.show(plots_html(lines, since, job.ended_at or seen.now, step, mine=seen.is_mine(job)))

    # --- reading --------------------------------------------------------------------------------------

    def _open(self, job_id: str) -> None:
        if self._reader is not None:
            self._reader.stop()
            self._reader = None
        self._log, self._note, self._problem = Log(), "", ""
        self._track.clear()
        self._usage = None
        if self._job is None or self._job.id != job_id:
            self._job, self._rank = None, None
        try:
            self._job = self._host.seen.jobs.get(JobId(job_id)) or self._host.client.job(job_id).info
        except MgpuError as error:
            self._problem = error.message
            self._host.draw()
            return
        log = self._log
        self._reader = LogReader(
            self._host.client,
            self._job,
            on_start=lambda whole: setattr(log, "whole", whole),
            on_output=partial(self._heard, log),
            on_end=partial(self._ended, log),
        )
        self._read_usage()
        self._host.draw()

    def _read_usage(self) -> None:
        if self._job is None:
            return
        try:
            self._usage = Job(self._host.client.caller, self._job.id).usage()
        except MgpuError:
            return
        self._track.clear()
        for gpu in self._usage.gpus:
            for at, busy in zip(self._usage.times, gpu.busy, strict=False):
                self._track.add((str(gpu.node), gpu.index), at, busy)
        self._host.draw()

    def _heard(self, log: Log, frame: frames.OutputFrame) -> None:
        # On the reader's thread: pass it on, and draw at most five times a second.
        def take() -> None:
            log.feed(frame.rank, frame.stream, frame.data)
            self._host.loop.soon(DRAW_LOG_S, "log", self._host.draw)

        self._host.loop.post(take)

    def _ended(self, log: Log, told: str) -> None:
        def take() -> None:
            if log is self._log:
                self._note = told
                self._host.draw()

        self._host.loop.post(take)

    # --- actions of the user -------------------------------------------------------------------------

    def _chosen(self, job_id: str | None) -> None:
        if job_id:
            self._host.loop.post(partial(self.open, job_id))

    def _set_rank(self, rank: int | None) -> None:
        self._rank = None if rank is None or rank < 0 else rank
        self._draw_log()

    def _run_again(self) -> None:
        if self._job is None:
            return
        try:
            again = self._host.client.rerun(self._job.id)
        except MgpuError as error:
            self._host.say(error.message)
        else:
            self._host.say(f"Runs again as {again.id}.")
            self.open(again.id)

    def _ask_cancel(self) -> None:
        show_if(self.sure, has_class(self.sure, "mgpu-hide"))

    def _cancel(self) -> None:
        show_if(self.sure, visible=False)
        if self._job is None:
            return
        try:
            Job(self._host.client.caller, self._job.id).cancel()
        except MgpuError as error:
            self._host.say(error.message)
        else:
            self._host.say(f"{title(self._job)} is being cancelled.")
