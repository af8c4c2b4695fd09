"""Variables of a notebook that are sent with a cell and returned by it, around one run of the cell. The
client transfers them.
"""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_agent.protocol import wording
from mgpu_agent.protocol.errors import NotFound
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.fetching import bring
from mgpu_jupyter.client.inputs import looked_up, with_inputs
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.model.job import JobSpec


class CellVariables:
    """The variables of one cell in both directions; `namespace` is the notebook's."""

    def __init__(self, caller: Caller, namespace: dict[str, object], spec: JobSpec) -> None:
        self._caller = caller
        self._namespace = namespace
        self.spec = spec
        self.note = ""
        """A sentence about nodes that the cell cannot use, or an empty string."""
        self._sent: dict[str, int] = {}
        self._brought: dict[str, int] = {}

    def send(self, names: Sequence[str]) -> None:
        """Send the variables of these names; all that can be refused is refused here, before anything is
        queued.
        """
        self.spec, sent, self.note = with_inputs(self._caller, self.spec, looked_up(names, self._namespace))
        self._sent = {} if sent is None else sent.sizes

    def unpack(self, job_id: str) -> None:
        """Put what the cell returned into the notebook; an error names what is missing, the rest is there."""
        if not self.spec.outputs:
            return
        brought = bring(self._caller, job_id)
        self._namespace.update(brought.values)
        self._brought = brought.sizes
        if brought.problems:
            raise NotFound("no-result", f"Job {job_id}: {' '.join(brought.problems.values())}")

    def unpack_all(self, table: SweepTable) -> Sequence[str]:
        """Put what the jobs of a sweep returned into the notebook, each name as a list; return in words what
        is missing.
        """
        if self.spec.outputs:
            self._namespace.update(table.variables())
        return table.problems

    def __str__(self) -> str:
        """Return in a line how much was sent and returned; empty when there is nothing to tell."""
        ways = (("in", self._sent), ("out", self._brought))
        return " · ".join(
            f"{way}: {', '.join(f'{name} {wording.size(size)}' for name, size in sizes.items())}"
            for way, sizes in ways
            if sizes
        )
