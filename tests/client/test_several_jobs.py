"""Several jobs counted and waited for, and what is shown of them as text."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import msgspec
import pytest

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import models
from mgpu_jupyter.client import Client, Timeouts, front
from mgpu_jupyter.client.front import TextBar
from mgpu_jupyter.client.gather import Gathered, JobsFailed, Tally, called, gather, gather_async
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.answers import client_of
from tests.client.test_http import a_view


@pytest.mark.parametrize(
    ("tally", "text"),
    [
        (Tally(total=3, waiting=1, running=2), "0 of 3 over · 2 running · 1 waiting"),
        (Tally(total=3, completed=2, failed=1), "3 of 3 over · 1 did not complete"),
        (Tally(total=1, completed=1), "1 of 1 over"),
    ],
)
def test_a_tally(tally: Tally, text: str) -> None:
    assert tally.text() == text


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "1 of the jobs did not complete: JOB00000."),
        (5, "5 of the jobs did not complete: JOB00000, JOB00001, JOB00002, JOB00003, JOB00004."),
        (6, "6 of the jobs did not complete: JOB00000, JOB00001, JOB00002, JOB00003, JOB00004 and 1 more."),
    ],
)
def test_jobs_that_failed_are_named(count: int, told: str) -> None:
    client, _ = client_of(None)
    jobs = [Job(client.caller, f"JOB0000{number}") for number in range(count)]
    error = JobsFailed(jobs)
    assert (error.message, error.code, error.jobs) == (told, "jobs-failed", tuple(jobs))
    assert called(Job(client.caller, "JOB00000", a_view(name="train"))) == "train (JOB00000)"


def views(*states: JobState, array_id: str | None = None) -> list[models.Job]:
    return [
        a_view(state, id=JobId(f"JOB0000{number}"), submitted_at=10.0 - number, array_id=array_id)
        for number, state in enumerate(states)
    ]


def submitted(count: int, play: Play, **fields: Any) -> tuple[list[Job], MockTransport]:
    mock = MockTransport(lambda _: play, **fields)
    client = Client(transport=mock, timeouts=Timeouts(retry_s=0.0))
    jobs = [client.submit_spec(JobSpec(command=("x",))) for _ in range(count)]
    mock.requests.clear()
    return jobs, mock


def test_any_number_of_jobs_is_waited_for_by_one_stream() -> None:
    jobs, mock = submitted(7, Play())

    done = gather(jobs, bar=False)

    assert (done.jobs, done.failed) == (tuple(jobs), [])
    assert [request.path for request in mock.requests] == ["jobs/wait"]
    assert msgspec.json.decode(mock.requests[0].body or b"")["job_ids"] == [job.id for job in jobs]


def test_nothing_is_asked_about_jobs_that_are_over() -> None:
    over = views(JobState.COMPLETED, JobState.FAILED)
    client, answers = client_of(None)
    jobs = [Job(client.caller, view.id, view) for view in over]

    done = gather(jobs, bar=False)

    assert (done.jobs, done.failed, answers.asked) == (tuple(jobs), jobs[1:], [])
    assert (len(done), done[0], done[1:].jobs) == (2, jobs[0], tuple(jobs[1:]))
    with pytest.raises(JobsFailed):
        done.check()
    assert Gathered(jobs[:1]).check().jobs == tuple(jobs[:1])


@pytest.mark.parametrize("cancel", [False, True])
def test_an_interrupt_may_cancel_what_is_left(cancel: bool) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    jobs, mock = submitted(6, Play(hold=True), on_hold=interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        gather(jobs, bar=False, cancel=lambda: cancel)

    ids = "MOCK0000 MOCK0001 MOCK0002 MOCK0003 MOCK0004 …"
    told = (
        f"Cancelled 6 jobs that had not ended: {ids}."
        if cancel
        else f"Left 6 jobs running; they go on. `mgpu_cancel {ids}` ends them."
    )
    cancels = [f"jobs/{job.id}/cancel" for job in jobs] if cancel else []
    assert (str(caught.value), [request.path for request in mock.requests[1:]]) == (told, cancels)


def test_awaiting_several_jobs() -> None:
    async def wait() -> None:
        jobs, _ = submitted(2, Play())
        done = await gather_async(jobs, check=True, bar=False)
        assert done.jobs == tuple(jobs)
        assert await done is done

    asyncio.run(wait())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_bar_in_a_terminal_is_redrawn() -> None:
    stream = Terminal()
    bar = TextBar(stream)
    bar.update(Tally(total=2, running=2))
    bar.say("Hello\x1b.")
    bar.update(Tally(total=2, completed=1, running=1))
    bar.close()
    first, second = (
        f"[{' ' * 24}] 0 of 2 over · 2 running",
        f"[{'#' * 12}{' ' * 12}] 1 of 2 over · 1 running",
    )
    said = "Hello\ufffd.".ljust(len(first))
    assert stream.getvalue() == f"\r{first}\r{said}\n{first}\r{second}\n"


def test_a_bar_elsewhere_is_a_line_for_each_job_that_ends() -> None:
    stream = io.StringIO()
    bar = TextBar(stream)
    for tally in (
        Tally(total=3, running=3),
        Tally(total=3, running=2, waiting=1),
        Tally(total=3, completed=3),
    ):
        bar.update(tally)
    bar.close()
    TextBar(Terminal()).close()
    assert stream.getvalue().splitlines() == [
        f"[{' ' * 24}] 0 of 3 over · 3 running",
        f"[{'#' * 24}] 3 of 3 over",
    ]


@pytest.mark.parametrize(
    ("nodes", "rank", "out", "err"),
    [
        (1, None, "one\n", "two\n"),
        (2, None, "[0] one\n", "[1] two\n"),
        (2, 0, "one\n", ""),
    ],
)
def test_a_job_is_attached_as_text(
    nodes: int, rank: int | None, out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    says = (Say(b"one\n"), Say(b"two\n", stream="stderr", rank=nodes - 1))
    mock = MockTransport(lambda _: Play(output=says))
    job = Client(transport=mock).submit_spec(JobSpec(command=("x",), nodes=nodes, gpus=0))
    front.use(front.TextFront())

    assert job.attach(rank) is job

    seen = capsys.readouterr()
    where = "node-1" if nodes == 1 else "node-1, node-2"
    assert (seen.out, seen.err) == (out, f"{err}Done in 1.0 s on {where}, no GPU, exit 0 · MOCK0000\n")
