"""Lists, the pool and explanations of the server in memory."""

from __future__ import annotations

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, NodeId
from mgpu_jupyter.api import administration, models, traces
from mgpu_jupyter.client import Client, Timeouts
from mgpu_jupyter.client.mock import STARTED_AT, MockTransport, Play, a_node, explanation, trace
from mgpu_jupyter.client.transport import Request
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec, JobState, Origin
from tests.client.test_mock import JOB, SAYS, VIEW


def listed(mock: MockTransport, **query: str) -> list[str]:
    found = msgspec.json.decode(mock.send(Request(path="jobs", query=query)).body, type=models.JobList)
    return [job.id for job in found.jobs]


def test_lists() -> None:
    plays = iter((Play(), Play(exit_code=1), Play(hold=True), Play(waits=True)))
    mock = MockTransport(lambda _: next(plays))
    client = Client(transport=mock)
    client.submit_spec(JobSpec(command=("x",), name="a"))
    client.submit_spec(JobSpec(command=("x",), origin=Origin(notebook="a" * 32)))
    client.submit_spec(JobSpec(command=("x",), array="0-1"))
    every = ["MOCK0003", "MOCK0002", "MOCK0001", "MOCK0000"]

    assert listed(mock) == every
    assert listed(mock, state="active") == every[:2]
    assert listed(mock, state="queued,failed") == ["MOCK0003", "MOCK0001"]
    assert listed(mock, state="active,completed") == ["MOCK0003", "MOCK0002", "MOCK0000"]
    assert listed(mock, user="me") == every
    assert listed(mock, user="you") == []
    assert listed(mock, name="a") == ["MOCK0000"]
    assert listed(mock, array="ARRA0002") == every[:2]
    assert listed(mock, notebook="a" * 32) == ["MOCK0001"]
    assert listed(mock, notebook="m") == []
    assert listed(mock, limit="2") == every[:2]
    assert listed(mock, limit="2", cursor="2") == every[2:]
    pages = [
        msgspec.json.decode(mock.send(Request(path="jobs", query={"limit": size})).body)["next_cursor"]
        for size in ("3", "4")
    ]
    assert pages == ["3", None]
    assert all(job.snapshot is not None and job.snapshot.failure is None for job in client.jobs())


def test_the_pool() -> None:
    mock = MockTransport(lambda _: Play(output=SAYS), nodes=[a_node("a", 1), a_node("b", 2)])
    client = Client(transport=mock)
    client.submit_spec(JobSpec(command=("x",)))

    assert client.nodes() == (a_node("a", 1), a_node("b", 2))
    assert client.cluster() == models.Cluster(
        name="mock",
        user="me",
        admin=True,
        nodes=2,
        nodes_online=2,
        gpus=3,
        gpus_free=3,
        simulated=True,
        jobs={},
        notice="",
        seq=0,
    )
    assert client.health() == models.Health(status="ok", version="0")
    assert client.admin.purge(0.0) == administration.PurgeAnswer(jobs=1, output_bytes=14)
    assert Client(transport=MockTransport()).nodes() == (a_node(),)


def test_a_node() -> None:
    node = a_node()
    assert (node.id, node.host, node.address, node.arch, node.cpus, node.memory_bytes, len(node.gpus)) == (
        *("node-1", "node-1", "127.0.0.1", "x86_64"),
        8,
        32 << 30,
        4,
    )
    assert node.gpus[1] == models.Gpu(
        index=1,
        uuid=GpuUuid("GPU-node-1-1"),
        name="Simulated GPU",
        memory_bytes=80 << 30,
        simulated=True,
    )


def test_explanations_and_traces() -> None:
    client = Client(transport=MockTransport(lambda _: Play(waits=True, reason="Busy.")), timeouts=Timeouts())
    client.submit_spec(JobSpec(command=("x",)))

    told = client.explain(JOB)
    assert told == explanation("Busy.", JOB)
    assert told.text == "Not now: Busy."
    assert client.dry_run_spec(JobSpec(command=("x",))) == explanation("Busy.")
    assert (told.verdict, told.code, told.place) == ("not_now", "busy", 1)
    out = explanations.Excluded(check="gpus", text="Busy.", never=False, count=1, nodes=(NodeId("node-1"),))
    unit = explanations.UnitAnswer(first=0, count=1, needs="2 GPUs", missing=1, would_do=0, excluded=(out,))
    where = (explanations.Where(node=NodeId("node-1"), gpus=(0,)),)
    offer = explanations.Offer(text="1 GPU instead of 2", flags=("--gpus 1",), patch={"gpus": 1}, where=where)
    assert (told.units, told.offers) == ((unit,), (offer,))
    now = explanation()
    assert (now.verdict, now.code, now.where, now.job_id) == ("now", "now", where, None)

    assert client.trace(JOB) == trace(VIEW_OF_WAIT)
    assert trace(VIEW) == traces.Trace(
        job_id=JOB,
        name="",
        user="me",
        command="x y",
        state=JobState.QUEUED,
        submitted_at=STARTED_AT - 1,
        now=STARTED_AT + 1,
        attempts=(
            traces.AttemptTrace(
                attempt=1,
                epoch=1,
                queued_at=STARTED_AT - 1,
                steps=(
                    traces.Step(step="submitted", at=STARTED_AT - 1, seconds=0.0, text="by me"),
                    traces.Step(
                        step="started", at=STARTED_AT, seconds=1.0, text="node node-1, host host-1, pid 7"
                    ),
                ),
            ),
        ),
    )
    wrong = trace(msgspec.structs.replace(VIEW, mismatches=("Elsewhere.",)))
    assert (wrong.ok, wrong.mismatches) == (False, ("Elsewhere.",))


VIEW_OF_WAIT = msgspec.structs.replace(VIEW, command="x", reason="Busy.")
