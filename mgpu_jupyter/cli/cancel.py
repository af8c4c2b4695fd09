"""`mgpu_cancel`: cancels jobs by id, or all of one's own, by user or by name."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from mgpu_jupyter.client.choice import cancel, cancel_parser, chosen
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.flags import Help


def main(argv: Sequence[str], make_client: Callable[[], Client]) -> int:
    """Cancel what is named; return 1 if one could not be cancelled."""
    values = cancel_parser("mgpu_cancel").read(argv)
    if isinstance(values, Help):
        print(values.text, end="")
        return 0
    with make_client() as client:
        ids = chosen(client, values)
        if not ids:
            print("No job to cancel: nothing that runs or waits matches.", file=sys.stderr)
        results = [cancel(client, job_id) for job_id in ids]
    for _, text in results:
        print(text)
    return 0 if all(done for done, _ in results) else 1
