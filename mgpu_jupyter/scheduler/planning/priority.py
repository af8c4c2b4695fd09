"""A job's priority as a sum of terms, each in hours of waiting, so that people can follow it. Pure."""

from __future__ import annotations

import msgspec

from mgpu_jupyter.model.explanations import Term
from mgpu_jupyter.model.settings import Weights

HOUR_S = 3600.0


class PriorityFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a job that count."""

    submitted_at: float
    expected_s: float
    gpus: int
    priority: int
    qos_priority: float


def base(weights: Weights, facts: PriorityFacts) -> float:
    """Return the part that orders jobs: all terms but fair share, with the age as if now were 0."""
    return sum(term.points for term in terms(weights, facts, 0.0, 0.0))


def terms(weights: Weights, facts: PriorityFacts, at: float, fair_share: float) -> tuple[Term, ...]:
    """Return all terms at a time; `fair_share` is the factor of its user, from 0 to 1."""
    expected_h = facts.expected_s / HOUR_S
    amounts = (
        ("age", (at - facts.submitted_at) / HOUR_S, weights.age),
        ("duration", min(expected_h, weights.duration_cap_h), -weights.duration),
        ("work", expected_h * facts.gpus, -weights.work),
        ("size", float(facts.gpus), weights.size),
        ("fair share", fair_share, weights.fair_share),
        ("priority", float(facts.priority), weights.priority),
        ("qos", facts.qos_priority, weights.qos),
    )
    return tuple(Term(name=name, amount=amount, points=amount * weight) for name, amount, weight in amounts)
