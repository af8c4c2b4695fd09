"""The header of a job above its output, as HTML and as one line of text: waiting, starting, running, stopping, over. Pure.

All that users wrote is hostile text and is escaped. Colours come from the theme (`--jp-*`), with fallbacks for front ends without.
How a header gets on the screen is in `screen.py`; the style sheet is `style.py`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import msgspec

from mgpu_agent.protocol.text import as_html, printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.reasons import where
from mgpu_jupyter.client.words import (
    GB,
    duration,
    ending,
    first_to_fail,
    gpu_count,
    numbers,
    ordinal,
    ran_for,
)
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import actions
from mgpu_jupyter.notebook.style import GLYPHS, STYLE, chart

SHOWN_CHIPS = 16
SHOWN_NODES = 3
SHOWN_OFFERS = 2
NAME_CHARS = 40
STEP_WORDS = {
    "": "",
    "asked": "being asked",
    "ready": "ready",
    "meeting": "checking the connection between nodes",
    "launching": "launching",
    "started": "started",
}
STEPS = tuple(STEP_WORDS)


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a job that waits, newer than the job itself."""

    place: int | None = None
    of: int | None = None
    reason: str = ""
    expected_at: float | None = None


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What the GPUs of a job did lately, oldest first: the mean over them, in percent, and bytes in use on each."""

    busy: tuple[float | None, ...] = ()
    memory: tuple[float | None, ...] = ()
    memory_total: int = 0
    """Of one GPU."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that a header shows."""

    job: models.Job
    now: float
    waits: Waits = Waits()
    load: Load = Load()
    offers: tuple[Offer, ...] = ()
    widgets: int = 0
    """So many buttons of the kernel's own lie over it where there is no extension; without any, words say what Stop does."""
    stop: str = "Stop cancels"
    explained: tuple[str, ...] = ()
    """Why it waits, at length; somebody asked."""
    cancelling: bool = False
    last_lines: tuple[str, ...] = ()
    other_lines: tuple[tuple[int, tuple[str, ...]], ...] = ()
    """The last lines of the other ranks of a job that failed."""
    run_again: str = ""
    """The command that runs it once more."""
    hint: str = ""
    trouble: str = ""
    """No connection, in words."""


# --- one line of text ---------------------------------------------------------------------------------


def text_of(facts: Facts) -> str:
    """Return the header as one line."""
    job = facts.job
    match job.state:
        case JobState.QUEUED:
            waits = facts.waits
            place = f", {_place(waits)}" if waits.place else ""
            start = f", starts about {clock(waits.expected_at)}" if waits.expected_at is not None else ""
            text = f"waiting{place}{start}{': ' + _small(waits.reason) if waits.reason else ''}"
        case JobState.STARTING:
            text = f"starting on {readiness(job)}" if job.nodes else "starting"
        case JobState.RUNNING | JobState.STOPPING:
            name = "stopping" if facts.cancelling else job.state.value
            text = f"{name} on {places(job)}" if job.nodes else name
            text += f"; {_kill(job.kill_at)}" if job.kill_at is not None else ""
        case _:
            return printable(f"{ending(job)} · {job.id}")
    return printable(f"mgpu {job.id} {text}")


def _place(waits: Waits) -> str:
    assert waits.place is not None
    return f"{ordinal(waits.place)} of {waits.of}" if waits.of else f"{ordinal(waits.place)} in queue"


def _small(reason: str) -> str:
    """Return a sentence as the end of another."""
    text = reason.strip().rstrip(".")
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text


def places(job: models.Job) -> str:
    """Return nodes with how many GPUs each gives: `gpu-01 ×4, gpu-02 ×4`."""
    told = list(_given(job).values())
    return ", ".join(told) if len(told) <= SHOWN_NODES + 1 else f"{', '.join(told[:SHOWN_NODES])} and {len(told) - SHOWN_NODES} more"


def _given(job: models.Job) -> dict[str, str]:
    """Return what each node gives, by node."""
    counts: dict[str, int] = dict.fromkeys(job.nodes, 0)
    for placement in job.placements:
        if placement.local_rank == 0:
            counts[placement.node] = counts.get(placement.node, 0) + len(placement.gpus)
    return {node: f"{node} ×{count}" if count else node for node, count in counts.items()}


def readiness(job: models.Job) -> str:
    """Return how far each node is with the start: `gpu-03 ×4 ready, gpu-04 ×4 checking the connection between nodes`."""
    step_of: dict[str, str] = {}
    for one in job.placements:
        before = step_of.get(one.node)
        step_of[one.node] = one.step if before is None else min(before, one.step, key=STEPS.index)
    given = _given(job)
    nodes_at: dict[str, list[str]] = {}
    for node, told in given.items():
        nodes_at.setdefault(STEP_WORDS[step_of.get(node, "")], []).append(told)
    if set(nodes_at) <= {""}:
        return places(job)
    if len(given) > SHOWN_NODES + 1:
        return ", ".join(f"{len(nodes)} node{'' if len(nodes) == 1 else 's'} {word}" for word, nodes in nodes_at.items())
    return ", ".join(f"{', '.join(nodes)} {word}".rstrip() for word, nodes in nodes_at.items())


def clock(at: float) -> str:
    """Return a time of day, with the date when it is another day."""
    moment, today = time.localtime(at), time.localtime()
    return time.strftime("%H:%M" if moment[:3] == today[:3] else "%d %b %H:%M", moment)


# --- HTML -----------------------------------------------------------------------------------------------


def html_of(facts: Facts) -> str:
    """Return the header as HTML; nothing for a job that completed, whose one quiet line comes after its output."""
    match facts.job.state:
        case JobState.QUEUED:
            return _card("waiting", facts, _waiting(facts))
        case JobState.STARTING:
            return _card("starting", facts, _starting(facts))
        case JobState.RUNNING if not facts.cancelling:
            return _card("running", facts, _running(facts))
        case JobState.RUNNING | JobState.STOPPING:
            return _card("stopping", facts, _stopping(facts))
        case JobState.COMPLETED:
            return ""
        case _:
            return _card("over", facts, _over(facts))


def done_html(job: models.Job, more: Sequence[str] = ()) -> str:
    """Return the one quiet line of a job that completed."""
    gpus = gpu_count(job.gpus, simulated=any(placement.simulated for placement in job.placements))
    on = f" on {_escaped(_names(job))}" if job.nodes else ""
    first = f"Done in <b>{duration(ran_for(job))}</b>{on}, {gpus}, exit {job.exit_code or 0}"
    named = actions.link(job, _escaped(shortened(job.name) or job.id))
    known_by = f'<span class="mgpu-id mgpu-not-lab"><i>·</i>{_escaped(job.id)}</span>' if job.name else ""
    parts = [first, *(_escaped(text) for text in more), named + known_by]
    return f'{STYLE}<div class="mgpu-done">{GLYPHS["completed"]} {"<i>·</i>".join(parts)}</div>'


def _card(kind: str, facts: Facts, body: str) -> str:
    trouble = f'<div class="mgpu-line">{_escaped(facts.trouble)}</div>' if facts.trouble else ""
    label = _escaped(text_of(facts))
    return f'{STYLE}<div class="mgpu-wide"><div class="mgpu-head mgpu-{kind}" role="group" aria-label="{label}">{body}{trouble}</div></div>'


def _row(glyph: str, word: str, facts: Facts, about: str, right: str) -> str:
    job = facts.job
    name = f'<span class="mgpu-name">{_escaped(shortened(job.name))}</span>' if job.name else ""
    return (
        f'<div class="mgpu-row">{GLYPHS[glyph]}<b class="mgpu-word">{word}</b>{name}<span class="mgpu-id">{_escaped(job.id)}</span>'
        f'<span class="mgpu-about mgpu-q">{about}</span><span class="mgpu-right">{right}</span>{_room(facts)}</div>'
    )


def _room(facts: Facts) -> str:
    """Return the room for the buttons that lie over the header; those of a job that is over are part of it."""
    if facts.job.state.is_final:
        return actions.over(facts.job, facts.run_again)
    commands = len(actions.live(facts.job, cancelling=facts.cancelling))
    stop = f'<span class="mgpu-q">{facts.stop}</span>' if facts.stop else ""
    kernels = f'<span class="mgpu-room mgpu-room-{facts.widgets}"></span>' if facts.widgets else stop
    return f'<span class="mgpu-lab mgpu-room mgpu-room-{commands}"></span><span class="mgpu-not-lab">{kernels}</span>'


def _waiting(facts: Facts) -> str:
    waits = facts.waits
    place = ""
    if waits.place:
        place = f"{_place(waits)} in the queue" if waits.of else f"{ordinal(waits.place)} in the queue"
    start = ""
    if waits.expected_at is not None:
        start = f"starts ≈ <b>{clock(waits.expected_at)}</b> <span class='mgpu-q'>{in_time(waits.expected_at - facts.now)}</span>"
    glyph = "held" if facts.job.reason_code == "held" else "queued"
    rows = [_row(glyph, "Waiting", facts, place, start)]
    reason = waits.reason or "Looks for a place."
    rows.append(f'<div class="mgpu-line mgpu-q">{_escaped(reason)}</div>')
    rows += [f'<div class="mgpu-line mgpu-told">{_escaped(line)}</div>' for line in facts.explained]
    if facts.offers:
        chips = "".join(
            f'<span class="mgpu-offer">{_escaped(offer.text)}{" on " + _escaped(where(offer.where)) if offer.where else ""}'
            f" <code>{_escaped(' '.join(offer.flags))}</code></span>"
            for offer in facts.offers[:SHOWN_OFFERS]
        )
        rows.append(f'<div class="mgpu-line">Start now instead: {chips}</div>')
    return "".join(rows)


def _starting(facts: Facts) -> str:
    job = facts.job
    about = _escaped(readiness(job)) + (f", {_escaped(_small(job.reason))}" if job.reason else "")
    begun = min((one.started_at for one in job.placements if one.started_at), default=None) or job.started_at
    since = f'<span class="mgpu-n mgpu-q">{duration(round(facts.now - begun))}</span>' if begun else ""
    return _row("starting", "Starting", facts, about, since) + _figures(facts)


def _running(facts: Facts) -> str:
    job = facts.job
    limit = f" <span class='mgpu-q'>of {stopwatch(job.time_limit_s)}</span>" if job.time_limit_s else ""
    right = f'<span class="mgpu-n">{stopwatch(facts.now - (job.started_at or facts.now))}</span>{limit}'
    return _row("running", "Running", facts, _escaped(places(job)), right) + _figures(facts)


def _stopping(facts: Facts) -> str:
    job = facts.job
    reason = f" · {job.reason.rstrip('.')}" if job.reason else ""
    about = _escaped((places(job) if job.kill_at is None else _kill(job.kill_at)) + reason)
    left = "" if job.kill_at is None else f'<span class="mgpu-n mgpu-q">{in_time(job.kill_at - facts.now, "now")}</span>'
    return _row("stopping", "Stopping", facts, about, left) + _figures(facts)


def _kill(at: float) -> str:
    return f"killed at {time.strftime('%H:%M:%S', time.localtime(at))} if it does not end"


def _figures(facts: Facts) -> str:
    """Return the second row: load and memory of the job's GPUs, and its ranks; of the same height when nothing is known."""
    job, load = facts.job, facts.load
    busy = next((value for value in reversed(load.busy) if value is not None), None)
    used = next((value for value in reversed(load.memory) if value is not None), None)
    busy_text = "" if busy is None else f"{busy:.0f} %"
    total = f"{load.memory_total / GB:.3g} GB" if load.memory_total else ""
    memory = f"<b>{used / GB:.1f}</b> of {total}" if used is not None and total else ""
    gpus = f"{gpu_count(job.gpus)} on {len(job.nodes)} node{'' if len(job.nodes) == 1 else 's'}"
    if not job.gpus:
        return f'<div class="mgpu-row mgpu-second"><span class="mgpu-q">no GPU</span>{_chips(job)}</div>'
    return (
        f'<div class="mgpu-row mgpu-second"><span class="mgpu-small mgpu-q">{gpus}</span>'
        f'<span class="mgpu-q mgpu-large">GPU</span>{chart(load.busy, 100.0, "busy", busy_text)}'
        f'<b class="mgpu-n mgpu-percent">{busy_text}</b>'
        f'<span class="mgpu-q mgpu-large">Memory</span>{chart(load.memory, float(load.memory_total), "memory", "")}'
        f'<span class="mgpu-n mgpu-memory">{memory}</span>{_chips(job)}</div>'
    )


def _chips(job: models.Job) -> str:
    ranks = sorted(job.placements, key=lambda one: one.rank)
    if len(ranks) < 2:
        return ""
    if len(ranks) > SHOWN_CHIPS:
        return f'<span class="mgpu-ranks mgpu-q">Ranks 0–{len(ranks) - 1}</span>'
    chips = "".join(f'<span class="mgpu-chip{_ended(one)}" title="{_escaped(one.node)}">{one.rank}</span>' for one in ranks)
    return f'<span class="mgpu-ranks"><span class="mgpu-q">Ranks</span>{chips}</span>'


def _ended(one: models.Placement) -> str:
    if one.ended_at is None:
        return ""
    return " mgpu-bad" if one.signal or one.exit_code else " mgpu-ended"


def _over(facts: Facts) -> str:
    job = facts.job
    span = duration(ran_for(job))
    after = f'<span class="mgpu-q">after {span}</span>' if job.started_at else ""
    if job.state is JobState.CANCELLED:
        return _row("cancelled", "Cancelled", facts, _escaped(_names(job)) if job.started_at else "before it started", after)
    if job.state is JobState.TIMEOUT:
        return _row("timeout", "Time limit", facts, f"{duration(job.time_limit_s or 0)} reached", after)
    rows = [_row("failed", "Failed", facts, f'<span class="mgpu-strong">{_cause(job)}</span>', after)]
    culprit = first_to_fail(job)
    if facts.last_lines:
        rank = f"<i>{culprit.rank}</i>" if culprit is not None and len(job.placements) > 1 else ""
        lines = "".join(f"<div>{rank}<span>{_escaped(line)}</span></div>" for line in facts.last_lines)
        rows.append(f'<div class="mgpu-lines">{lines}</div>')
    if culprit is not None:
        rows.append(_others(facts, culprit.rank))
    if facts.hint:
        rows.append(f'<div class="mgpu-line mgpu-q">{_escaped(facts.hint)}</div>')
    rows.append(f'<div class="mgpu-line mgpu-q mgpu-not-lab">All that it printed: <code>%mgpu_logs {_escaped(job.id)}</code></div>')
    return "".join(rows)


def _others(facts: Facts, culprit: int) -> str:
    """Return what became of the other ranks, to be opened where they had printed something."""
    others = sorted(one.rank for one in facts.job.placements if one.rank != culprit)
    if not others:
        return ""
    text = f"{'Ranks' if len(others) > 1 else 'Rank'} {ranges(others)}: stopped because rank {culprit} failed"
    said = [(rank, lines) for rank, lines in facts.other_lines if lines]
    if not said:
        return f'<div class="mgpu-line">{text}</div>'
    same = len(said) == len(others) > 1 and len({lines for _, lines in said}) == 1
    count = len(said[0][1])
    alike = f' <span class="mgpu-q">(same {count} line{"" if count == 1 else "s"} on all {len(others)})</span>' if same else ""
    shown = said[:1] if same else said
    lines = "".join(f"<div><i>{'' if same else rank}</i><span>{_escaped(line)}</span></div>" for rank, told in shown for line in told)
    return f'<details class="mgpu-line"><summary>{text}{alike}</summary><div class="mgpu-lines mgpu-plain">{lines}</div></details>'


def _cause(job: models.Job) -> str:
    culprit = first_to_fail(job)
    if culprit is None:
        return _escaped(job.reason.rstrip("."))
    who = f"rank {culprit.rank} on {_escaped(culprit.node)}" if len(job.placements) > 1 else f"on {_escaped(culprit.node)}"
    first = " ended first" if len(job.placements) > 1 and not culprit.signal else ""
    if culprit.signal:
        return f"{who} was killed by <b>signal {culprit.signal}</b>"
    return f"{who}{first}, <b>exit {culprit.exit_code}</b>"


# --- words ----------------------------------------------------------------------------------------------


def stopwatch(seconds: float) -> str:
    """Return 00:42:17, with days in front when there are some."""
    whole = max(int(seconds), 0)
    days = f"{whole // 86_400}-" if whole >= 86_400 else ""
    return f"{days}{whole % 86_400 // 3600:02}:{whole % 3600 // 60:02}:{whole % 60:02}"


def in_time(seconds: float, over: str = "any moment") -> str:
    """Return `in 38 min`, or other words for a time that is over."""
    if seconds <= 0:
        return over
    if seconds < 90:
        return f"in {round(seconds)} s"
    minutes = round(seconds / 60)
    return f"in {minutes} min" if minutes < 60 else f"in {minutes // 60} h {minutes % 60:02} min"


def ranges(ranks: Sequence[int]) -> str:
    """Return numbers of ranks as people write them: 0–2, 4–7."""
    return numbers(ranks).replace("-", "–").replace(",", ", ")


def shortened(name: str) -> str:
    """Return a name with its middle left out when it is long."""
    half = NAME_CHARS // 2
    return name if len(name) <= NAME_CHARS else f"{name[: half - 1]}…{name[-half:]}"


def _names(job: models.Job) -> str:
    shown = job.nodes[:SHOWN_NODES] if len(job.nodes) > SHOWN_NODES + 1 else job.nodes
    return ", ".join(shown) + (f" and {len(job.nodes) - len(shown)} more" if len(shown) < len(job.nodes) else "")


def _escaped(text: str) -> str:
    return as_html(text)
