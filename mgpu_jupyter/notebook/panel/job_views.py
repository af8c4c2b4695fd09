"""The views of the tab Job: header, timeline, log by rank, efficiency and a plot for each GPU. Pure."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Sequence

import msgspec

from mgpu_jupyter.api import models
from mgpu_jupyter.client.lines import Decoder
from mgpu_jupyter.client.queue_rows import UNDER_WAY, is_held, title
from mgpu_jupyter.client.words import (
    duration,
    ending,
    gpu_count,
    lowered,
    moment,
    names,
    numbers,
    ordinal,
    span,
)
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.marks import esc, glyph, plot
from mgpu_jupyter.notebook.panel.seen import Seen

KEPT_LINES = 400
SHOWN_LINES = 200
LINE_CHARS = 2_000
_FLAG = re.compile(r"--[a-z-]+ \d+")
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")


def head_html(seen: Seen, job: models.Job) -> str:
    """Return the job on one line: glyph, name, id, state."""
    tone = (
        "mine"
        if job.state in UNDER_WAY and seen.is_mine(job)
        else "bad"
        if job.state is JobState.FAILED
        else ""
    )
    kind = "held" if is_held(job) else job.state.value
    return (
        f"{glyph(kind, tone)} <b>{esc(title(job)[:60])}</b> &nbsp;<span class='quiet "
        f"mono'>{esc(job.id)}</span> &nbsp;"
        f'<span class="quiet">{esc(state_line(seen, job))}</span>'
    )


def state_line(seen: Seen, job: models.Job) -> str:
    """Return the state in words."""
    if job.state is JobState.QUEUED:
        told = seen.view.waiting(job.id)
        place = told.place if told is not None else job.place
        reason = (told.reason if told is not None else "") or job.reason
        return ", ".join(
            part for part in (f"{ordinal(place)} in queue" if place else "waits", lowered(reason)) if part
        )
    if job.state is JobState.COMPLETED:
        ran = duration((job.ended_at or 0.0) - (job.started_at or job.ended_at or 0.0))
        return (
            f"completed, exit {job.exit_code or 0}, {names(sorted(set(job.nodes)))}, "
            f"{gpu_count(job.gpus)}, {ran}"
        )
    if job.state.is_final:
        return lowered(ending(job, by_you=False))
    since = f", {span(seen.now - job.started_at)}" if job.started_at else ""
    return f"{job.state}, {names(sorted(set(job.nodes)))}, {gpu_count(job.gpus)}{since}"


def timeline_html(job: models.Job, now: float) -> str:
    """Return queued, starting, running and the rest of the time limit, each as wide as it took; short ones
    keep a minimum width.
    """
    ups = [placement.started_at for placement in job.placements if placement.started_at is not None]
    end = job.ended_at or now
    placed = job.started_at if job.started_at is not None else end
    up = min(max(*ups, placed), end) if ups else (end if job.state is JobState.STARTING else placed)
    parts = [("qu", "queued", placed - job.submitted_at)]
    if job.started_at is not None:
        if up - placed >= 0.05:
            parts.append(("st", "starting", up - placed))
        if job.state is not JobState.STARTING:
            parts.append(
                (
                    "live" if not job.state.is_final else "ru",
                    "running" if not job.state.is_final else "ran",
                    end - up,
                )
            )
    if job.time_limit_s and job.started_at is not None and not job.state.is_final:
        parts.append(("le", "left", max(job.started_at + job.time_limit_s - now, 0.0)))
    total = sum(max(seconds, 0.0) for _, _, seconds in parts) or 1.0
    last = (
        time.strftime("%H:%M:%S", time.localtime(job.ended_at))
        if job.ended_at
        else f"since {moment(job.submitted_at, now)}"
    )
    pieces = [
        # Each part is as wide as its time, and never narrower than its text.
        f'<div style="flex:{max(seconds, 0.0) / total + 0.02:.3f} 0 auto"><i class="{kind}"></i>'
        f'<span class="n">{word} {duration(max(seconds, 0.0))}</span></div>'
        for kind, word, seconds in parts
    ]
    summary = ", ".join(f"{word} {duration(max(seconds, 0.0))}" for _, word, seconds in parts)
    return (
        f'<div class="mgpu-way quiet" role="img" aria-label="{esc(summary)}">{"".join(pieces)}'
        f'<span class="n end">{last}</span></div>'
    )


class Line(msgspec.Struct):
    """A line, and the consecutive ranks that printed it."""

    text: str
    ranks: list[int]


class Log:
    """The last lines of a job as people see them: without colours and overwritten progress; equal lines of
    ranks are one.
    """

    def __init__(self, *, whole: bool = True) -> None:
        self.whole = whole
        """Whether it was read from its first byte, so that its lines can be counted."""
        self.count = 0
        self.lines: deque[Line] = deque(maxlen=KEPT_LINES)
        self._decoder = Decoder()
        self._open: dict[tuple[int, str], str] = {}

    def feed(self, rank: int, stream: str, data: bytes) -> None:
        """Add output of a rank."""
        text = self._open.pop((rank, stream), "") + self._decoder.feed((rank, stream), data)
        *done, rest = text.split("\n")
        for line in done:
            self._add(rank, line)
        if rest:
            self._open[(rank, stream)] = rest[-LINE_CHARS * 8 :]

    def _add(self, rank: int, raw: str) -> None:
        line = plain(raw)
        self.count += 1
        if self.lines and self.lines[-1].text == line and rank not in self.lines[-1].ranks:
            self.lines[-1].ranks.append(rank)
        else:
            self.lines.append(Line(line, [rank]))

    def shown(self, rank: int | None) -> list[Line]:
        """Return the last lines, of all ranks or of one, including unfinished ones."""
        open_lines = [Line(plain(text), [of]) for (of, _), text in self._open.items()]
        found = [line for line in (*self.lines, *open_lines) if rank is None or rank in line.ranks]
        return found[-SHOWN_LINES:]


def plain(raw: str) -> str:
    """Return a line in its final form: the last state of a progress bar, no escapes, limited length."""
    text = _ESCAPES.sub("", raw).rstrip("\r").rpartition("\r")[2]
    return text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}…"


def log_html(log: Log, rank: int | None, note: str = "") -> str:
    """Return the lines; the newest stay in view unless the user scrolled up."""
    shown = log.shown(rank)
    if not shown:
        return (
            f'<div class="mgpu-lines quiet" role="log" aria-live="off" '
            f'aria-label="Log">{esc(note or "No output yet.")}</div>'
        )
    rows = "".join(f"<tr><td>{ranks_text(line.ranks)}</td><td>{esc(line.text)}</td></tr>" for line in shown)
    said = f'<div class="quiet">{esc(note)}</div>' if note else ""
    return (
        f'<div class="mgpu-lines" role="log" aria-live="off" aria-label="Log" '
        f'tabindex="0"><table><tbody>{rows}</tbody></table></div>{said}'
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Return `0`, or `0–3` for ranks that printed the same."""
    return numbers(sorted(ranks)).replace("-", "–")


def count_text(log: Log, rank: int | None) -> str:
    """Return `last 8 of 214 lines`."""
    shown = len(log.shown(rank))
    return f"last {shown} of {log.count:,} lines" if log.whole and rank is None else f"last {shown} lines"


class GpuLine(msgspec.Struct, frozen=True):
    """One GPU of a job and how busy it was."""

    name: str
    rank: int | None
    times: Sequence[float]
    busy: Sequence[float | None]
    mean: float | None
    idle: bool = False


def _as_code(found: re.Match[str]) -> str:
    return f"<code>{found[0]}</code>"


def efficiency_html(asked: int, used: float | None, hint: str, message: str) -> str:
    """Return what was asked for and what was used of it."""
    if not asked:
        return '<p class="quiet">It asked for no GPU.</p>'
    told = "not known yet" if used is None else f"{used:.1f}"
    said = "".join(
        f'<p class="quiet">{_FLAG.sub(_as_code, esc(text))}</p>' for text in (hint, message) if text
    )
    return f'<div class="big">asked <b>{asked}</b>, used <b>{told}</b></div>{said}'


def plots_html(gpus: Sequence[GpuLine], since: float, until: float, step_s: float, *, mine: bool) -> str:
    """Return a plot for each GPU; the busiest stands out."""
    top = max((gpu.mean for gpu in gpus if gpu.mean is not None), default=None)
    return "".join(
        f'<div class="mgpu-gp n"><span>{esc(gpu.name)}</span>'
        + plot(
            gpu.times,
            gpu.busy,
            span=(since, max(until, since + 1.0)),
            label=f"{gpu.name} busy, mean {'not known' if gpu.mean is None else f'{gpu.mean:.0f} percent'}",
            mine=mine,
            step_s=step_s,
        )
        + f'<span class="right{" top" if gpu.mean is not None and gpu.mean == top else ""}">'
        + f"{'' if gpu.mean is None else f'{gpu.mean:.0f} %'}</span></div>"
        for gpu in gpus
    )
