"""Ways to order the queue, by name, the same in simulation and in production. Values only; pure."""

from __future__ import annotations

from difflib import get_close_matches

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.settings import Planning, Weights

DEFAULT = "default"
_ARRIVAL = Weights(duration=0.0, fair_share=0.0)
_SHORTEST = Weights(age=0.0, duration=1.0, duration_cap_h=1e6, fair_share=0.0)

POLICIES: dict[str, Planning] = {
    DEFAULT: Planning(),
    "fifo": Planning(weights=_ARRIVAL, overtake=False),
    "easy": Planning(weights=_ARRIVAL, spare=False),
    "easy-spare": Planning(weights=_ARRIVAL),
    "conservative": Planning(weights=_ARRIVAL, reservations=10),
    "sjf": Planning(weights=_SHORTEST, reservations=0),
    "sjf-strict": Planning(weights=_SHORTEST, overtake=False),
    # So much that one percent less use outweighs weeks of waiting.
    "fair-share": Planning(weights=Weights(duration=0.0, fair_share=100_000.0)),
}
"""Each name and what it means."""

MEANINGS: dict[str, str] = {
    DEFAULT: "short jobs first, but all age; one promised start; fair share",
    "fifo": "order of arrival, nobody overtakes",
    "easy": "order of arrival, the head is promised a start, others may run until then",
    "easy-spare": "easy, and others may run longer on GPUs that the head will not need",
    "conservative": "order of arrival, the first ten are promised a start",
    "sjf": "shortest first and nothing promised: long jobs may starve",
    "sjf-strict": "shortest first, nobody overtakes",
    "fair-share": "who used the least first, then order of arrival",
}
"""Each name in a line for people."""


def planning_of(name: str) -> Planning:
    """Return what a policy's name means, or refuse an unknown one."""
    found = POLICIES.get(name)
    if found is None:
        near = get_close_matches(name, POLICIES, 1, 0.6)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise InvalidRequest(
            "unknown-policy", f"There is no policy {name}{hint}: it is one of {', '.join(POLICIES)}."
        )
    return found
