"""Which jobs a line means: the queue's flags, what to cancel, and the sentence for each order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models, requests
from mgpu_jupyter.client import choice
from mgpu_jupyter.client.mock import MockTransport
from mgpu_jupyter.client.parser import Parser
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.model.job import JobState
from tests.client.answers import Answers, client_of
from tests.client.test_queue_rows import a_job

JOBS = (
    a_job("JOB00001", partition="gpu", name="train", nodes=("n1", "n2"), nodes_wanted=2),
    a_job("JOB00002", partition="cpu", name="test", nodes=("n3",)),
    a_job("JOB00003", array_id="ARRA0000", array_index=0, nodes=("n2",)),
)
CLUSTER = MockTransport()._cluster()


def parsed(line: str) -> Any:
    parser = Parser("mgpu_queue", "mgpu_queue")
    choice.add_selection(parser)
    return parser.read(line.split())


def selected(line: str, *bodies: object) -> tuple[list[str], Answers]:
    client, answers = client_of(*bodies, models.JobList(jobs=JOBS))
    return [job.id for job in choice.selected(client, parsed(line))], answers


ALL = ["JOB00001", "JOB00002", "JOB00003"]


@pytest.mark.parametrize(
    ("line", "query", "found"),
    [
        ("", {"state": "active"}, ALL),
        ("--all", {}, ALL),
        ("-u ann", {"state": "active", "user": "ann"}, ALL),
        ("-t R,PD", {"state": "running,queued"}, ALL),
        ("-t all", {}, ALL),
        ("--all -t R", {"state": "running"}, ALL),
        ("-j job00002,JOB00009", {}, ["JOB00002"]),
        ("-j arra0000", {}, ["JOB00003"]),
        ("-j JOB00001 -t R", {"state": "running"}, ["JOB00001"]),
        ("-p gpu,cpu", {"state": "active"}, ["JOB00001", "JOB00002"]),
        ("-p none", {"state": "active"}, []),
        ("-w n[2-3]", {"state": "active"}, ALL),
        ("-w n1", {"state": "active"}, ["JOB00001"]),
        ("-n test,train", {"state": "active"}, ["JOB00001", "JOB00002"]),
        ("-p gpu -n test", {"state": "active"}, []),
    ],
)
def test_the_jobs_of_a_queue(line: str, query: dict[str, str], found: list[str]) -> None:
    ids, answers = selected(line)

    assert ids == found
    assert answers.asked == [("GET", "jobs", query | {"limit": str(models.MAX_PAGE)}, None)]


def test_my_own_jobs() -> None:
    ids, answers = selected("--me", CLUSTER)

    assert ids == ALL
    assert [(path, query.get("user")) for _, path, query, _ in answers.asked] == [
        ("cluster", None),
        ("jobs", "me"),
    ]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("--me -u ann", "--me and -u exclude each other: leave one out."),
        ("-j ,", "-j names no job: write it like -j R4T8W2ZB,A1B2C3D4."),
    ],
)
def test_a_choice_that_is_none(line: str, told: str) -> None:
    client, answers = client_of(CLUSTER)
    with pytest.raises(InvalidRequest) as caught:
        choice.selected(client, parsed(line))
    assert (caught.value.message, answers.asked) == (told, [])


@pytest.mark.parametrize(
    ("line", "queries", "ids"),
    [
        ("job00001 arra0000", [], ["JOB00001", "ARRA0000"]),
        ("--all", [None, {"state": "active", "user": "me"}], ALL),
        ("-u ann", [{"state": "active", "user": "ann"}], ALL),
        ("-u ann --name n", [{"state": "active", "user": "ann", "name": "n"}], ALL),
        ("--name n", [None, {"state": "active", "user": "me", "name": "n"}], ALL),
    ],
)
def test_what_to_cancel(line: str, queries: list[dict[str, str] | None], ids: list[str]) -> None:
    bodies: Iterator[object] = (CLUSTER if query is None else models.JobList(jobs=JOBS) for query in queries)
    client, answers = client_of(*bodies, None)
    values = choice.cancel_parser("mgpu_cancel").read(line.split())

    assert choice.chosen(client, values) == ids  # type: ignore[arg-type]
    most = {"limit": str(models.MAX_PAGE)}
    assert [one[1:3] for one in answers.asked] == [
        ("cluster", {}) if query is None else ("jobs", query | most) for query in queries
    ]


@pytest.mark.parametrize("line", ["", "JOB00001 --all", "JOB00001 -u ann", "JOB00001 --name n"])
def test_ids_or_a_rule(line: str) -> None:
    client, answers = client_of(None)
    values = choice.cancel_parser("mgpu_cancel").read(line.split())
    with pytest.raises(InvalidRequest) as caught:
        choice.chosen(client, values)  # type: ignore[arg-type]
    told = "Usage: mgpu_cancel JOB…, or one of --all, -u USER and --name NAME."
    assert (caught.value.message, answers.asked) == (told, [])


ONE, TWO = (JobId("JOB00001"),), (JobId("JOB00001"), JobId("JOB00002"))
REFUSED = Answer(status=404, body=b'{"code":"no-such-job","message":"There is no job JOB00001."}')


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((JobState.STOPPING, ()), (True, "Job JOB00001 cancelled successfully.")),
        ((JobState.CANCELLED, ()), (True, "Job JOB00001 cancelled successfully.")),
        ((JobState.CANCELLED, ONE), (True, "Array JOB00001 (1 job) cancelled successfully.")),
        ((JobState.QUEUED, TWO), (True, "Array JOB00001 (2 jobs) cancelled successfully.")),
        (
            (JobState.COMPLETED, ()),
            (False, "Cancel failed: Job JOB00001 has ended already (completed)."),
        ),
        (
            (JobState.FAILED, TWO),
            (False, "Cancel failed: Array JOB00001 (2 jobs) has ended already (failed)."),
        ),
        (REFUSED, (False, "Cancel failed: There is no job JOB00001.")),
    ],
)
def test_what_is_said_of_a_cancel(answer: Any, told: tuple[bool, str]) -> None:
    if not isinstance(answer, Answer):
        answer = requests.CancelAnswer(job_id=JobId("JOB00001"), state=answer[0], job_ids=answer[1])
    client, _ = client_of(answer)
    assert choice.cancel(client, "JOB00001") == told


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((), (True, "Job JOB00001 is held.")),
        (TWO, (True, "Array JOB00001 (2 jobs) is held.")),
        (REFUSED, (False, "There is no job JOB00001.")),
    ],
)
def test_what_is_said_of_an_order(answer: Any, told: tuple[bool, str]) -> None:
    if not isinstance(answer, Answer):
        answer = requests.OrderAnswer(job_id=JobId("JOB00001"), state=JobState.QUEUED, job_ids=answer)
    client, answers = client_of(answer)
    assert choice.order(client, "JOB00001", lambda job: job.hold(), "is held") == told
    assert answers.asked[0][:2] == ("PATCH", "jobs/JOB00001")
