"""The way of a job as text, and the commands and magics that show it: whole texts and exit codes."""

from __future__ import annotations

import time

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import GpuUuid, JobId
from mgpu_jupyter.api import traces as api
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, trace
from mgpu_jupyter.client.reports import trace_lines
from mgpu_jupyter.model.job import JobState

AT = time.mktime((2020, 5, 17, 10, 0, 0, 0, 0, -1))
PLACE = api.Place(node="n1", host="gpu1", address="192.0.2.1", gpus=(GpuUuid("GPU-1"),), pid=7)
WAIT = api.Wait(since=AT, until=AT + 3, seconds=3.0, code="busy", text="Waits for \x1ba GPU.")
ATTEMPT = api.AttemptTrace(
    attempt=2,
    epoch=5,
    queued_at=AT,
    planned_at=AT + 3,
    started_at=AT + 4,
    waits=(WAIT, replace(WAIT, until=None, text="More.")),
    steps=(
        api.Step(step="queued", at=AT, seconds=0.0, text="Waits."),
        api.Step(step="planned", at=AT + 3.25, seconds=3.25, text="on n1 (GPU 0)"),
        api.Step(step="started", at=AT + 4, seconds=0.75, text="node n1", rank=1),
    ),
    ranks=(api.RankTrace(rank=1, assigned=PLACE, actual=PLACE, note="No such directory."),),
    reason="Why.",
)
CHECKS = (
    api.Check(rank=0, what="host", assigned="gpu1", actual="gpu1", ok=True),
    api.Check(rank=1, what="node", assigned="n1", actual="n2", ok=False, text="as it is there now"),
)
FULL = api.Trace(
    job_id=JobId("ABCD1234"),
    name="train",
    user="ann",
    command="python train.py",
    state=JobState.RUNNING,
    submitted_at=AT,
    now=AT + 64,
    attempts=(ATTEMPT,),
    left_out=1,
    ok=False,
    mismatches=("It ran elsewhere.",),
    checks=CHECKS,
)


def test_a_trace_as_text():
    assert trace_lines(FULL) == [
        "Job ABCD1234 train of ann: running",
        "  python train.py",
        "MISMATCH: It ran elsewhere.",
        "(1 earlier attempts are not kept any more)",
        "",
        "Attempt 2",
        "  2020-05-17 10:00:00.000      +0 ms  queued",
        "                               3.0 s            Waits for \ufffda GPU.",
        "                               3.0 s            More. so far",
        "  2020-05-17 10:00:03.250     +3.2 s  planned   on n1 (GPU 0)",
        "  2020-05-17 10:00:04.000     +0.8 s  started   rank 1: node n1",
        "  rank 1: No such directory.",
        "  Why.",
        "  It has run for 1 m 00 s.",
        "",
        "Assigned against actual:",
        "  ok        rank 0  host     gpu1",
        "  MISMATCH  rank 1  node     n1 against n2 (as it is there now)",
        "2 things compared, 1 of them differ.",
    ]


@pytest.fixture
def mock():
    transport = MockTransport()
    Client(transport=transport).submit(["true"], debug=True)
    return transport


def test_a_job_and_a_client_ask_for_the_trace_and_debug_is_sent(mock):
    client = Client(transport=mock)
    job = client.job("MOCK0000")
    assert mock.specs[0].debug is True
    assert job.trace() == client.trace("mock0000", verify=True) == trace(job.info)


def test_mgpu_trace_and_debug_job_tracking(mock, capsys):
    def make():
        return Client(transport=mock)

    assert entry.mgpu(["trace", "MOCK0000"], make) == 0
    assert "started   node node-1, host host-1, pid 7" in capsys.readouterr().out
    assert entry.mgpu(["trace", "--json", "MOCK0000"], make) == 0
    assert msgspec.json.decode(capsys.readouterr().out, type=api.Trace).job_id == "MOCK0000"
    assert entry.debug_job_tracking(["MOCK0000"], make) == 0
    assert entry.mgpu(["trace"], make) == 2
    assert entry.debug_job_tracking(["--help"], make) == 0
    assert "--verify" in capsys.readouterr().out


def test_a_mismatch_is_exit_1_only_where_it_was_asked_for(monkeypatch, mock, capsys):
    monkeypatch.setattr(Client, "trace", lambda *_, **__: FULL)
    assert entry.debug_job_tracking(["ABCD1234"], lambda: Client(transport=mock)) == 1
    assert entry.mgpu(["trace", "ABCD1234"], lambda: Client(transport=mock)) == 0
    assert (
        capsys.readouterr().err
        == "MISMATCH: job ABCD1234 ran otherwise than was assigned, in 2 ways; see above.\n" * 2
    )
