"""An array as one handle, its table, and several jobs counted: whole values, in the order of the jobs."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pytest

from mgpu_agent.protocol.errors import Conflict, InvalidRequest, MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.client import Client, Timeouts, sweep_table
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.fetching import Brought
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.mock import MockTransport, Play, Say, lost
from mgpu_jupyter.client.sweep_table import SweepTable, value_of
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.answers import client_of
from tests.client.test_http import a_view


def an_array(plays: list[Play] | None = None, **fields: Any) -> tuple[JobArray, MockTransport]:
    given = iter(plays or [Play(output=(Say(b"a\nb\n\n"),)), Play(exit_code=3, output=(Say(b"bad\n"),))])
    mock = MockTransport(lambda _: next(given))
    client = Client(transport=mock, timeouts=Timeouts(retry_s=0.0))
    job = client.submit_spec(JobSpec(command=("x",), **({"array": "1-2"} | fields)))
    assert isinstance(job, JobArray)
    return job, mock


def test_an_array_is_shown_by_its_size() -> None:
    array, _ = an_array()
    assert repr(array) == "<JobArray ARRA0000 of 2 jobs>"


@pytest.mark.parametrize(
    ("states", "first"),
    [
        (("completed", "running", "queued"), "queued"),
        (("stopping", "running"), "running"),
        (("stopping", "running", "starting"), "starting"),
        (("completed", "failed"), "failed"),
        (("completed", "cancelled", "stopping"), "stopping"),
        (("completed", "completed"), "completed"),
    ],
)
def test_an_array_is_as_far_as_the_one_with_most_before_it(states: tuple[str, ...], first: str) -> None:
    views = [a_view(JobState(state), id=JobId(f"JOB0000{number}")) for number, state in enumerate(states)]
    client, answers = client_of(
        models.JobList(jobs=tuple(views[:1]), next_cursor="c"), models.JobList(jobs=tuple(views[1:]))
    )
    array = JobArray(client.caller, "ARRA0000", tuple(view.id for view in views))

    assert array.refresh().state == first
    assert array.snapshot is not None
    assert array.snapshot.state == first
    assert [job.snapshot for job in array.jobs] == views
    most = str(models.MAX_PAGE)
    assert [one[1:3] for one in answers.asked] == [
        ("jobs", {"array": "ARRA0000", "limit": most}),
        ("jobs", {"array": "ARRA0000", "limit": most, "cursor": "c"}),
    ]


def test_waiting_for_all() -> None:
    array, _ = an_array()
    assert array.wait() is array
    assert [job.snapshot.state for job in array.jobs if job.snapshot] == ["completed", "failed"]
    assert array.state is JobState.FAILED

    array, mock = an_array([Play(hold=True), Play()])
    with pytest.raises(TimeoutError, match="1 of 2 jobs are not over after"):
        array.wait(0.01)
    for entry in mock.jobs.values():
        entry.cancelled.set()
    assert array.wait(60.0).state is JobState.CANCELLED


def test_whoever_left_waits_no_more() -> None:
    array, mock = an_array([Play(hold=True), Play(hold=True)])
    left = threading.Event()
    left.set()
    before = len(mock.requests)

    array.wait_unless(left)

    assert [request.path for request in mock.requests[before:]] == ["jobs"]

    array, _ = an_array()
    array.wait_unless(threading.Event())
    assert [job.snapshot.state for job in array.jobs if job.snapshot] == ["completed", "failed"]


def test_output_of_all_jobs_one_after_the_other() -> None:
    array, _ = an_array()
    assert array.output() == "a\nb\n\nbad\n"
    assert array.tail(1) == "\nbad\n"


def test_what_means_one_job() -> None:
    array, _ = an_array()
    for do, told in (
        (array.output_bytes, "ARRA0000 is an array: take the output of one of its `jobs`."),
        (array.follow, "ARRA0000 is an array: follow one of its `jobs`."),
    ):
        with pytest.raises(InvalidRequest) as caught:
            do()
        assert caught.value.message == told


def test_results_of_an_array_come_with_the_end() -> None:
    array, _ = an_array([Play(hold=True), Play(), Play(hold=True)], array="1-3")
    with pytest.raises(Conflict) as caught:
        array.result()
    told = "2 jobs of ARRA0000 are not over, and variables come with the end: wait() waits for that."
    assert caught.value.message == told

    array, _ = an_array()
    with pytest.raises(InvalidRequest) as refused:
        array.result()
    assert refused.value.message == (
        "Jobs of ARRA0000 were not asked for variables: name them with --out (outputs=[…] in Python)."
    )


# --- its table ----------------------------------------------------------------------------------------


def test_the_table_of_an_array() -> None:
    array, _ = an_array()
    table = array.table()

    rows = [
        {
            "index": 1,
            "job": "MOCK0000",
            "state": "completed",
            "seconds": 1.0,
            "exit_code": 0,
            "last line": "b",
        },
        {
            "index": 2,
            "job": "MOCK0001",
            "state": "failed",
            "seconds": 1.0,
            "exit_code": 3,
            "last line": "bad",
        },
    ]
    assert (len(table), list(table), table[1], table.to_dicts()) == (2, rows, rows[1], rows)
    assert repr(table).splitlines() == [
        "1 of 2 completed",
        "index  Job       State      Time   Exit  Last line",
        "1      MOCK0000  completed  1.0 s  0     b",
        "2      MOCK0001  failed     1.0 s  3     bad",
    ]
    page = table._repr_html_()
    assert page.startswith("<div>1 of 2 completed</div><table><thead><tr><th ")
    assert [part.partition("</td>")[0] for part in page.split('vertical-align: top">')][7:] == [
        *("1", "MOCK0000", "completed", "1.0 s", "0", "b"),
        *("2", "MOCK0001", "failed", "1.0 s", "3", "bad"),
    ]


def test_a_table_that_is_over_is_asked_for_once_and_rows_are_copies() -> None:
    array, mock = an_array()
    table = array.table()
    first = table.to_dicts()
    asked = len(mock.requests)
    first[0]["state"] = "changed"

    assert table.to_dicts()[0]["state"] == "completed"
    assert len(mock.requests) == asked


def test_a_table_that_is_not_over_is_asked_for_again() -> None:
    array, mock = an_array([Play(hold=True), Play()])
    table = array.table()

    assert table[0] == {
        "index": 1,
        "job": "MOCK0000",
        "state": "running",
        "seconds": None,
        "exit_code": None,
        "last line": "",
    }
    assert repr(table).splitlines()[2] == "1      MOCK0000  running"
    mock.jobs["MOCK0000"].cancelled.set()
    array.refresh()
    assert table[0]["state"] == "cancelled"


def test_a_sweep_has_its_values() -> None:
    array, _ = an_array([Play()] * 2, array="0-1", sweep={"lr": ("0.1", "x")})
    assert [row["lr"] for row in array.table()] == [0.1, "x"]
    assert "index" not in array.table()[0]


def test_output_that_is_gone_leaves_the_rest_of_the_table() -> None:
    array, mock = an_array()
    table = array.table()
    table.to_dicts()
    jobs = [Job(job.caller, job.id, job.snapshot) for job in array.jobs]
    mock.failures[:] = [lost(), lost()]

    rows = SweepTable(jobs).to_dicts()

    assert [row["last line"] for row in rows] == ["", "bad"]


def test_variables_of_an_array_are_lists_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    left = {"MOCK0000": Brought(values={"a": 1}, sizes={}, problems={"b": "`b` is gone."})}
    monkeypatch.setattr(sweep_table, "bring", lambda _caller, job_id: left[job_id])
    monkeypatch.setattr(SweepTable, "_outputs", lambda _: ("a", "b"))
    array, _ = an_array()

    assert array.result() == {"a": [1, None], "b": [None, None]}
    table = array.table()
    assert [(row["a"], row["b"]) for row in table] == [(1, None), (None, None)]
    assert table.problems == ["Job MOCK0000: `b` is gone."]


def test_an_empty_table() -> None:
    assert repr(SweepTable(())) == "0 of 0 completed\nNo jobs."


def test_long_and_other_values_are_shortened() -> None:
    array, _ = an_array([Play(output=(Say(b"x" * 80),)), Play(output=(Say(b"x" * 81),))])
    lines = repr(array.table()).splitlines()
    assert lines[2].endswith(f"  {'x' * 80}")
    assert lines[3].endswith(f"  {'x' * 79}…")


def test_without_pandas_a_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    array, _ = an_array()
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MgpuError) as caught:
        array.table().to_pandas()
    told = "pandas is not installed here: `pip install pandas`, or take `.to_dicts()`."
    assert (caught.value.code, caught.value.message) == ("no-pandas", told)


def test_pandas_gets_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    class Pandas:
        DataFrame = tuple

    array, _ = an_array()
    monkeypatch.setitem(sys.modules, "pandas", Pandas)  # type: ignore[arg-type]
    assert array.table().to_pandas() == tuple(array.table())


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", 1), ("1.5", 1.5), ("1e-3", 0.001), ("True", True), ("False", False), ("None", None), ("a", "a")],
)
def test_values_of_a_sweep(text: str, value: object) -> None:
    assert (value_of(text), type(value_of(text))) == (value, type(value))
