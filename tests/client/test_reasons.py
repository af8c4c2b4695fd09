"""The answer to "why?" as text, and the surfaces that show it: whole texts."""

from __future__ import annotations

import json
import time

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.listing import as_text
from mgpu_jupyter.client.mock import MockTransport, Play, explanation
from mgpu_jupyter.client.reasons import as_lines, clock, starts_of
from mgpu_jupyter.model import explanations as api
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.tables import Answer

Captured = pytest.CaptureFixture[str]
NOW = 1_800_000_000.0  # the same in each of the processes that pytest divides the tests between
OUT = api.Excluded(
    check="gpus",
    text="1 GPU free, 2 needed.",
    never=False,
    count=10,
    nodes=tuple(NodeId(f"n{number}") for number in range(8)),
)
NEVER = api.Excluded(
    check="named", text="It is excluded by --exclude.", never=True, count=1, nodes=(NodeId("x\x1b1"),)
)
FULL = api.Explanation(
    verdict="not_now",
    code="busy",
    text="Not now: waits for 2 GPUs.",
    job_id=JobId("ABCD1234"),
    units=(
        api.UnitAnswer(
            first=0,
            count=2,
            needs="2 GPUs",
            missing=1,
            would_do=1,
            given=(NodeId("n9"),),
            excluded=(OUT, NEVER),
        ),
        api.UnitAnswer(first=2, count=1, needs="1 GPU", missing=1, would_do=0),
    ),
    place=2,
    ahead_count=1,
    ahead=(api.Ahead(job_id=JobId("WXYZ5678"), user="bob", gpus=4),),
    terms=(api.Term(name="age", amount=1.0, points=1.0), api.Term(name="size", amount=2.0, points=0.0)),
    priority=1.0,
    expected=api.Forecast(at=NOW + 120, promised=True),
    offers=(
        api.Offer(
            text="1 GPU instead of 2",
            flags=("--gpus 1",),
            patch={"gpus": 1},
            where=(api.Where(node=NodeId("n9")),),
        ),
    ),
    history=tuple(api.Record(at=NOW, code="busy", text=f"Change {number}.") for number in range(12)),
)


def test_the_whole_answer_begins_with_the_answer():
    assert as_lines(FULL, NOW) == [
        "Not now: waits for 2 GPUs.",
        f"Promised to start in 2 m 00 s, at {clock(NOW + 120)}.",
        "1 job is ahead of it: WXYZ5678 (4 GPUs).",
        "",
        "In its place, this would start now:",
        "  - 1 GPU instead of 2: n9",
        "",
        "Units 0 to 1: 2 GPUs on each of 2 nodes: 1 of the nodes would do now; it would get n9.",
        "  n0, n1, n2, n3, n4, n5, n6, n7 and 2 more: 1 GPU free, 2 needed.",
        "  x\ufffd1: It is excluded by --exclude. (never)",
        "",
        "Unit 2: 1 GPU on one node: no node would do now.",
        "",
        "Priority 1.00 (hours of waiting): age +1.00",
        "",
        "What it was told before:",
        "  (2 earlier ones: --json)",
        *(f"  {clock(NOW)}  Change {number}." for number in range(2, 12)),
    ]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"expected": api.Forecast(at=NOW + 60)},
            f"Expected to start in 1 m 00 s, at {clock(NOW + 60)}, if others end as planned.",
        ),
        ({"expected": api.Forecast(later_than=NOW + 60)}, "Expected to start later than in 1 m 00 s."),
        ({"expected": api.Forecast()}, "Nobody can say when it will start."),
        ({"expected": api.Forecast(), "verdict": "never"}, "1 job is ahead of it: WXYZ5678 (4 GPUs)."),
    ],
)
def test_when_it_is_expected_to_start(changes: dict[str, object], line: str):
    assert as_lines(replace(FULL, **changes), NOW)[1] == line


def test_what_starts_now_needs_few_words():
    assert as_lines(explanation(), NOW) == ["It would start now on node-1 (GPU 0)."]
    (line,) = as_lines(replace(explanation(), terms=(api.Term(name="age", amount=0.0, points=0.0),)), NOW)[2:]
    assert line == "Priority 0.00 (hours of waiting): nothing counts"


def test_times_of_other_days_carry_their_date():
    assert clock(0.0) == time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(0.0))


def test_the_client_asks_for_both():
    mock = MockTransport(lambda spec: Play(reason="1 GPU is busy" if spec.gpus == 2 else ""))
    client = Client(transport=mock)
    assert client.dry_run(["x"], gpus=1) == explanation()
    job = client.submit(["x"], gpus=2)
    assert job.explain() == client.explain(job.id.lower()) == explanation("1 GPU is busy", job.id)
    assert [(request.method, request.path) for request in mock.requests] == [
        ("POST", "jobs/dry-run"),
        ("POST", "jobs"),
        ("GET", f"jobs/{job.id}/explain"),
        ("GET", f"jobs/{job.id}/explain"),
    ]


# --- commands ------------------------------------------------------------------------------------


def run(words: list[str], reason: str = "1 GPU is busy.") -> int:
    mock = MockTransport(lambda spec: Play(reason=reason))
    Client(transport=mock).submit(["x"], gpus=2)
    return entry.mgpu(words, lambda: Client(transport=mock))


def test_mgpu_explain(capsys: Captured):
    assert run(["explain", "mock0000"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Not now: 1 GPU is busy.",
        "Nobody can say when it will start.",
        "",
        "In its place, this would start now:",
        "  - 1 GPU instead of 2: node-1 (GPU 0)",
        "",
        "2 GPUs on one node: no node would do now.",
        "  node-1: 1 GPU is busy.",
    ]
    assert run(["explain", "MOCK0000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "not_now"
    assert run(["explain"]) == 2
    assert capsys.readouterr().err == "Name the job, as in `mgpu explain R4T8W2ZB`.\n"
    assert run(["explain", "--help"]) == 0


def test_a_dry_run_says_by_its_exit_code_whether_it_would_start(capsys: Captured):
    assert run(["srun", "--dry-run", "--", "x"], reason="") == 0
    assert capsys.readouterr().out == "It would start now on node-1 (GPU 0).\n"
    assert run(["srun", "--dry-run", "--json", "--gpus", "2", "--", "x"]) == 3
    assert json.loads(capsys.readouterr().out)["offers"][0]["patch"] == {"gpus": 1}


def a_job(number: int, **changes: object) -> models.Job:
    values = {
        "name": "",
        "command": "x",
        "nodes": (),
        "gpus": 1,
        "exit_code": None,
        "attempt": 0,
        "submitted_at": 1.0,
    }
    rest = {"started_at": None, "ended_at": None, "reason": "Busy.", "user": "me", "state": JobState.QUEUED}
    return models.Job(id=JobId(f"MOCK000{number}"), **{**values, **rest, **changes})


def test_the_queue_says_when_jobs_are_expected_to_start():
    mock = MockTransport(lambda spec: Play(reason=spec.name))
    client = Client(transport=mock)
    client.submit(["x"], name="Busy.")
    client.submit(["x"])
    jobs = [
        a_job(0, place=2),
        a_job(1, place=3),
        a_job(2, place=1, expected_start_at=NOW + 60),
        a_job(3),
        a_job(4, state=JobState.RUNNING),
    ]
    starts = starts_of(client, jobs, NOW)
    assert starts == {
        "MOCK0002": f"promised in 1 m 00 s, at {clock(NOW + 60)}",
        "MOCK0000": "Nobody can say when it will start.",
        "MOCK0001": "It would start now on node-1 (GPU 0).",
        "MOCK0003": "There is no job MOCK0003: see `mgpu_queue --all`.",
    }
    assert "  Reason: Busy.\n  Start: Nobody can say when it will start.\n" in as_text(jobs, (), starts)


def test_mgpu_queue_start(capsys: Captured):
    mock = MockTransport(
        lambda spec: Play(reason="1 GPU is busy.", waits=True) if spec.gpus == 2 else Play(hold=True)
    )
    client = Client(transport=mock)
    client.submit(["train"], gpus=2, name="waits")
    client.submit(["train"], name="runs")
    assert entry.mgpu(["queue", "--start"], lambda: Client(transport=mock)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[lines.index("--- Queue ---") :] == [
        "--- Queue ---",
        "ID: MOCK0000 | User: me | GPUs: 2 | Type: single | Priority: 0",
        "  Name: waits",
        "  Nodes: none yet",
        "  CMD: train",
        "  Status: queued",
        "  Reason: 1 GPU is busy.",
        "  Start: Nobody can say when it will start.",
        "",
        "--- Cluster Status ---",
        "Node node-1: online",
    ]


# --- notebooks -----------------------------------------------------------------------------------


def test_tables_escape_what_users_wrote():
    hostile = replace(FULL, text="Not now: <script>alert(1)</script>")
    shown = Answer(hostile, NOW)._repr_html_()
    assert "<script>" not in shown
    assert shown.startswith("<div><b>Not now: &lt;script&gt;")
    for text in (
        "In its place, this would start now:",
        "1 ahead of it:",
        "--gpus 1",
        "Priority 1.00",
        "n7 … (10)",
        "Change 11.",
    ):
        assert text in shown
    assert repr(Answer(FULL, NOW)) == "\n".join(as_lines(FULL, NOW))
    small = Answer(explanation(), NOW)._repr_html_()
    assert small == "<div><b>It would start now on node-1 (GPU 0).</b></div>"
