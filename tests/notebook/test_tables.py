"""Answers, nodes and jobs of before as tables and texts of a cell; which job a cell had."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.errors import InvalidRequest, MgpuError
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say, a_node
from mgpu_jupyter.model.explanations import (
    Ahead,
    Excluded,
    Explanation,
    Offer,
    Record,
    Term,
    UnitAnswer,
)
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState, Origin
from mgpu_jupyter.notebook import attaching
from mgpu_jupyter.notebook.remember import Memory, mark
from mgpu_jupyter.notebook.tables import Answer, Queue, nodes_table
from tests.notebook.test_header import NOW, a_job
from tests.notebook.visible import visible


def test_an_answer_as_tables() -> None:
    out = Excluded(check="c", text="Taken.", never=False, count=3, nodes=(NodeId("n1"), NodeId("n2")))
    told = Explanation(
        verdict="not_now",
        code="busy",
        text="Not now.",
        job_id=JobId("K7P2M9QX"),
        units=(UnitAnswer(first=1, count=1, needs="2 GPUs", missing=1, would_do=0, excluded=(out,)),),
        offers=(Offer(text="1 GPU", flags=("--gpus 1", "-N 1"), patch={}),),
        ahead=(Ahead(job_id=JobId("AAAA1111"), user="ann", gpus=2),),
        ahead_count=4,
        terms=(Term(name="age", amount=1.23456, points=1.5), Term(name="none", amount=1.0, points=0.0)),
        priority=1.5,
        history=(Record(at=NOW, code="x", text="Earlier."),),
    )
    page = visible(Answer(told, NOW)._repr_html_())
    start = page.index("In its place, this would start now:")
    assert page[0] == "Not now."
    assert page[start:] == [
        *("In its place, this would start now:", "Change", "Flags", "Where", "1 GPU", "--gpus 1, -N 1"),
        *("Unit", "Needs", "Nodes", "Why not", "1", "2 GPUs", "n1, n2 … (3)", "Taken."),
        *("4 ahead of it:", "Job", "User", "GPUs", "AAAA1111", "ann", "2"),
        *("Priority 1.50, in hours of waiting:", "Term", "Amount", "Points", "age", "1.235", "+1.50"),
        *("What it was told before:", "At", "Answer", page[-2], "Earlier."),
    ]
    bare = replace(told, job_id=None, units=(), ahead=(), terms=(), history=(), priority=None)
    assert "This would start now:" in visible(Answer(bare, NOW)._repr_html_())
    whole = replace(out, count=2)
    shown = replace(told, units=(replace(told.units[0], excluded=(whole,)),))
    assert "n1, n2 (2)" in visible(Answer(shown, NOW)._repr_html_())


def test_nodes_as_a_table() -> None:
    gpu = a_node().gpus[0]
    nodes = (
        replace(
            a_node("a"),
            gpus=(gpu, replace(gpu, index=1, job_id=JobId("K7P2M9QX"), user="ann", utilisation_percent=49.6)),
        ),
        replace(a_node("b"), gpus=(), gpu_note="NVML is missing.", state=NodeState.DRAINING, reason="Disk."),
        replace(a_node("c"), gpus=()),
        replace(a_node("d"), gpus=(replace(gpu, simulated=False),), gpu_note="MIG is on."),
        replace(a_node("e"), gpus=(gpu,), gpu_note="Simulated."),
        replace(a_node("f"), gpus=(replace(gpu, state="unhealthy"),)),
    )
    table = nodes_table(nodes)
    assert table.caption == "3 of 5 GPUs free (simulated)"
    assert [(row[0], row[1], row[2], row[4], row[5]) for row in table.rows] == [
        ("a", "online", "0: Simulated GPU (simulated)", "", "free"),
        ("a", "online", "1: Simulated GPU (simulated)", "50 %", "K7P2M9QX of ann"),
        ("b", "draining: Disk.", "NVML is missing.", "", ""),
        ("c", "online", "no GPU", "", ""),
        ("d", "online", "MIG is on.", "", ""),
        ("d", "online", "0: Simulated GPU", "", "free"),
        ("e", "online", "0: Simulated GPU (simulated)", "", "free"),
        ("f", "online", "0: Simulated GPU (simulated)", "", "unhealthy"),
    ]
    assert nodes_table(()).caption == ""
    assert "No machines yet" in repr(nodes_table(()))
    assert visible(Queue((), (), NOW)._repr_html_()) == [
        *("Running Jobs", "No running jobs", "Queue", "No queued jobs", "Cluster Status"),
        "No machines yet: run `mgpu_node --node-id NAME` on a machine with GPUs.",
    ]
    over = Queue((a_job(JobState.COMPLETED),), nodes[1:2], NOW)
    page = visible(over._repr_html_())
    assert page[page.index("Finished Jobs") :][-7:] == [
        *("Cluster Status", "Node", "State", "Reason", "b", "draining", "Disk.")
    ]


# --- jobs of before -------------------------------------------------------------------------------------


def test_output_of_before() -> None:
    says = (Say(b"a\nb\n"), Say(b"c\nd", rank=1))
    mock = MockTransport(lambda _: Play(output=says))
    client = Client(transport=mock)
    client.submit_spec(JobSpec(command=("x",), nodes=2))
    client.submit_spec(JobSpec(command=("x",), array="0-1"))
    one = "MOCK0000"
    assert attaching.logs(client, one, None, None) == "0: a\n0: b\n1: c\n1: d\n"
    assert attaching.logs(client, one, 1, None) == "c\nd"
    assert attaching.logs(client, one, None, 1) == "0: b\n1: d\n"
    assert attaching.logs(client, one, 0, 1) == "b\n"
    assert attaching.logs(client, "ARRA0001", None, 1) == "b\nb\n"
    assert attaching.logs(client, "ARRA0001", 1, 1) == "dd"
    with pytest.raises(InvalidRequest, match="Name the job, as in `%mgpu_logs R4T8W2ZB`"):
        attaching.logs(client, None, None, None)
    with pytest.raises(MgpuError, match="There is no job NONE0000"):
        attaching.find(client, "NONE0000")


def test_the_jobs_of_a_notebook() -> None:
    plays = iter((Play(), Play(waits=True, reason="Busy."), Play(hold=True)))
    mock = MockTransport(lambda _: next(plays))
    client = Client(transport=mock)
    origin = Origin(notebook=Memory(None, {"JPY_SESSION_NAME": "/a.ipynb"}).notebook)
    client.submit_spec(JobSpec(command=("x",), origin=origin))
    client.submit_spec(JobSpec(command=("y",), name="n", origin=origin))
    client.submit_spec(JobSpec(command=("z",), array="7"))
    table = attaching.jobs_of(client, origin.notebook)
    assert table.caption == "Jobs of this notebook; `%mgpu_attach ID` shows one:"
    assert [(row[0], row[1], row[2], row[4]) for row in table.rows] == [
        ("MOCK0001", "n", "queued", "Busy."),
        ("MOCK0000", "x", "completed", "Done in 1.0 s on node-1, 1 simulated GPU, exit 0"),
    ]
    mine = attaching.jobs_of(client, "")
    assert mine.caption == "This front end does not say which notebook it is. Your newest jobs:"
    assert [row[0] for row in mine.rows] == ["MOCK0002 of ARRA0002", "MOCK0001", "MOCK0000"]
    assert repr(attaching.jobs_of(client, "f" * 16)).endswith("No job came from this notebook.")
    assert repr(attaching.jobs_of(Client(transport=MockTransport()), "")).endswith("You have no jobs.")


class Kernel:
    """A shell whose front end tells of cell and request."""

    def __init__(self, **parent: Any) -> None:
        self.parent: Any = parent
        self.user_ns: dict[str, object] = {}

    def get_parent(self) -> Any:
        return self.parent


def test_where_a_cell_is() -> None:
    kernel = Kernel(metadata={"cellId": "c1"}, header={"msg_id": "m1"})
    memory = Memory(kernel, {})
    assert (memory.notebook, memory.origin(["a"], None)) == ("", None)
    kernel.user_ns["__vsc_ipynb_file__"] = "/a.ipynb"
    path = memory.notebook
    assert path
    assert Memory(kernel, {"JPY_SESSION_NAME": "/b.ipynb"}).notebook not in ("", path)
    first = memory.origin(["--gpus", "1", "--again"], "x")
    assert first is not None
    assert first == memory.origin(["--gpus", "1"], "x")
    assert first != memory.origin(["--gpus", "2"], "x")
    assert first.source != getattr(memory.origin(["--gpus", "1"], None), "source", "")
    kernel.parent = {"metadata": {"cellId": "c2"}}
    assert getattr(memory.origin(["--gpus", "1"], "x"), "cell", "") != first.cell
    kernel.parent = None
    assert memory.origin(["--gpus", "1"], "x") is not None


def test_the_same_cell_finds_its_job_of_before() -> None:
    mock = MockTransport(lambda _: Play(hold=True))
    client = Client(transport=mock)
    kernel = Kernel(metadata={"cellId": "c1"}, header={"msg_id": "m1"})
    memory = Memory(kernel, {"JPY_SESSION_NAME": "/a.ipynb"})
    origin = memory.origin(["x"], None)
    assert memory.still_runs(client, origin) is None
    job = client.submit_spec(JobSpec(command=("x",), origin=origin))
    memory.submitted(job, origin)
    assert memory.still_runs(client, origin) is None
    kernel.parent = {"metadata": {"cellId": "c1"}, "header": {"msg_id": "m2"}}
    found = memory.still_runs(client, origin)
    assert found is not None
    assert found.id == job.id
    client.cancel(job.id)
    assert memory.still_runs(client, origin) is None
    array = client.submit_spec(JobSpec(command=("x",), array="0-1", origin=origin))
    fresh = Memory(kernel, {"JPY_SESSION_NAME": "/a.ipynb"}).still_runs(client, origin)
    assert fresh is not None
    assert fresh.id == array.id
    assert mark(fresh) == {"mgpu": {"job_id": array.id, "array": True}}
    assert mark(job) == mark("MOCK0000") == {"mgpu": {"job_id": "MOCK0000"}}
