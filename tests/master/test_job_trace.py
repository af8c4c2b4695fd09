"""The way of a job, put together: every step in the order of time, every wait with its reason, earlier
attempts too.
"""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.model import TaskStatus
from mgpu_jupyter.api import traces as api
from mgpu_jupyter.master.job_trace import TraceSources, trace_of
from mgpu_jupyter.master.ports import Mark
from mgpu_jupyter.model.explanations import Record
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.model import GivenUp, Job, Reason
from tests.builders import a_spec, job_id, placement

ID = job_id(1)
QUEUED = Job(id=ID, number=1, user="ann", spec=a_spec(name="train"), submitted_at=100.0)
BUSY = Record(at=100.0, code="busy", text="Waits for a GPU.")
QUOTA = Record(at=104.0, code="quota", text="Its quota is used up.")


def task(rank=0, node="n1", **changes):
    values = {
        "key": placed().attempt_key,
        "rank": rank,
        "node_id": node,
        "host": f"host-{node}",
        "address": "127.0.0.1",
        "pid": 70 + rank,
    }
    return TaskStatus(
        **{**values, "started_at": 110.5, "cwd": "/data", "gpus": (f"GPU-{node}-0",), **changes}
    )


def placed(*nodes, **changes):
    where = tuple(placement(node, rank) for rank, node in enumerate(nodes or ("n1",)))
    values = {"state": JobState.STARTING, "attempt": 1, "epoch": 5, "placements": where, "placed_at": 110.0}
    return replace(QUEUED, **{**values, **changes})


def marks(*noted, attempt=1):
    return [Mark(job_id=ID, attempt=attempt, step=step, who=who, at=at) for step, who, at in noted]


def steps(attempt):
    return [(one.step, one.at, round(one.seconds, 3), one.rank) for one in attempt.steps]


def test_a_finished_job_shows_every_step_with_its_time():
    done = task(ended_at=115.0, exit_code=3, python="/usr/bin/python3", note="no such directory")
    job = placed(
        state=JobState.FAILED,
        tasks=(done,),
        started_at=110.5,
        ended_at=115.0,
        exit_code=3,
        reason=Reason("exit", "It failed."),
    )
    noted = marks(("output", "0", 111.0), ("collected", "0", 115.25))

    trace = trace_of(TraceSources(job=job, marks=noted, shared=[[BUSY, QUOTA]]), 200.0)

    (attempt,) = trace.attempts
    assert steps(attempt) == [
        ("submitted", 100.0, 0.0, None),
        ("queued", 100.0, 0.0, None),
        ("planned", 110.0, 10.0, None),
        ("prepared", 110.5, 0.5, None),
        ("started", 110.5, 0.0, None),
        ("output", 111.0, 0.5, None),
        ("ended", 115.0, 4.0, None),
        ("collected", 115.25, 0.25, None),
    ]
    assert attempt.waits == (
        api.Wait(since=100.0, until=104.0, seconds=4.0, code="busy", text="Waits for a GPU."),
        api.Wait(since=104.0, until=110.0, seconds=6.0, code="quota", text="Its quota is used up."),
    )
    started = "node n1, host host-n1, address 127.0.0.1, pid 70, GPU GPU-n1-0, in /data, /usr/bin/python3"
    assert [step.text for step in attempt.steps if step.step in ("planned", "started", "ended")] == [
        "on n1 (GPU 0)",
        started,
        "exit code 3",
    ]
    (rank,) = attempt.ranks
    assert (rank.actual.pid, rank.python, rank.cwd, rank.note, rank.output_at) == (
        70,
        "/usr/bin/python3",
        "/data",
        "no such directory",
        111.0,
    )
    assert (trace.ok, trace.left_out, attempt.reason) == (True, 0, "It failed.")


def test_ranks_have_steps_of_their_own_and_a_clock_that_is_behind_makes_no_time_negative():
    tasks = (
        task(0, "n1", started_at=109.0),
        task(1, "n2", started_at=112.0, ended_at=113.0, signal=9, reason="cancelled"),
    )
    job = placed("n1", "n2", state=JobState.STOPPING, tasks=tasks)
    noted = marks(("prepared", "n1", 110.25), ("prepared", "n2", 111.0))

    (attempt,) = trace_of(TraceSources(job=job, marks=noted), 200.0).attempts

    assert steps(attempt)[3:] == [
        ("started", 109.0, 0.0, 0),
        ("prepared", 110.25, 0.25, 0),
        ("prepared", 111.0, 0.75, 1),
        ("started", 112.0, 1.0, 1),
        ("ended", 113.0, 1.0, 1),
    ]
    assert attempt.steps[-1].text == "signal 9 (cancelled)"


def test_a_short_wait_is_the_next_pass_whatever_others_were_told_before():
    old = replace(BUSY, at=5.0)
    (attempt,) = trace_of(TraceSources(job=placed(placed_at=100.5), shared=[[old]]), 200.0).attempts
    assert [wait.code for wait in attempt.waits] == ["next-pass"]

    (late,) = trace_of(TraceSources(job=placed(placed_at=150.0), shared=[[old, QUOTA]]), 200.0).attempts
    assert [(wait.since, wait.until, wait.code) for wait in late.waits] == [
        (100.0, 104.0, "busy"),
        (104.0, 150.0, "quota"),
    ]


def test_a_job_that_waits_again_shows_what_became_of_its_earlier_attempt():
    lost = placed(ended_at=130.0, reason=Reason("node-lost", "Node n1 restarted and lost it."))
    waits = replace(QUEUED, attempt=1, epoch=5, reason=Reason("node-lost", "Node n1 restarted and lost it."))
    record = Record(at=140.0, code="busy", text="Waits for a GPU.")

    trace = trace_of(TraceSources(job=waits, earlier=[lost], own=[record]), 160.0)

    first, second = trace.attempts
    assert steps(first)[-1] == ("ended", 130.0, 20.0, None)
    assert (first.attempt, first.reason) == (1, "Node n1 restarted and lost it.")
    assert (second.attempt, second.queued_at, second.planned_at) == (2, 130.0, None)
    assert [(wait.since, wait.until, wait.seconds) for wait in second.waits] == [
        (130.0, 140.0, 10.0),
        (140.0, None, 20.0),
    ]


def test_the_third_attempt_knows_how_many_are_not_kept_and_a_cancelled_job_never_ran():
    running = placed(attempt=3, placed_at=140.0, mismatches=("It ran elsewhere.",))
    second = placed(attempt=2, ended_at=135.0)
    trace = trace_of(TraceSources(job=running, earlier=[second]), 200.0)
    assert ([one.attempt for one in trace.attempts], trace.left_out) == ([2, 3], 1)
    assert (trace.attempts[1].queued_at, trace.ok, trace.mismatches) == (135.0, False, ("It ran elsewhere.",))

    cancelled = replace(
        QUEUED, state=JobState.CANCELLED, ended_at=103.0, reason=Reason("cancelled", "Cancelled by ann.")
    )
    (attempt,) = trace_of(TraceSources(job=cancelled), 200.0).attempts
    assert steps(attempt) == [
        ("submitted", 100.0, 0.0, None),
        ("queued", 100.0, 0.0, None),
        ("ended", 103.0, 3.0, None),
    ]
    assert (attempt.reason, attempt.waits[-1].until) == ("Cancelled by ann.", 103.0)


def test_a_rank_that_was_not_started_has_its_end_and_says_where_and_why():
    gone = GivenUp(ranks=(1,), at=111.0, text="Its spool is full.")
    job = placed("n1", "n2", tasks=(task(0, ended_at=112.0, signal=15),), refused=(1,), given_up=(gone,))

    (attempt,) = trace_of(TraceSources(job=job), 200.0).attempts

    ends = [(step.at, step.rank, step.text) for step in attempt.steps if step.step == "ended"]
    assert ends == [(111.0, 1, "not started on n2: Its spool is full."), (112.0, 0, "signal 15")]
    assert [(rank.ended_at, rank.reason) for rank in attempt.ranks] == [
        (112.0, ""),
        (111.0, "Its spool is full."),
    ]


def test_a_rank_that_was_lost_has_its_end_too():
    gone = GivenUp(ranks=(0,), at=190.0, text="Node n1 restarted and lost it.")
    job = placed(tasks=(task(),), refused=(0,), given_up=(gone,))

    (attempt,) = trace_of(TraceSources(job=job), 200.0).attempts

    assert (attempt.steps[-1].step, attempt.steps[-1].text) == (
        "ended",
        "lost on n1: Node n1 restarted and lost it.",
    )
