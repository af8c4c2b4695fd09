"""Variables of a notebook that go to a cell and come back into it, around one run of the cell. How they travel is the client's."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu_agent.protocol.errors import NotFound
from mgpu_agent.protocol.variable_file import in_words
from mgpu_jupyter.client.call import Caller
from mgpu_jupyter.client.inputs import looked_up, with_inputs
from mgpu_jupyter.client.outputs import bring
from mgpu_jupyter.client.sweep_table import SweepTable
from mgpu_jupyter.model.job import JobSpec


class CellVariables:
    """What one cell takes along and brings back; `namespace` is the notebook's."""

    def __init__(self, caller: Caller, namespace: dict[str, object], spec: JobSpec) -> None:
        self._caller = caller
        self._namespace = namespace
        self.spec = spec
        self.note = ""
        """What there is to say about nodes that the cell cannot use."""
        self._sent: dict[str, int] = {}
        self._brought: dict[str, int] = {}

    def send(self, names: Sequence[str]) -> None:
        """Send the variables of these names; all that can be refused is refused here, before anything is queued."""
        self.spec, sent, self.note = with_inputs(self._caller, self.spec, looked_up(names, self._namespace))
        self._sent = {} if sent is None else sent.sizes

    def unpack(self, job_id: str) -> None:
        """Put what the cell left into the notebook; an error names what is not there, the rest is."""
        if not self.spec.outputs:
            return
        brought = bring(self._caller, job_id)
        self._namespace.update(brought.values)
        self._brought = brought.sizes
        if brought.problems:
            raise NotFound("no-result", f"Job {job_id}: {' '.join(brought.problems.values())}")

    def unpack_all(self, table: SweepTable) -> Sequence[str]:
        """Put what the jobs of a sweep left into the notebook, each name as a list; return what is missing, in words."""
        if self.spec.outputs:
            self._namespace.update(table.variables())
        return table.problems

    def __str__(self) -> str:
        """Return how much went there and came back, in a line; nothing when there is nothing to tell."""
        ways = (("in", self._sent), ("out", self._brought))
        return " · ".join(f"{way}: {', '.join(f'{name} {in_words(size)}' for name, size in sizes.items())}" for way, sizes in ways if sizes)
