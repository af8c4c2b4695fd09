"""The server in memory answers like a server: whole answers of each route, and each way that a job goes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models, requests
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import STARTED_AT, MockTransport, Play, Say
from mgpu_jupyter.client.transport import Answer, Request
from mgpu_jupyter.model.job import JobSpec, JobState

SAYS = (Say(b"one\n"), Say(b"two\n", rank=1), Say(b"three\n"))
JOB = JobId("MOCK0000")


def a_mock(count: int = 1, *, spec: JobSpec = JobSpec(command=("x", "y")), **play: Any) -> MockTransport:  # noqa: B008 - frozen
    mock = MockTransport(lambda _: Play(**play))
    client = Client(transport=mock)
    for _ in range(count):
        client.submit_spec(spec)
    return mock


def asked(mock: MockTransport, method: str, path: str, body: object = None, **query: str) -> tuple[int, Any]:
    data = body if isinstance(body, bytes) else None if body is None else msgspec.json.encode(body)
    answer = mock.send(Request(method=method, path=path, query=query, body=data))
    return answer.status, msgspec.json.decode(answer.body)


VIEW = models.Job(
    id=JOB,
    state=JobState.QUEUED,
    user="me",
    name="",
    command="x y",
    nodes=(),
    gpus=1,
    exit_code=None,
    attempt=0,
    submitted_at=STARTED_AT - 1,
    started_at=None,
    ended_at=None,
    reason="",
    place=1,
)
PLACED = models.Placement(
    node=NodeId("node-1"),
    rank=0,
    gpus=(GpuUuid("GPU-0-0"),),
    gpu_indices=(0,),
    simulated=True,
    started_at=STARTED_AT,
)
RUNS = msgspec.structs.replace(
    VIEW,
    state=JobState.RUNNING,
    nodes=(NodeId("node-1"),),
    master_node=NodeId("node-1"),
    attempt=1,
    started_at=STARTED_AT,
    place=None,
    placements=(PLACED,),
)


def over(state: JobState, code: int, **changes: Any) -> models.Job:
    placed = msgspec.structs.replace(
        PLACED,
        ended_at=STARTED_AT + 1,
        exit_code=None if state is JobState.CANCELLED else code,
        signal=15 if state is JobState.CANCELLED else None,
    )
    return msgspec.structs.replace(
        RUNS, state=state, ended_at=STARTED_AT + 1, exit_code=code, placements=(placed,), **changes
    )


@pytest.mark.parametrize(
    ("play", "cancels", "state", "view"),
    [
        ({"waits": True}, False, JobState.QUEUED, VIEW),
        (
            {"waits": True, "reason": "Busy.", "code": "busy"},
            False,
            JobState.QUEUED,
            msgspec.structs.replace(VIEW, reason="Busy.", reason_code="busy"),
        ),
        ({"hold": True}, False, JobState.RUNNING, RUNS),
        ({}, False, JobState.COMPLETED, over(JobState.COMPLETED, 0)),
        (
            {"exit_code": 3, "output": tuple(Say(b"%d\n" % number) for number in range(7))},
            False,
            JobState.FAILED,
            over(
                JobState.FAILED,
                3,
                reason="It ended with exit code 3 on node-1.",
                reason_code="exit",
                failure=models.Failure(
                    rank=0, node=NodeId("node-1"), exit_code=3, last_lines=("2", "3", "4", "5", "6")
                ),
            ),
        ),
        (
            {"hold": True},
            True,
            JobState.CANCELLED,
            over(JobState.CANCELLED, 143, reason="Cancelled by me.", reason_code="cancelled"),
        ),
        (
            {"waits": True},
            True,
            JobState.CANCELLED,
            msgspec.structs.replace(
                VIEW,
                state=JobState.CANCELLED,
                ended_at=STARTED_AT + 1,
                place=None,
                reason="Cancelled by me.",
                reason_code="cancelled",
            ),
        ),
        ({"final": JobState.TIMEOUT}, False, JobState.TIMEOUT, over(JobState.TIMEOUT, 0)),
    ],
)
def test_a_job_in_each_state(play: dict[str, Any], cancels: bool, state: JobState, view: models.Job) -> None:
    mock = a_mock(**play)
    entry = mock.jobs[JOB]
    if cancels:
        entry.cancelled.set()

    assert (entry.now, entry.is_over) == (state, state.is_final)
    assert Client(transport=mock).job(JOB).snapshot == view


def test_a_held_job_says_so() -> None:
    mock = a_mock(spec=JobSpec(command=("x",), hold=True), waits=True)
    found = Client(transport=mock).job(JOB).snapshot
    assert found is not None
    told = "It is held: release it with `mgpu release MOCK0000`."
    assert (found.reason, found.reason_code, found.place) == (told, "held", None)


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (JobSpec(script="a = 1\nb"), {"command": "a = 1"}),
        (
            JobSpec(command=("x",), name="n", priority=3, time_limit_s=60.0, nodes=2, gpus_per_node=2),
            {
                "name": "n",
                "priority": 3,
                "time_limit_s": 60.0,
                "gpus": 4,
                "nodes": ("node-1", "node-2"),
            },
        ),
        (JobSpec(command=("x",), gpus=0), {"gpus": 0}),
        (JobSpec(command=("x",), distributed=True, nodes=2), {"distributed": True}),
    ],
)
def test_a_job_is_what_was_asked_for(spec: JobSpec, fields: dict[str, Any]) -> None:
    found = Client(transport=a_mock(spec=spec, hold=True)).job(JOB).snapshot
    assert {name: getattr(found, name) for name in fields} == fields


def test_placements_of_several_nodes() -> None:
    spec = JobSpec(command=("x",), nodes=2, gpus_per_node=2)
    found = Client(transport=a_mock(spec=spec, hold=True, note="slow")).job(JOB).snapshot
    assert found is not None
    assert [(one.node, one.rank, one.gpu_indices, one.simulated, one.note) for one in found.placements] == [
        ("node-1", 0, (0, 1), True, "slow"),
        ("node-2", 1, (0, 1), True, "slow"),
    ]
    assert found.placements[1].gpus == ("GPU-1-0", "GPU-1-1")
    without = Client(transport=a_mock(spec=JobSpec(command=("x",), gpus=0), hold=True)).job(JOB).snapshot
    assert without is not None
    assert without.placements[0].simulated is False


def test_arrays_and_keys() -> None:
    mock = MockTransport(lambda _: Play(hold=True))
    client = Client(transport=mock)
    first = client.submit_spec(JobSpec(command=("x",)), key="k")
    assert client.submit_spec(JobSpec(command=("x",)), key="k").id == first.id
    array = client.submit_spec(JobSpec(command=("y",), array="3,5"))
    assert (array.id, [job.id for job in array.jobs]) == ("ARRA0001", ["MOCK0001", "MOCK0002"])  # type: ignore[attr-defined]
    assert [(one.array_id, one.array_index) for one in mock.jobs.values()] == [
        (None, None),
        ("ARRA0001", 3),
        ("ARRA0001", 5),
    ]
    assert [spec.command for spec in mock.specs] == [("x",), ("y",)]
    assert mock.array("ARRA0001") == [mock.jobs["MOCK0001"], mock.jobs["MOCK0002"]]


def test_a_key_that_is_known_tells_the_state_of_now() -> None:
    mock = MockTransport(lambda _: Play(hold=True))
    body, headers = msgspec.json.encode(JobSpec(command=("x",))), {"Idempotency-Key": "k"}
    request = Request(method="POST", path="jobs", body=body, headers=headers)
    states = [msgspec.json.decode(mock.send(request).body)["state"] for _ in range(2)]
    assert states == ["queued", "running"]
    assert mock.send(request).status == 201


def test_many_at_once() -> None:
    mock = MockTransport()
    items = [{"spec": {"command": ["x"]}, "key": "a"}, {"spec": {"command": ["y"]}, "key": "b"}]
    assert asked(mock, "POST", "jobs/bulk", {"jobs": items}) == (
        201,
        {"jobs": [{"job_id": "MOCK0000", "state": "queued"}, {"job_id": "MOCK0001", "state": "queued"}]},
    )
    status, again = asked(mock, "POST", "jobs/bulk", {"jobs": items[:1]})
    assert (status, again["jobs"][0]["state"]) == (201, "completed")
    items[1]["spec"] = {"command": 7}
    status, told = asked(mock, "POST", "jobs/bulk", {"jobs": items})
    assert (status, told["code"], told["details"]) == (400, "invalid", {"index": 1})


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "status", "code", "message"),
    [
        ("GET", "nothing", None, {}, 404, "not-found", "There is no nothing."),
        (
            "GET",
            "jobs/NONE0000",
            None,
            {},
            404,
            "no-such-job",
            "There is no job NONE0000: see `mgpu_queue --all`.",
        ),
        ("POST", "jobs/NONE0000/cancel", None, {}, 404, "no-such-job", None),
        ("POST", "jobs", b"{", {}, 400, "not-json", None),
        ("POST", "jobs", None, {}, 400, "not-json", None),
        ("POST", "jobs", {"command": 7}, {}, 400, "invalid", None),
        ("POST", "jobs", {}, {}, 400, "no-command", None),
        ("GET", "jobs", None, {"state": "odd"}, 400, "unknown-state", None),
        (
            "GET",
            "jobs",
            None,
            {"limit": "x"},
            400,
            "invalid",
            "The parameter limit is no whole number: see openapi.json.",
        ),
        ("GET", "jobs/MOCK0000/output", None, {"rank": "x"}, 400, "invalid", None),
        (
            "PATCH",
            "jobs/MOCK0000",
            {"hold": True},
            {},
            409,
            "job-over",
            "Job MOCK0000 completed: there is nothing to change any more.",
        ),
        (
            "POST",
            "jobs/MOCK0000/requeue",
            None,
            {},
            409,
            "job-over",
            "Job MOCK0000 completed: submit it again.",
        ),
    ],
)
def test_what_is_refused(
    method: str, path: str, body: object, query: dict[str, str], status: int, code: str, message: str | None
) -> None:
    found = asked(a_mock(), method, path, body, **query)
    assert (found[0], found[1]["code"]) == (status, code)
    assert message is None or found[1]["message"] == message
    if code != "invalid":
        assert found[1].get("details", {}) == {}


@pytest.mark.parametrize(
    ("play", "method", "path", "body", "status", "told"),
    [
        ({"waits": True}, "PATCH", "jobs/MOCK0000", {"hold": True}, 200, "queued"),
        ({"waits": True}, "PATCH", "jobs/MOCK0000", {"priority": 3}, 200, "queued"),
        ({"hold": True}, "PATCH", "jobs/MOCK0000", {"time_limit_s": 60}, 200, "running"),
        ({"hold": True}, "PATCH", "jobs/MOCK0000", {"release": True}, 200, "running"),
        ({"hold": True}, "POST", "jobs/MOCK0000/requeue", None, 202, "running"),
        ({"hold": True}, "POST", "jobs/MOCK0000/cancel", None, 202, "stopping"),
        ({"waits": True}, "POST", "jobs/MOCK0000/cancel", None, 202, "cancelled"),
        ({}, "POST", "jobs/MOCK0000/cancel", None, 202, "completed"),
    ],
)
def test_orders(play: dict[str, Any], method: str, path: str, body: object, status: int, told: str) -> None:
    assert asked(a_mock(**play), method, path, body) == (status, {"job_id": "MOCK0000", "state": told})


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"priority": 3}, "Job MOCK0000 has started: its priority matters no more."),
        (
            {"hold": True},
            "Job MOCK0000 has started: cancel it, or `mgpu requeue MOCK0000` and then hold it.",
        ),
    ],
)
def test_orders_that_come_too_late(change: dict[str, object], told: str) -> None:
    status, answer = asked(a_mock(hold=True), "PATCH", "jobs/MOCK0000", change)
    assert (status, answer["code"], answer["message"]) == (409, "job-started", told)


def test_an_array_is_cancelled_as_one() -> None:
    mock = a_mock(spec=JobSpec(command=("x",), array="0-1"), hold=True)
    answer = requests.CancelAnswer(
        job_id=JobId("ARRA0000"), state=JobState.STOPPING, job_ids=(JobId("MOCK0000"), JobId("MOCK0001"))
    )
    assert Client(transport=mock).cancel("ARRA0000") == answer
    assert all(entry.cancelled.is_set() for entry in mock.jobs.values())


def test_running_again_and_instead() -> None:
    mock = a_mock(spec=JobSpec(command=("x",), gpus=4), waits=True)
    client = Client(transport=mock)

    assert client.rerun(JOB).id == "MOCK0001"
    assert not mock.jobs[JOB].cancelled.is_set()
    assert client.replace(JOB, {"gpus": 2}).id == "MOCK0002"
    assert mock.jobs[JOB].cancelled.is_set()
    assert [spec.gpus for spec in mock.specs] == [4, 4, 2]
    assert mock.specs[1] == mock.specs[0]


@pytest.mark.parametrize(
    ("query", "data"),
    [
        ({}, b"one\nthree\n"),
        ({"rank": "1"}, b"two\n"),
        ({"rank": "2"}, b""),
        ({"offset": "4"}, b"three\n"),
        ({"offset": "2", "limit": "3"}, b"e\nt"),
        ({"tail": "3"}, b"ee\n"),
        ({"tail": "99"}, b"one\nthree\n"),
    ],
)
def test_output(query: dict[str, str], data: bytes) -> None:
    answer = a_mock(output=SAYS).send(Request(path="jobs/MOCK0000/output", query=query))
    assert answer == Answer(status=200, body=data)


def test_failures_come_first() -> None:
    mock = a_mock()
    mock.failures += [Answer(status=507), MgpuError("x", "Broken.")]
    assert mock.send(Request(path="health")).status == 507
    with pytest.raises(MgpuError, match="Broken"):
        mock.send(Request(path="health"))
    assert mock.send(Request(path="health")).status == 200
