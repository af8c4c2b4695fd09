"""The answer to "why?" as HTML: the sentence, what happens next, then offers, who is ahead, and the answers
of nodes. Pure.
"""

from __future__ import annotations

from collections.abc import Callable

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.client.words import duration, gpu_count, moment, names
from mgpu_jupyter.model.explanations import Explanation, Offer, Planned, Where
from mgpu_jupyter.notebook.panel.marks import esc, glyph

SHOWN_OFFERS = 3
SHOWN_NODES = 12
SHOWN_PLACES = 4


def first_line(told: Explanation, now: float) -> str:
    """Return when it starts, as the first line: `Starts at about 14:52, in 38 m, on gpu-03 and gpu-04.`"""
    if told.verdict == "now":
        return f"Starts now{on(told.where)}."
    if told.verdict == "never":
        return "Can never start here."
    if told.verdict in ("started", "over"):
        return told.text
    if told.expected.at is not None:
        surely = "Starts by" if told.expected.promised else "Starts at about"
        own = next(
            (one for one in told.plan if one.job_id == (told.job_id or "") and one.start_at is not None), None
        )
        there = on(tuple(Where(node=node) for node in own.nodes)) if own is not None else ""
        return (
            f"{surely} {moment(told.expected.at, now)}, in "
            f"{duration(max(told.expected.at - now, 1.0))}{',' if there else ''}{there}."
        )
    if told.expected.later_than is not None:
        return f"Starts later than {moment(told.expected.later_than, now)}."
    return "Start not known."


def on(places: tuple[Where, ...]) -> str:
    """Return ` on gpu-03 (GPUs 6, 7) and gpu-04 (GPU 5)`, or an empty string."""
    told = [
        f"{place.node} (GPU{'s' if len(place.gpus) > 1 else ''} {', '.join(map(str, place.gpus))})"
        if place.gpus
        else place.node
        for place in places
    ]
    if not told:
        return ""
    listed = (
        names(told)
        if len(told) > SHOWN_PLACES
        else " and ".join(filter(None, (", ".join(told[:-1]), told[-1])))
    )
    return f" on {listed}"


def offer_html(offer: Offer) -> str:
    """Return an offer, for beside its button: what, when, where, and its flag."""
    return (
        f'<div><b>{esc(offer.text)}</b> <span class="now">now</span></div>'
        f'<div class="quiet">{esc(on(offer.where).strip())}</div>'
        f"<code>{esc(' '.join(offer.flags))}</code>"
    )


def explained_html(
    told: Explanation, now: float, name: str, *, as_text: bool = True, title_of: Callable[[JobId], str] = str
) -> str:
    """Return the whole answer; offers are text in it, or are shown below it with their buttons; `title_of`
    returns the title of a job.
    """
    sign = {"now": "running", "never": "never", "started": "running", "over": "completed"}.get(
        told.verdict, "queued"
    )
    parts = [f'<div class="big">{glyph(sign)} <b>{esc(first_line(told, now))}</b></div>']
    if told.verdict not in ("started", "over"):
        parts.append(f"<p>{esc(told.text)}</p>")
    if told.expected.at is not None and not told.expected.promised:
        parts.append(
            '<p class="quiet">It is the latest start if jobs keep to their limits; they may end sooner. '
            "It moves if a job with higher priority comes or a node fails.</p>"
        )
    parts += [_until_then(told, now, title_of), _ahead(told, title_of)]
    rows = [
        f"<tr><td>{esc(names(out.nodes))}{f' (of {out.count})' if out.count > len(out.nodes) else ''}</td>"
        f"<td>{esc(out.text)}</td>"
        f'<td class="right">{"not without a change" if out.never else ""}</td></tr>'
        for unit in told.units
        for out in unit.excluded
    ]
    if rows:
        parts.append(
            f"<details open><summary>Node by node</summary>{_table(''.join(rows[:SHOWN_NODES]))}</details>"
        )
    if told.terms:
        terms = (
            ", ".join(f"{esc(term.name)} {term.points:+.2f}" for term in told.terms if term.points)
            or "nothing counts"
        )
        parts.append(
            f"<details><summary>Priority {told.priority or 0.0:.2f}</summary><p>{terms}, in hours of "
            f"waiting</p></details>"
        )
    if told.verdict in ("not_now", "never"):
        parts.append("<h4>Small changes that start it now</h4>")
        if not told.offers:
            parts.append("<p>No small change starts it sooner.</p>")
        parts += [offer_html(offer) for offer in told.offers[:SHOWN_OFFERS] if as_text]
    return f'<div role="region" aria-label="Why {esc(name)} waits">{"".join(parts)}</div>'


def _until_then(told: Explanation, now: float, title_of: Callable[[JobId], str]) -> str:
    """Return who has the nodes that it is expected on, and until when."""
    others = [one for one in told.plan if one.job_id != (told.job_id or "")]
    rows = "".join(
        f'<tr><td>{esc(title_of(one.job_id))}</td><td>{esc(names(one.nodes))}</td><td class="right '
        f'n">{_times(one, now)}</td></tr>'
        for one in others[:SHOWN_NODES]
    )
    return f"<details open><summary>What happens until then</summary>{_table(rows)}</details>" if rows else ""


def _times(one: Planned, now: float) -> str:
    start = "" if one.start_at is None else f"from ≈ {moment(one.start_at, now)} "
    return f"{start}until {moment(one.end_at, now)}" if one.end_at is not None else f"{start}without an end"


def _ahead(told: Explanation, title_of: Callable[[JobId], str]) -> str:
    if not told.ahead_count:
        return ""
    rows = "".join(
        f"<tr><td>{esc(title_of(one.job_id))}</td><td>{esc(one.user)}</td>"
        f'<td class="right n">{gpu_count(one.gpus)}</td><td class="right n">{one.priority:.2f}</td></tr>'
        for one in told.ahead
    )
    count = f"{told.ahead_count} job{'' if told.ahead_count == 1 else 's'}"
    head = f'<summary>Ahead in the queue <span class="quiet">{count}, with their priority</span></summary>'
    return f"<details open>{head}{_table(rows)}</details>"


def _table(rows: str) -> str:
    return f'<table class="mgpu-table"><tbody>{rows}</tbody></table>'
