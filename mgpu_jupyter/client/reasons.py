"""The answer to "why?" as text: first one sentence, then what helps, then the details."""

from __future__ import annotations

import time
from collections.abc import Sequence

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.text import printable
from mgpu_jupyter.api import models
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.words import duration, gpu_count, names
from mgpu_jupyter.model import explanations as api
from mgpu_jupyter.model.job import JobState

SHOWN_HISTORY = 10
SHOWN_STARTS = 20
WOULD_WAIT_EXIT = 3
"""Exit code of `--dry-run` for a request that would not start now."""


def as_lines(told: api.Explanation, now: float) -> list[str]:
    """Return the whole answer, one line for each fact."""
    lines = [printable(told.text)]
    lines += [line for line in (start_line(told, now), _ahead_line(told)) if line]
    if told.offers:
        instead = "In its place, this would start now:" if told.job_id else "This would start now:"
        lines += ["", instead, *(f"  - {offer_line(offer)}" for offer in told.offers)]
    for unit in told.units:
        lines += ["", *unit_lines(unit, len(told.units))]
    if told.terms:
        shown = [f"{printable(term.name)} {term.points:+.2f}" for term in told.terms if term.points]
        lines += [
            "",
            f"Priority {told.priority or 0.0:.2f} (hours of waiting): {', '.join(shown) or 'nothing counts'}",
        ]
    if told.history:
        lines += ["", "What it was told before:", *history_lines(told.history)]
    return lines


def start_line(told: api.Explanation, now: float) -> str:
    """Return when it is expected to start, in words; empty when there is nothing to say."""
    if told.verdict not in ("not_now", "never"):
        return ""
    expected = told.expected
    if expected.at is not None:
        how, doubt = ("Promised", "") if expected.promised else ("Expected", ", if others end as planned")
        return f"{how} to start in {duration(expected.at - now)}, at {clock(expected.at)}{doubt}."
    if expected.later_than is not None:
        return f"Expected to start later than in {duration(expected.later_than - now)}."
    return "" if told.verdict == "never" else "Nobody can say when it will start."


def starts_of(client: Client, jobs: Sequence[models.Job], now: float) -> dict[str, str]:
    """Return in words when the first waiting jobs are expected to start; for others, a hint at `mgpu
    explain`.
    """
    queued = sorted(
        (job for job in jobs if job.state is JobState.QUEUED),
        key=lambda job: (job.place is None, job.place or 0),
    )
    starts: dict[str, str] = {}
    for job in queued[:SHOWN_STARTS]:
        if job.expected_start_at is not None:
            starts[job.id] = (
                f"promised in {duration(job.expected_start_at - now)}, at {clock(job.expected_start_at)}"
            )
            continue
        try:
            starts[job.id] = _short_start(client.explain(job.id), now)
        except MgpuError as error:
            starts[job.id] = error.message
    return starts


def _short_start(told: api.Explanation, now: float) -> str:
    if told.verdict in ("started", "over"):
        return told.text
    return (start_line(told, now) or told.text).removeprefix("Expected to start ")


def offer_line(offer: api.Offer) -> str:
    """Return an offer and where it would run."""
    return f"{printable(offer.text)}: {where(offer.where)}"


def where(places: Sequence[api.Where]) -> str:
    """Return nodes with the GPUs that they would give."""
    told = [
        f"{place.node} (GPU {', '.join(map(str, place.gpus))})" if place.gpus else place.node
        for place in places
    ]
    return names(told)


def unit_lines(unit: api.UnitAnswer, units: int) -> list[str]:
    """Return what a unit needs and how the nodes answer."""
    what = f"{printable(unit.needs)} on {'one node' if unit.count == 1 else f'each of {unit.count} nodes'}"
    which = (
        ""
        if units == 1
        else f"Unit {unit.first}: "
        if unit.count == 1
        else f"Units {unit.first} to {unit.first + unit.count - 1}: "
    )
    found = f"{unit.would_do} of the nodes would do now" if unit.would_do else "no node would do now"
    got = f"; it would get {names(unit.given)}" if unit.given else ""
    lines = [f"{which}{what}: {found}{got}."]
    for out in unit.excluded:
        more = f" and {out.count - len(out.nodes)} more" if out.count > len(out.nodes) else ""
        lines.append(
            f"  {printable(', '.join(out.nodes))}{more}: "
            f"{printable(out.text)}{' (never)' if out.never else ''}"
        )
    return lines


def history_lines(history: Sequence[api.Record]) -> list[str]:
    """Return the newest changes of the answer."""
    lines = [f"  {clock(record.at)}  {printable(record.text)}" for record in history[-SHOWN_HISTORY:]]
    earlier = len(history) - len(lines)
    return [f"  ({earlier} earlier ones: --json)", *lines] if earlier else lines


def clock(at: float) -> str:
    """Return a time of day, with the date when it is not today's."""
    then, today = time.localtime(at), time.localtime()
    return time.strftime("%H:%M:%S" if then[:3] == today[:3] else "%Y-%m-%d %H:%M:%S", then)


def _ahead_line(told: api.Explanation) -> str:
    if not told.ahead_count:
        return ""
    first = names([f"{job.job_id} ({gpu_count(job.gpus)})" for job in told.ahead])
    return f"{told.ahead_count} {'job is' if told.ahead_count == 1 else 'jobs are'} ahead of it: {first}."
