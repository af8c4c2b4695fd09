"""`mgpu_queue`: what it prints for people, for scripts, and again and again."""

from __future__ import annotations

import json

import pytest

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.cli import queue as queue_module
from mgpu_jupyter.client import Client, squeue
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.mock import MockTransport, Play, a_node
from mgpu_jupyter.model.job import JobState, NodeState
from tests.cli.test_cli import Captured, run


def a_job(job_id: str, state: JobState, **changes: object) -> models.Job:
    fields: dict[str, object] = {
        "id": JobId(job_id),
        "state": state,
        "user": "me",
        "name": "",
        "command": "python t.py",
        "nodes": (),
        "gpus": 2,
        "exit_code": None,
        "attempt": 1,
        "submitted_at": 1.0,
        "started_at": None,
        "ended_at": None,
        "reason": "",
    }
    return models.Job(**{**fields, **changes})  # type: ignore[arg-type]


def test_queue_text_has_the_lines_that_scripts_look_for() -> None:
    jobs = [
        a_job("QQQQ0002", JobState.QUEUED, place=2, priority=5, reason="Waits for 2 free GPUs"),
        a_job("QQQQ0001", JobState.QUEUED, place=1, name="evil\x1b[2J\nname"),
        a_job("RRRR0001", JobState.RUNNING, nodes=(NodeId("a"), NodeId("b")), nodes_wanted=2, started_at=3.0),
    ]
    offline = models.Node(
        id=NodeId("b"),
        state=NodeState.OFFLINE,
        reason="not heard",
        host="b",
        address="",
        arch="",
        cpus=1,
        memory_bytes=1,
        gpus=(),
    )
    assert as_text(jobs, [a_node("a"), offline]).splitlines() == [
        "--- Running Jobs ---",
        "ID: RRRR0001 | User: me | GPUs: 2 | Type: multinode",
        "  Nodes: a, b",
        "  CMD: python t.py",
        "  Status: running",
        "",
        "--- Queue ---",
        "ID: QQQQ0001 | User: me | GPUs: 2 | Type: single | Priority: 0",
        "  Name: evil\ufffd[2J name",
        "  Nodes: none yet",
        "  CMD: python t.py",
        "  Status: queued",
        "  Reason: it is the next to be looked at",
        "",
        "ID: QQQQ0002 | User: me | GPUs: 2 | Type: single | Priority: 5",
        "  Nodes: none yet",
        "  CMD: python t.py",
        "  Status: queued",
        "  Reason: Waits for 2 free GPUs",
        "",
        "--- Cluster Status ---",
        "Node a: online",
        "Node b: offline (not heard)",
    ]


def test_queue_of_an_empty_cluster() -> None:
    text = (
        "--- Running Jobs ---\nNo running jobs\n--- Queue ---\nNo queued jobs\n--- Cluster Status "
        "---\nNo node information available"
    )
    assert as_text([], []) == text


def test_queue_json(capsys: Captured) -> None:
    mock = MockTransport(lambda spec: Play(hold=spec.name == "held", exit_code=0))
    run(entry.mgpu_srun, ["--background", "--name", "over", "--", "x"], mock)
    run(entry.mgpu_srun, ["--background", "--name", "held", "--gpus", "2", "--", "y", "z"], mock)
    capsys.readouterr()
    assert run(entry.mgpu_queue, ["--json"], mock) == 0
    assert json.loads(capsys.readouterr().out) == {
        "jobs": [
            {
                "id": "MOCK0001",
                "state": "running",
                "user": "me",
                "name": "held",
                "command": "y z",
                "nodes": ["node-1"],
                "gpus": 2,
                "exit_code": None,
                "attempt": 1,
                "submitted_at": 999.0,
                "started_at": 1000.0,
                "ended_at": None,
                "reason": "",
                "expected_start_at": None,
            }
        ]
    }
    assert run(entry.mgpu, ["queue", "--all", "--json", "-u", "me"], mock) == 0
    assert [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]] == ["MOCK0001", "MOCK0000"]


def test_queue_is_shown_again_until_interrupted(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(queue_module.time, "sleep", pause)
    assert run(entry.mgpu_queue, ["--watch"], MockTransport()) == 130
    assert capsys.readouterr().out.count("--- Queue ---") == 2


def _several() -> MockTransport:
    mock = MockTransport(lambda spec: Play(hold=spec.name != "over", exit_code=0))
    for name, partition in (("over", "a"), ("first", "a"), ("second", "b")):
        run(entry.mgpu_srun, ["--background", "--name", name, "-p", partition, "--", "x"], mock)
    return mock


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("", ["second", "first"]),
        ("--all", ["second", "first", "over"]),
        ("-j MOCK0000,mock0002", ["second", "over"]),
        ("-j NONE0000", []),
        ("-t all", ["second", "first", "over"]),
        ("-t CD", ["over"]),
        ("-t running,completed", ["second", "first", "over"]),
        ("-t pending", []),
        ("-n first,third", ["first"]),
        ("-w node-[1-2]", ["second", "first"]),
        ("-w node-7", []),
        ("--me", ["second", "first"]),
        ("-u nobody", []),
        ("-S i", ["first", "second"]),
        ("-S -j,i", ["second", "first"]),
        ("--all --sort t,-i", ["over", "second", "first"]),
    ],
)
def test_jobs_are_chosen_and_sorted_as_squeue_does(words: str, names: list[str], capsys: Captured) -> None:
    mock = _several()
    capsys.readouterr()
    assert run(entry.mgpu_queue, [*words.split(), "--noheader", "-o", "%j"], mock) == 0
    assert capsys.readouterr().out.split() == names


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-t", "lost"], "-t lost: there is no state 'lost'; there are queued (PD), starting (CF), "),
        (["-o", "%i %W"], "--format %i %W: there is no field %W; there are %i, %A, "),
        (["-o", "%i %"], "--format %i %: a letter is missing behind %; there are %i, "),
        (["-S", "zz"], "-S zz: there is no field 'zz'; there are i, A, "),
        (["-j", ","], "-j names no job: write it like -j R4T8W2ZB,A1B2C3D4."),
        (["--me", "-u", "ann"], "--me and -u exclude each other: leave one out."),
        (["-l", "-o", "%i"], "--long and --format exclude each other: leave one out."),
        (["-l", "--json"], "--json and --long exclude each other: leave one out."),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(words: list[str], sentence: str, capsys: Captured) -> None:
    assert run(entry.mgpu_queue, words, MockTransport()) == 2
    told = capsys.readouterr()
    assert (told.out, told.err.startswith(sentence), told.err.count("\n")) == ("", True, 1), told.err


def test_formats_of_squeue() -> None:
    jobs = [
        a_job("QQQQ0001", JobState.QUEUED, reason="Waits for 2 free GPUs.", time_limit_s=93_784.0),
        a_job(
            "RRRR0001",
            JobState.RUNNING,
            nodes=(NodeId("a"), NodeId("b")),
            nodes_wanted=2,
            started_at=3.0,
            partition="gpu",
            name="a-long-name",
            array_id="RRRR0000",
            array_index=4,
        ),
    ]
    assert squeue.rows_of(squeue.USUAL, lambda: 70.0)(jobs) == [
        "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)",
        "          QQQQ0001         - python t       me PD       0:00      1 (Waits for 2 free GPUs)",
        "          RRRR0001       gpu a-long-n       me  R       1:07      2 a,b",
    ]
    assert squeue.rows_of("%5u|%T|%l|%L|%b|%F_%K|%%|%o", lambda: 70.0, header=False)(jobs) == [
        "me   |PENDING|1-02:03:04|1-02:03:04|gpu:2|QQQQ0001_N/A|%|python t.py",
        "me   |RUNNING|UNLIMITED|UNLIMITED|gpu:1|RRRR0000_4|%|python t.py",
    ]


@pytest.mark.parametrize("words", [[], ["--start"]])
def test_expected_starts_are_asked_for_only_where_they_are_wanted(words: list[str]) -> None:
    mock = MockTransport(lambda _: Play(waits=True, reason="Waits for 2 GPUs."))
    Client(transport=mock).submit("x")
    assert entry.mgpu(["queue", *words], lambda: Client(transport=mock)) == 0
    assert any("explain" in request.path for request in mock.requests) == bool(words)
