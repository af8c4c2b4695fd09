"""`%mgpu_panel`: queue, GPUs, a submit form and one job, live, as ipywidgets. This module reads the line and
decides what can be shown.

Nothing here is imported before the magic is used, and ipywidgets only where it is installed.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client.client import Client, job_id_of
from mgpu_jupyter.client.line import split_words
from mgpu_jupyter.client.parser import Help
from mgpu_jupyter.notebook import parsers

TABS = ("queue", "gpus", "submit", "job")
NO_WIDGETS = (
    'The panel needs ipywidgets: run `pip install "mgpu-jupyter[lab]"` (or `pip install ipywidgets`) and '
    "restart the kernel. "
    "%mgpu_queue and %mgpu_nodes show the same as text:"
)
NO_FRONT_END = (
    "The panel needs a notebook that shows widgets. %mgpu_queue and %mgpu_nodes show the same as text:"
)


SAME = "The panel is live where widgets are shown; %mgpu_queue and %mgpu_nodes show the same as text."


class Wanted(msgspec.Struct, frozen=True):
    """What a line asks for."""

    tab: str = "queue"
    job_id: str = ""


def read_line(line: str) -> Wanted | Help:
    """Return which tab is to be in front."""
    values = parsers.panel("%mgpu_panel").read(split_words(line))
    if isinstance(values, Help):
        return values
    tab = (values.tab or "queue").casefold()
    if tab not in TABS:
        raise InvalidRequest(
            "usage", f"There is no tab {values.tab!r}: write %mgpu_panel queue, gpus, submit or job ID."
        )
    if values.job and tab != "job":
        raise InvalidRequest("usage", f"{values.job} goes with job, as in `%mgpu_panel job {values.job}`.")
    return Wanted(tab, job_id_of(values.job) if values.job else "")


def missing(shell: object) -> str:
    """Return why no widget can be shown, or an empty string."""
    if getattr(shell, "kernel", None) is None:
        return NO_FRONT_END
    return "" if importlib.util.find_spec("ipywidgets") else NO_WIDGETS


class Panels:
    """The panels of one kernel: one for each cell; a cell that runs again replaces its own.

    They have a client of their own: its messages about lost connections do not belong into a running cell.
    """

    def __init__(self, shell: Any, client: Client) -> None:
        self._shell = shell
        self._client = client
        self._by_cell: dict[str, Any] = {}
        self._busy = False
        events = getattr(shell, "events", None)
        if events is not None:
            events.register("pre_run_cell", self._runs)
            events.register("post_run_cell", self._ran)

    def open(self, wanted: Wanted, namespace: Mapping[str, object]) -> Any:
        """Return a live panel, in place of the one that this cell had."""
        from mgpu_jupyter.client.live import mirror_of
        from mgpu_jupyter.notebook.panel.panel import Panel

        cell = self._cell()
        self._by_cell = {key: panel for key, panel in self._by_cell.items() if not panel.closed}
        if (before := self._by_cell.pop(cell, None)) is not None:
            before.widget.close()
            before.close()
        made = Panel(
            self._client,
            mirror_of(self._client),
            namespace,
            tab=wanted.tab,
            job_id=wanted.job_id,
            is_busy=lambda: self._busy,
        )
        self._by_cell[cell] = made
        made.open()
        return made

    def show(self, wanted: Wanted, namespace: Mapping[str, object]) -> None:
        """Open a panel and display it, with a sentence for front ends that show no widgets."""
        from IPython.display import display

        made = self.open(wanted, namespace)
        bundle = made.widget._repr_mimebundle_()
        bundle = dict(bundle[0] if isinstance(bundle, tuple) else bundle)
        seen = made.seen
        bundle["text/plain"] = f"{seen.free} of {seen.all_gpus} GPUs free. {SAME}"
        publish: Callable[..., object] = display
        publish(bundle, raw=True)

    def close(self) -> None:
        """End all panels."""
        for panel in self._by_cell.values():
            panel.close()
        self._by_cell.clear()

    def _cell(self) -> str:
        """Return the id of the running cell; in front ends without ids there is one panel at a time."""
        get: Callable[[], Mapping[str, Any]] | None = getattr(
            getattr(self._shell, "kernel", None), "get_parent", None
        )
        parent = get() if get is not None else {}
        return str((parent.get("metadata") or {}).get("cellId", ""))

    def _runs(self, *_: object) -> None:
        self._busy = True

    def _ran(self, *_: object) -> None:
        self._busy = False


def plain(client: Client, wanted: Wanted) -> str:
    """Return the same as text, for front ends without widgets."""
    from mgpu_jupyter.client.reasons import as_lines
    from mgpu_jupyter.notebook.tables import Queue, nodes_table

    if wanted.tab == "gpus":
        return repr(nodes_table(client.nodes()))
    if wanted.tab == "job" and wanted.job_id:
        return "\n".join(as_lines(client.explain(wanted.job_id), time.time()))
    jobs = [job.snapshot for job in client.jobs(state="active") if job.snapshot]
    return repr(Queue(jobs, client.nodes(), time.time()))
