"""What mgpu's JupyterLab extension tells a panel about keys, drags and the pointer, as one line of text; and
what a drag means. Pure.

Stock widgets report only clicks and typed text. Where mgpu's extension is installed in the page it writes
such a line into a hidden field of the panel; elsewhere that field stays empty, and buttons do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast, get_args

import msgspec

from mgpu_jupyter.client.queue_rows import Row

Verb = Literal["up", "down", "why", "end", "open", "move", "stay", "go"]
VERBS = get_args(Verb)
ABOUT_A_JOB, MOVE = 3, 5


class Order(msgspec.Struct, frozen=True):
    """What the user wants of the job `key`; `move` puts it before or after the job `other`."""

    verb: Verb
    key: str = ""
    after: bool = False
    other: str = ""


def read_order(line: str) -> Order | None:
    """Return the order of a line: `7 up R4T8W2ZB`, `8 move R4T8W2ZB before 7QX1CV4N`, `9 stay`; the number
    makes each line different.
    """
    words = line.split()
    if len(words) < 2 or words[1] not in VERBS:
        return None
    verb = cast("Verb", words[1])
    if verb == "move":
        return Order(verb, words[2], words[3] == "after", words[4]) if len(words) == MOVE else None
    if verb in ("stay", "go"):
        return Order(verb)
    return Order(verb, words[2]) if len(words) == ABOUT_A_JOB else None


def priority_there(rows: Sequence[Row], order: Order) -> int | None:
    """Return the priority that brings a job to where it was dropped: one more than that of the job then
    behind it, or one less than that of the job ahead when it moved back; None when it is there already.
    """
    keys = [row.key for row in rows]
    if order.key not in keys or order.other not in keys or order.key == order.other:
        return None
    was = keys.index(order.key)
    rest = [row for row in rows if row.key != order.key]
    at = next(number for number, row in enumerate(rest) if row.key == order.other) + order.after
    if at == was:
        return None
    now = rows[was].job.priority
    if at < was:
        return max(rest[at].job.priority + 1, now + 1)
    return min(rest[at - 1].job.priority - 1, now - 1)
