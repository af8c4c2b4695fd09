"""Updates the header over a job's output while it is watched: gathers the facts and refreshes it once a
second.

Shared by a cell that watches its job (`stream.py`) and a job that is the value of a cell (`live_job.py`).
Draws nothing itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from mgpu_agent.protocol.errors import MgpuError
from mgpu_jupyter.api import models
from mgpu_jupyter.api.histories import JobUsage
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.reasons import as_lines
from mgpu_jupyter.client.words import first_to_fail
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.gauges import Gauges, NoGauges
from mgpu_jupyter.notebook.header_text import Facts, Waits
from mgpu_jupyter.notebook.screen import Header

SHOWN_LINES = 8
OTHER_LINES, OTHER_RANKS = 5, 16
HEADER_S = 1.0
"""How often the header is updated while a job runs."""
LONG_WAIT_S = 1.0
"""After this long a waiting user is told what would start now."""
FULL = 0.9
"""Memory that was this full may be why a job failed."""
LinesOf = Callable[[int, int], tuple[str, ...]]


class HeaderUpdates:
    """The header of one job, and the actions of its buttons."""

    def __init__(
        self,
        made: Callable[[HeaderUpdates], Header],
        gauges: Gauges | None = None,
        *,
        is_rich: bool,
        lines_of: LinesOf | None = None,
        stop: str = "",
        run_again: str = "",
    ) -> None:
        """`lines_of` returns the last lines of a rank, where nothing else shows them; `stop` says what the
        stop button does, `run_again` names a command.
        """
        self.header = made(self)
        self.job: Job | None = None
        self.info: models.Job | None = None
        self.cancelling = False
        self.trouble = ""
        """The lost connection, in words; may be set by any thread."""
        self.stop = stop
        self.run_again = run_again
        self._gauges = gauges or NoGauges()
        self._is_rich = is_rich
        self._lines_of = lines_of
        self._offers: tuple[Offer, ...] | None = None
        self._explained: tuple[str, ...] = ()
        self._waiting_since = 0.0
        self._shown_at = 0.0

    def changed(self, job: models.Job) -> None:
        """Show a new state."""
        self.trouble = ""
        if self.info is None or self.info.state is not job.state:
            self._waiting_since = time.monotonic()
        self.info = job
        self.show()

    def bring_up_to_date(self) -> bool:
        """Show what changes with time, if that is due; tell whether it was."""
        self.header.settle()
        if self.info is None or self.info.state.is_final or time.monotonic() - self._shown_at < HEADER_S:
            return False
        self.show()
        return True

    def show(self) -> None:
        """Show the present state."""
        assert self.info is not None
        self._shown_at = time.monotonic()
        self.header.show(self._facts(self.info))

    def end(self) -> None:
        """Release the resources; what is shown stays."""
        self._gauges.close()
        self.header.end()

    def close(self) -> None:
        """Release the resources; the header of a job that is not over is removed."""
        self.end()
        if self.info is None or not self.info.state.is_final:
            self.header.remove()

    def cancel(self) -> None:
        """Cancel the job, on the thread of a click; the watching cell sees it end."""
        self.cancelling = True
        try:
            if self.job is not None:
                self.job.cancel()
        except MgpuError as error:
            self.cancelling = False
            self.trouble = error.message

    def why(self) -> None:
        """Show in full why it waits, or hide that, on the thread of a click; the next update shows it."""
        if self._explained or self.job is None:
            self._explained = ()
        else:
            try:
                told = tuple(filter(None, as_lines(self.job.explain(), time.time())))
                self._explained = told[1:] or told  # the first sentence is shown already
            except MgpuError as error:
                self.trouble = error.message
        self._shown_at = 0.0

    def _facts(self, job: models.Job) -> Facts:
        waits = Waits()
        if job.state is JobState.QUEUED:
            waits = self._gauges.waits(job)
            if (
                self._is_rich
                and self._offers is None
                and time.monotonic() - self._waiting_since >= LONG_WAIT_S
            ):
                self._offers = self._ask_for_offers()
        facts = Facts(
            job=job,
            now=time.time(),
            waits=waits,
            load=self._gauges.load(job),
            offers=self._offers or (),
            widgets=self.header.widgets(job),
            stop=self.stop,
            explained=self._explained,
            cancelling=self.cancelling,
            trouble=self.trouble,
            run_again=self.run_again,
        )
        return self._failed(facts) if job.state is JobState.FAILED else facts

    def _failed(self, facts: Facts) -> Facts:
        job = facts.job
        if self._lines_of is None:
            return Facts(job=job, now=facts.now, run_again=self.run_again, is_short=True)
        culprit = first_to_fail(job)
        rank = culprit.rank if culprit else 0
        others = [one.rank for one in job.placements if one.rank != rank][:OTHER_RANKS]
        return Facts(
            job=job,
            now=facts.now,
            run_again=self.run_again,
            last_lines=self._lines_of(rank, SHOWN_LINES),
            other_lines=tuple((other, self._lines_of(other, OTHER_LINES)) for other in others),
            hint=self.hint(job),
        )

    def hint(self, job: models.Job) -> str:
        """Return what the GPUs' memory says about a job that failed."""
        culprit = first_to_fail(job)
        return (
            memory_hint(self._usage(), culprit.rank if culprit else 0) if self._is_rich and job.gpus else ""
        )

    def _usage(self) -> JobUsage | None:
        try:
            return None if self.job is None else self.job.usage(points=10)
        except MgpuError:
            return None

    def _ask_for_offers(self) -> tuple[Offer, ...]:
        try:
            return () if self.job is None else self.job.explain().offers
        except MgpuError:
            return ()


def memory_hint(usage: JobUsage | None, rank: int) -> str:
    """Return a hint about GPU memory for a rank that failed; empty where it was not full."""
    told = [
        one
        for one in (usage.gpus if usage else ())
        if one.memory_mib and one.memory_peak_mib is not None and one.rank in (rank, None)
    ]
    shares = [(one.memory_peak_mib or 0) / one.memory_mib for one in told]
    if not shares or max(shares) < FULL:
        return ""
    return (
        f"A GPU of rank {rank} was at {min(100, round(100 * max(shares)))} % of its memory. Try a "
        f"smaller batch, or more GPUs."
    )
