"""Every piece of HTML that notebooks show, and every place that shows foreign text at all: hostile text stays
text in each.

`PLACES` is the table of all of them: by which test each is looked at, or why it is not. A new place gets a
line here.
"""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.model.job import JobState, NodeState
from mgpu_jupyter.notebook import notes, tables
from mgpu_jupyter.notebook.header import done_html, html_of
from mgpu_jupyter.notebook.header_text import Facts, Waits
from mgpu_jupyter.notebook.panel import gpu_views, job_views, rows, submit_views
from mgpu_jupyter.notebook.panel.explained import explained_html
from mgpu_jupyter.notebook.panel.form import Form, More
from mgpu_jupyter.notebook.panel.job_views import Log, log_html
from mgpu_jupyter.notebook.panel.panel import stale_html
from mgpu_jupyter.notebook.panel.seen import Seen
from mgpu_jupyter.notebook.panel.submit_tab import cell_button
from tests import hostile
from tests.notebook.panel_world import NOW, FakeView, gpu, job, node
from tests.notebook.test_panel_views import _answer

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PLACES = {
    "terminal": "tests/cli/test_hostile_terminal.py::test_every_command_in_a_terminal",
    "pipe": "tests/cli/test_hostile_terminal.py::test_every_command_in_a_pipe",
    "JSON": "tests/protocol/test_text.py::test_a_json_document_can_be_shown_and_read",
    "logs": "tests/protocol/test_text.py::test_a_record_of_the_log_is_one_line",
    "tables, headers and panels as HTML": "tests/notebook/test_hostile_html.py::test_html_stays_what_it_is",
    "sidebar, views and notifications": "tests/browser/test_sidebar.py::test_whatever_a_hostile_server_sends_is_text",  # noqa: E501
    "names that the server takes, in a browser": "tests/browser/test_sidebar.py::test_hostile_names_are_text",
    "output of a job": "tests/cli/test_cli.py::test_srun_keeps_the_jobs_streams_apart_from_its_own_notes",
}
MISSING = {
    "CSV": "nothing is exported as CSV; traces are only read",
    "Prometheus": "there are no metrics yet",
}


class Shape(HTMLParser):
    """What a browser would make of a text: elements and the names of their attributes, and addresses in
    them.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: set[tuple[str, frozenset[str]]] = set()
        self.addresses: set[str | None] = set()
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add((tag, frozenset(name for name, _ in attrs)))
        self.addresses |= {
            value for name, value in attrs if name in ("href", "src", "action", "srcdoc", "xlink:href")
        }


def a_job(text: str, state: JobState) -> models.Job:
    nodes = () if state is JobState.QUEUED else (text,)
    made = job("HOSTILE1", state, name=text, user=text, command=text, reason=text, nodes=nodes)
    place = models.Placement(
        node=NodeId(text), rank=0, gpus=(), gpu_indices=(), started_at=NOW, exit_code=1, note=text
    )
    return replace(made, id=JobId(text), placements=(place,) if nodes else ())


def told(text: str) -> Seen:
    held = gpu(0, job_id="HOSTILE1", user=text, state="held", name=text, reason=text)
    orders = models.NodeOrders(state=NodeState.DRAINING, reason=text, by=text, at=NOW)
    one = node(
        "n1",
        [held, gpu(1, state="outside", reason=text)],
        state=NodeState.DRAINING,
        orders=orders,
        rack=text,
        switch=text,
        host=text,
    )
    jobs = [
        job("HOSTILE1", JobState.RUNNING, name=text, user=text, nodes=("n1",)),
        job("HOSTILE2", reason=text, name=text),
    ]
    return Seen(FakeView([one], jobs), NOW)  # type: ignore[arg-type]


def log(text: str) -> str:
    made = Log()
    made.feed(0, "stdout", (text + "\n").encode())
    return log_html(made, None, text)


def stale(text: str) -> str:
    view = FakeView(state="stale")
    view.problem = text
    return stale_html(view, NOW)


HTML: dict[str, Callable[[str], str]] = {
    "table": lambda text: Table(text, (text,), [(text,)], text)._repr_html_(),
    "empty table": lambda text: Table(text, (text,), [], text)._repr_html_(),
    "queue": lambda text: tables.Queue(
        [a_job(text, state) for state in JobState], list(told(text).view.nodes.values()), NOW
    )._repr_html_(),
    "nodes": lambda text: tables.nodes_table(
        [replace(one, id=NodeId(text)) for one in told(text).view.nodes.values()]
    )._repr_html_(),
    "answer": lambda text: tables.Answer(_answer(text), NOW)._repr_html_(),
    "note": lambda text: notes.bundle(text)["text/html"],
    **{
        f"header, {state}": lambda text, state=state: html_of(
            Facts(
                job=a_job(text, state),
                now=NOW,
                waits=Waits(reason=text),
                explained=(text,),
                last_lines=(text,),
                other_lines=((1, (text,)),),
                hint=text,
                trouble=text,
            )
        )
        for state in JobState
    },
    "header, done": lambda text: done_html(a_job(text, JobState.COMPLETED), [text]),
    "rows": lambda text: "".join(
        rows.row_html(told(text), row, chosen=True) for row in rows.rows_of(told(text), mine=False, text="")
    ),
    "no rows": rows.nothing,
    "GPUs": lambda text: (
        gpu_views.node_html(told(text), NodeId("n1"), {}, NOW)
        + gpu_views.walls_html(told(text), [NodeId("n1")])
    ),
    "head of a job": lambda text: "".join(
        job_views.head_html(told(text), one) for one in told(text).view.jobs.values()
    ),
    "efficiency": lambda text: job_views.efficiency_html(4, 1.3, text, text),
    "plots": lambda text: job_views.plots_html(
        [job_views.GpuLine(text, 0, [NOW], [5.0], 5.0)], NOW, NOW + 5, 2.0, mine=True
    ),
    "line of a form": lambda text: submit_views.magic_html(
        Form(name=text, command=text, code=text, more=More(flags=text, values={"env": text}))
    ),
    "answer of a form": lambda text: submit_views.answer_html(None, text, NOW, checking=False),
    "button": cell_button,
    "explained": lambda text: explained_html(_answer(text), NOW, text),
    "log": log,
    "stale": stale,
}


HARMLESS = (
    "word",
    " ",
    "one: two",
    "one\ntwo",
    "A sentence: and what to do.\n",
    "many words that are cut somewhere " * 5,
)


@pytest.mark.parametrize("place", HTML)
def test_html_stays_what_it_is(place: str) -> None:
    """The same elements and attributes as for a harmless word, no address that a text chose, and nothing
    unseen.
    """
    usual = Shape("".join(HTML[place](text) for text in HARMLESS))
    for text in hostile.sendable():
        made = HTML[place](text[:300])
        shape = Shape(made)
        assert shape.elements <= usual.elements, text
        assert shape.addresses <= usual.addresses, text
        assert [char for char in made if not char.isprintable() and char not in "\n\t"] == [], text


def test_every_place_is_looked_at_or_said_to_be_missing() -> None:
    for where in PLACES.values():
        path, _, name = where.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text()
    sources = [
        path.read_text()
        for package in ("mgpu_agent", "mgpu_jupyter")
        for path in (ROOT / package).rglob("*.py")
    ]
    assert set(MISSING) == {"CSV", "Prometheus"}
    assert [
        source
        for source in sources
        if "csv.writer" in source or "DictWriter" in source or "prometheus" in source.lower()
    ] == []
