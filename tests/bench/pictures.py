"""`python -m tests.bench.pictures`: draws the pictures of docs/scheduling.md anew."""

from __future__ import annotations

from mgpu_jupyter.simulate.plot import draw_replays, draw_users
from tests.bench import traces
from tests.simulate import fair_share
from tests.simulate.places import ROOT

DOCS = ROOT / "mgpu_jupyter" / "docs"


def main() -> None:
    """Draw them all."""
    draw_users(
        DOCS / "fair_share.png",
        fair_share.run("fair-share"),
        ("ann", "bob"),
        fair_share.DAYS * fair_share.DAY_S,
        "Policy fair-share: Ann asks for 300 % of 16 GPUs, Bob from the second day on for 75 %",
    )
    replays = {policy: traces.run("venus", policy, "perfect") for policy in ("easy", "default")}
    draw_replays(DOCS / "venus.png", replays, "Helios Venus, September 2020, on 80 nodes × 8 GPUs")


if __name__ == "__main__":
    main()
