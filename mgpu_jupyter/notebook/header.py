"""The header of a job over its output, as HTML: waiting, starting, running, stopping, over. Pure.

All text of users is hostile and is escaped. Colours come from the theme (`--jp-*`), with fallbacks for front
ends without. Its content is in `header_text.py`, how it gets on the screen in `screen.py`, the style sheet in
`style.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_agent.protocol.text import as_html
from mgpu_agent.protocol.wording import used_of
from mgpu_jupyter.api import models
from mgpu_jupyter.client.reasons import where
from mgpu_jupyter.client.words import (
    duration,
    first_to_fail,
    gpu_count,
    ordinal,
    ran_for,
)
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook import actions
from mgpu_jupyter.notebook.header_text import (
    Facts,
    clock,
    in_time,
    kill_text,
    node_names,
    place_text,
    places,
    ranges,
    readiness,
    shortened,
    small,
    stopwatch,
    text_of,
)
from mgpu_jupyter.notebook.style import GLYPHS, STYLE, chart

SHOWN_CHIPS = 16
SHOWN_OFFERS = 2


# --- HTML -----------------------------------------------------------------------------------------------


def html_of(facts: Facts) -> str:
    """Return the header as HTML; empty for a job that completed, whose one line comes after its output."""
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
    """Return the one line of a job that completed."""
    gpus = gpu_count(job.gpus, simulated=any(placement.simulated for placement in job.placements))
    on = f" on {_escaped(node_names(job))}" if job.nodes else ""
    first = f"Done in <b>{duration(ran_for(job))}</b>{on}, {gpus}, exit {job.exit_code or 0}"
    named = actions.link(job, _escaped(shortened(job.name) or job.id))
    known_by = f'<span class="mgpu-id mgpu-not-lab"><i>·</i>{_escaped(job.id)}</span>' if job.name else ""
    parts = [first, *(_escaped(text) for text in more), named + known_by]
    return f'{STYLE}<div class="mgpu-done">{GLYPHS["completed"]} {"<i>·</i>".join(parts)}</div>'


def _card(kind: str, facts: Facts, body: str) -> str:
    trouble = f'<div class="mgpu-line">{_escaped(facts.trouble)}</div>' if facts.trouble else ""
    label = _escaped(text_of(facts))
    return (
        f'{STYLE}<div class="mgpu-wide"><div class="mgpu-head mgpu-{kind}" role="group" '
        f'aria-label="{label}">{body}{trouble}</div></div>'
    )


def _row(glyph: str, word: str, facts: Facts, about: str, right: str) -> str:
    job = facts.job
    name = f'<span class="mgpu-name">{_escaped(shortened(job.name))}</span>' if job.name else ""
    return (
        f'<div class="mgpu-row">{GLYPHS[glyph]}<b class="mgpu-word">{word}</b>{name}'
        f'<span class="mgpu-id">{_escaped(job.id)}</span>'
        f'<span class="mgpu-about mgpu-q">{about}</span>'
        f'<span class="mgpu-right">{right}</span>{_room(facts)}</div>'
    )


def _room(facts: Facts) -> str:
    """Return the space for the buttons that lie over the header; those of a job that is over are part of
    it.
    """
    if facts.job.state.is_final:
        return actions.over(facts.job, facts.run_again)
    commands = len(actions.live(facts.job, cancelling=facts.cancelling))
    stop = f'<span class="mgpu-q">{facts.stop}</span>' if facts.stop else ""
    kernels = f'<span class="mgpu-room mgpu-room-{facts.widgets}"></span>' if facts.widgets else stop
    return (
        f'<span class="mgpu-lab mgpu-room mgpu-room-{commands}"></span>'
        f'<span class="mgpu-not-lab">{kernels}</span>'
    )


def _waiting(facts: Facts) -> str:
    waits = facts.waits
    place = ""
    if waits.place:
        place = f"{place_text(waits)} in the queue" if waits.of else f"{ordinal(waits.place)} in the queue"
    start = ""
    if waits.expected_at is not None:
        start = (
            f"starts ≈ <b>{clock(waits.expected_at)}</b> "
            f"<span class='mgpu-q'>{in_time(waits.expected_at - facts.now)}</span>"
        )
    glyph = "held" if facts.job.reason_code == "held" else "queued"
    rows = [_row(glyph, "Waiting", facts, place, start)]
    reason = waits.reason or "Looks for a place."
    rows.append(f'<div class="mgpu-line mgpu-q">{_escaped(reason)}</div>')
    rows += [f'<div class="mgpu-line mgpu-told">{_escaped(line)}</div>' for line in facts.explained]
    if facts.offers:
        chips = "".join(map(_chip, facts.offers[:SHOWN_OFFERS]))
        rows.append(f'<div class="mgpu-line">Start now instead: {chips}</div>')
    return "".join(rows)


def _chip(offer: Offer) -> str:
    place = f" on {_escaped(where(offer.where))}" if offer.where else ""
    flags = _escaped(" ".join(offer.flags))
    return f'<span class="mgpu-offer">{_escaped(offer.text)}{place} <code>{flags}</code></span>'


def _starting(facts: Facts) -> str:
    job = facts.job
    about = _escaped(readiness(job)) + (f", {_escaped(small(job.reason))}" if job.reason else "")
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
    about = _escaped((places(job) if job.kill_at is None else kill_text(job.kill_at)) + reason)
    left = (
        ""
        if job.kill_at is None
        else f'<span class="mgpu-n mgpu-q">{in_time(job.kill_at - facts.now, "now")}</span>'
    )
    return _row("stopping", "Stopping", facts, about, left) + _figures(facts)


def _figures(facts: Facts) -> str:
    """Return the second row: load and memory of the job's GPUs, and its ranks; of the same height when
    nothing is known.
    """
    job, load = facts.job, facts.load
    busy = next((value for value in reversed(load.busy) if value is not None), None)
    used = next((value for value in reversed(load.memory) if value is not None), None)
    busy_text = "" if busy is None else f"{busy:.0f} %"
    memory = ""
    if used is not None and load.memory_total:
        memory = "<b>{}</b> of {}".format(*used_of(used, load.memory_total))
    gpus = f"{gpu_count(job.gpus)} on {len(job.nodes)} node{'' if len(job.nodes) == 1 else 's'}"
    if not job.gpus:
        return f'<div class="mgpu-row mgpu-second"><span class="mgpu-q">no GPU</span>{_chips(job)}</div>'
    return (
        f'<div class="mgpu-row mgpu-second"><span class="mgpu-small mgpu-q">{gpus}</span>'
        f'<span class="mgpu-q mgpu-large">GPU</span>{chart(load.busy, 100.0, "busy", busy_text)}'
        f'<b class="mgpu-n mgpu-percent">{busy_text}</b>'
        f'<span class="mgpu-q '
        f'mgpu-large">Memory</span>{chart(load.memory, float(load.memory_total), "memory", "")}'
        f'<span class="mgpu-n mgpu-memory">{memory}</span>{_chips(job)}</div>'
    )


def _chips(job: models.Job) -> str:
    ranks = sorted(job.placements, key=lambda one: one.rank)
    if len(ranks) < 2:
        return ""
    if len(ranks) > SHOWN_CHIPS:
        return f'<span class="mgpu-ranks mgpu-q">Ranks 0–{len(ranks) - 1}</span>'
    chips = "".join(
        f'<span class="mgpu-chip{_ended(one)}" title="{_escaped(one.node)}">{one.rank}</span>'
        for one in ranks
    )
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
        return _row(
            "cancelled",
            "Cancelled",
            facts,
            _escaped(node_names(job)) if job.started_at else "before it started",
            after,
        )
    if job.state is JobState.TIMEOUT:
        return _row("timeout", "Time limit", facts, f"{duration(job.time_limit_s or 0)} reached", after)
    rows = [_row("failed", "Failed", facts, f'<span class="mgpu-strong">{_cause(job)}</span>', after)]
    if facts.is_short:
        return rows[0]
    culprit = first_to_fail(job)
    if facts.last_lines:
        rank = f"<i>{culprit.rank}</i>" if culprit is not None and len(job.placements) > 1 else ""
        lines = "".join(f"<div>{rank}<span>{_escaped(line)}</span></div>" for line in facts.last_lines)
        rows.append(f'<div class="mgpu-lines">{lines}</div>')
    if culprit is not None:
        rows.append(_others(facts, culprit.rank))
    if facts.hint:
        rows.append(f'<div class="mgpu-line mgpu-q">{_escaped(facts.hint)}</div>')
    rows.append(
        f'<div class="mgpu-line mgpu-q mgpu-not-lab">All that it printed: <code>%mgpu_logs '
        f"{_escaped(job.id)}</code></div>"
    )
    return "".join(rows)


def _others(facts: Facts, culprit: int) -> str:
    """Return what became of the other ranks, as a part to open where they had printed something."""
    others = sorted(one.rank for one in facts.job.placements if one.rank != culprit)
    if not others:
        return ""
    text = f"{'Ranks' if len(others) > 1 else 'Rank'} {ranges(others)}: stopped because rank {culprit} failed"
    said = [(rank, lines) for rank, lines in facts.other_lines if lines]
    if not said:
        return f'<div class="mgpu-line">{text}</div>'
    same = len(said) == len(others) > 1 and len({lines for _, lines in said}) == 1
    count = len(said[0][1])
    alike = (
        f' <span class="mgpu-q">(same {count} line{"" if count == 1 else "s"} on all {len(others)})</span>'
        if same
        else ""
    )
    shown = said[:1] if same else said
    lines = "".join(
        f"<div><i>{'' if same else rank}</i><span>{_escaped(line)}</span></div>"
        for rank, told in shown
        for line in told
    )
    return (
        f'<details class="mgpu-line"><summary>{text}{alike}</summary><div class="mgpu-lines '
        f'mgpu-plain">{lines}</div></details>'
    )


def _cause(job: models.Job) -> str:
    culprit = first_to_fail(job)
    if culprit is None:
        return _escaped(job.reason.rstrip("."))
    who = (
        f"rank {culprit.rank} on {_escaped(culprit.node)}"
        if len(job.placements) > 1
        else f"on {_escaped(culprit.node)}"
    )
    first = " ended first" if len(job.placements) > 1 and not culprit.signal else ""
    if culprit.signal:
        return f"{who} was killed by <b>signal {culprit.signal}</b>"
    return f"{who}{first}, <b>exit {culprit.exit_code}</b>"


def _escaped(text: str) -> str:
    return as_html(text)
