"""`mgpu hold|release|requeue|update`, arrays on the command line, and how the queue shows them."""

from __future__ import annotations

import json

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import Client
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.client.words import numbers
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.tables import Queue
from tests.cli.test_cli import run


def a_mock(count: int = 1, **play: object) -> MockTransport:
    mock = MockTransport(lambda spec: Play(**{"hold": True, **play}))  # type: ignore[arg-type]
    for _ in range(count):
        Client(transport=mock).submit(["x"])
    return mock


@pytest.mark.parametrize(
    ("words", "method", "path", "body", "said"),
    [
        (
            ["hold", "mock0000"],
            "PATCH",
            "jobs/MOCK0000",
            {"priority": None, "time_limit_s": None, "hold": True, "release": False},
            "held",
        ),
        (
            ["release", "MOCK0000"],
            "PATCH",
            "jobs/MOCK0000",
            {"priority": None, "time_limit_s": None, "hold": False, "release": True},
            "released",
        ),
        (["requeue", "MOCK0000"], "POST", "jobs/MOCK0000/requeue", None, "queued again"),
        (
            ["update", "MOCK0000", "--priority", "3", "--time", "01:00:00"],
            "PATCH",
            "jobs/MOCK0000",
            {"priority": 3, "time_limit_s": 3600.0, "hold": False, "release": False},
            "changed",
        ),
        (
            ["update", "MOCK0000", "--time-limit", "90"],
            "PATCH",
            "jobs/MOCK0000",
            {"priority": None, "time_limit_s": 90.0, "hold": False, "release": False},
            "changed",
        ),
    ],
)
def test_orders(words, method, path, body, said, capsys) -> None:
    mock = a_mock(waits=True)
    assert run(entry.mgpu, words, mock) == 0
    request = mock.requests[-1]
    assert (request.method, request.path, request.body and msgspec.json.decode(request.body)) == (
        method,
        path,
        body,
    )
    assert capsys.readouterr() == (f"Job MOCK0000 {said}.\n", "")


def test_an_order_that_is_refused_is_told_and_the_others_are_given(capsys) -> None:
    mock = a_mock(2, waits=True)
    assert run(entry.mgpu, ["hold", "MOCK0000", "ZZZZ9999", "MOCK0001"], mock) == 1
    told = capsys.readouterr()
    assert told.out == "Job MOCK0000 held.\nJob MOCK0001 held.\n"
    assert told.err == "There is no job ZZZZ9999: see `mgpu_queue --all`.\n"
    over = MockTransport()
    Client(transport=over).submit(["x"])
    assert run(entry.mgpu, ["requeue", "MOCK0000"], over) == 1
    assert capsys.readouterr().err == "Job MOCK0000 completed: submit it again.\n"


def test_usage(capsys) -> None:
    for words in (["hold", "--help"], ["update", "--help"]):
        assert run(entry.mgpu, words, MockTransport()) == 0
    assert "ids of jobs, or of arrays" in capsys.readouterr().out
    assert run(entry.mgpu, ["update", "MOCK0000"], a_mock()) == 2
    assert run(entry.mgpu, ["hold"], a_mock()) == 2
    assert capsys.readouterr().err.startswith("Say what is to change: --priority N or --time HH:MM:SS.\n")


def test_srun_with_an_array_prints_its_id_and_count(capsys) -> None:
    mock = MockTransport()
    assert run(entry.mgpu_srun, ["--array", "1-3%2", "--priority", "4", "--", "x"], mock) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Job submitted. ID: ARRA0000 (array of 3 jobs, priority=4)",
        "Jobs queued. Use mgpu_queue to check status.",
    ]
    assert run(entry.mgpu_srun, ["--array", "1-2", "--json", "--", "x"], mock) == 0
    assert json.loads(capsys.readouterr().out) == {
        "job_id": "MOCK0003",
        "state": "queued",
        "array_id": "ARRA0003",
        "job_ids": ["MOCK0003", "MOCK0004"],
    }


def test_an_array_is_cancelled_by_its_id(capsys) -> None:
    mock = MockTransport(lambda _: Play(hold=True))
    Client(transport=mock).submit(["x"], array="0-2")
    assert run(entry.mgpu_cancel, ["ARRA0000"], mock) == 0
    assert capsys.readouterr().out == "Array ARRA0000 (3 jobs) cancelled successfully.\n"
    assert run(entry.mgpu, ["hold", "ARRA0000"], mock) == 1


def test_an_array_in_the_hand_of_a_user() -> None:
    mock = MockTransport(lambda _: Play(output=(Say(b"hello\n"),), exit_code=0))
    array = Client(transport=mock).submit(["x"], array="0-1")
    assert isinstance(array, JobArray)
    assert repr(array) == "<JobArray ARRA0000 of 2 jobs>"
    assert [job.id for job in array.jobs] == ["MOCK0000", "MOCK0001"]
    assert array.wait(60).state is JobState.COMPLETED
    assert array.output() == "hello\nhello\n"
    for refused in (array.follow, array.output_bytes):
        with pytest.raises(InvalidRequest, match="is an array"):
            refused()
    (bulk,) = Client(transport=mock).submit_many([{"command": ["x"], "array": "5"}])
    assert isinstance(bulk, JobArray)
    held = MockTransport(lambda _: Play(hold=True))
    going = Client(transport=held).submit(["x"], array="0-1")
    assert going.state is JobState.RUNNING
    with pytest.raises(TimeoutError):
        going.wait(0.05)


def test_one_who_waits_for_a_failed_array_sees_that() -> None:
    codes = iter([0, 3, 0])
    mock = MockTransport(lambda _: Play(exit_code=next(codes)))
    array = Client(transport=mock).submit(["x"], array="0-2").wait(60)
    assert (array.state, array.exit_code) == (JobState.FAILED, 3)


def test_jobs_of_an_array_can_be_listed() -> None:
    mock = MockTransport()
    client = Client(transport=mock)
    client.submit(["x"]), client.submit(["x"], array="0-1")
    assert [job.id for job in client.jobs(array="ARRA0001")] == ["MOCK0002", "MOCK0001"]


def test_waiting_jobs_of_an_array_are_shown_as_one() -> None:
    mock = MockTransport(lambda _: Play(hold=True))
    Client(transport=mock).submit(["x"], array="1-5", name="sweep")
    running, *rest = [entry.view(JobState.RUNNING) for entry in mock.jobs.values()]
    waiting = [
        msgspec.structs.replace(view, state=JobState.QUEUED, nodes=(), place=place, reason=f"Busy {place}.")
        for place, view in enumerate(rest, start=1)
    ]
    text = as_text([running, *waiting], ())
    assert text.splitlines() == [
        "--- Running Jobs ---",
        "ID: MOCK0000 | User: me | GPUs: 1 | Type: single",
        "  Name: sweep",
        "  Array: ARRA0000[1]",
        "  Nodes: node-1",
        "  CMD: x",
        "  Status: running",
        "",
        "--- Queue ---",
        "ID: ARRA0000[2-5] | User: me | GPUs: 1 | Type: single | Priority: 0",
        "  Name: sweep",
        "  Nodes: none yet",
        "  CMD: x",
        "  Status: queued",
        "  Reason: 4 jobs of the array wait; the first of them: Busy 1.",
        "",
        "--- Cluster Status ---",
        "No node information available",
    ]
    assert "ARRA0000[2-5]" in Queue([running, *waiting], (), 0.0)._repr_html_()
    one = as_text(waiting[:1], ())
    assert "ID: MOCK0001" in one
    assert waiting[0].id == JobId("MOCK0001")


@pytest.mark.parametrize(
    ("indices", "text"),
    [([1], "1"), ([1, 2, 3, 7], "1-3,7"), ([1, 3, 5, 7, 9], "1,3,5,…,9"), (list(range(100)), "0-99")],
)
def test_numbers(indices, text) -> None:
    assert numbers(indices) == text
