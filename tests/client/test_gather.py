"""Several jobs together: waited for, awaited, counted, left; and what became of a sweep."""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import io
import threading

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.client import Client, Job, Timeouts, front
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.client.client import new_key
from mgpu_jupyter.client.front import TextBar
from mgpu_jupyter.client.gather import Gathered, JobsFailed, Tally, gather, gather_async
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.client.sweep_table import SweepTable, value_of
from mgpu_jupyter.client.transport import Request, Stream
from mgpu_jupyter.client.websocket import ConnectionLost
from mgpu_jupyter.model.job import JobSpec

Captured = pytest.CaptureFixture[str]


def a_client(mock: MockTransport) -> Client:
    return Client(transport=mock, timeouts=Timeouts(retry_s=0))


def by_name(spec: JobSpec) -> Play:
    return Play(
        exit_code=3 if "bad" in spec.name else 0,
        hold="held" in spec.name,
        output=(Say(f"hello {spec.name}\n".encode()),),
    )


def test_jobs_come_back_in_their_order_and_failures_are_named(capsys: Captured) -> None:
    client = a_client(MockTransport(by_name))
    jobs = [client.submit("x", name=name) for name in ("one", "bad", "three", "four", "five", "six")]
    done = gather(jobs)
    assert (list(done), [job.id for job in done.failed]) == (jobs, [jobs[1].id])
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == (
        "",
        [
            "bad (MOCK0001): Failed after 1.0 s: on node-1, exit code 3",
            "[########################] 6 of 6 over · 1 did not complete",
        ],
    )
    assert repr(done).splitlines()[:3] == [
        "6 of 6 over · 1 did not complete",
        "Job       Name   State      Time   Exit",
        "MOCK0000  one    completed  1.0 s  0",
    ]
    assert "<td" in done._repr_html_()
    assert isinstance(done[:2], Gathered)
    with pytest.raises(JobsFailed, match=r"1 of the jobs did not complete: bad \(MOCK0001\)\."):
        gather(jobs, check=True, bar=False)


def test_an_array_is_all_its_jobs() -> None:
    client = a_client(MockTransport(by_name))
    array = client.submit("x", array="1-6")
    assert isinstance(array, JobArray)
    assert list(gather(array, bar=False)) == array.jobs
    assert [job.id for job in client.array(array.id).jobs] == [job.id for job in array.jobs]


@pytest.mark.parametrize(("given", "text"), [([], "nothing to gather"), (["MOCK0000"], "'str' is no job")])
def test_what_cannot_be_gathered(given: list[Job], text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        gather(given)


def test_a_limit_and_an_interrupt_leave_the_jobs(capsys: Captured) -> None:
    pressed: list[str] = []

    def on_hold() -> None:
        pressed.append("")
        if len(pressed) == 2:
            _thread.interrupt_main()

    mock = MockTransport(by_name, on_hold=on_hold)
    client = a_client(mock)
    held = [client.submit("x", name="held"), client.submit("x", name="done")]
    with pytest.raises(TimeoutError, match=r"1 of 2 jobs are not over after 0\.05 s; they go on\."):
        gather(held, timeout=0.05, bar=False)

    with pytest.raises(
        KeyboardInterrupt, match=r"Left 1 job running; they go on\. `mgpu_cancel MOCK0000` ends them\."
    ):
        gather(held)
    assert "Left 1 job running" in capsys.readouterr().err
    assert not mock.jobs["MOCK0000"].cancelled.is_set()


def test_many_are_waited_for_by_one_request() -> None:
    mock = MockTransport(by_name)
    client = a_client(mock)
    array = client.submit("x", array="1-40")
    one = client.submit("x", name="bad")
    before = len(mock.requests)

    assert client.wait([array, one], timeout=30) == [*array.jobs, one]
    assert [(job.state, job.exit_code, repr(job)) for job in (array.jobs[0], one)] == [
        ("completed", 0, f"<Job {array.jobs[0].id} completed>"),
        ("failed", 3, f"<Job {one.id} failed>"),
    ]
    assert [(request.method, request.path) for request in mock.requests[before:]] == [("POST", "jobs/wait")]
    assert client.wait([one]) == [one]
    assert len(mock.requests) == before + 1
    assert Gathered([*array.jobs, one]).table().rows[-1] == (one.id, "bad", "failed", "1.0 s", "3")
    assert mock.requests[-1].query["ids"].count(",") == 40


def test_a_wait_goes_on_across_a_broken_connection_with_what_is_left() -> None:
    class Broken(MockTransport):
        is_broken = True

        def open(self, request: Request) -> Stream:
            stream = super().open(request)
            if not self.is_broken:
                return stream
            self.is_broken = False
            first = stream.read(1.0)
            stream.close()
            return _Cut(first)

    mock = Broken(by_name)
    client = Client(transport=mock, timeouts=Timeouts(backoff_base_s=0.01))
    held, done = client.submit("x", name="held"), client.submit("x", name="done")
    threading.Timer(0.05, mock.jobs[held.id].cancelled.set).start()
    client.wait([held, done])
    asked = [
        msgspec.json.decode(one.body or b"")["job_ids"] for one in mock.requests if one.path == "jobs/wait"
    ]
    assert (asked, held.state) == ([[held.id, done.id], [held.id]], "cancelled")


class _Cut:
    status = 200

    def __init__(self, data: bytes) -> None:
        self._data = [data]

    def read(self, timeout_s: float) -> bytes:
        if not self._data:
            raise ConnectionLost("no-answer", "It broke.")
        return self._data.pop()

    def close(self) -> None:
        """Nothing is open."""


def test_awaiting_lets_others_work() -> None:
    mock = MockTransport(by_name)
    client = a_client(mock)
    jobs = [client.submit("x", name="held"), client.submit("x", name="done")]
    order: list[str] = []

    async def other() -> None:
        order.append("other")
        mock.jobs["MOCK0000"].cancelled.set()

    async def main() -> None:
        waits = asyncio.ensure_future(gather_async(jobs, bar=False))
        await asyncio.sleep(0)
        await other()
        order.append(f"{len((await waits).failed)} failed")
        assert (await jobs[0]) is jobs[0]
        assert (await gather(jobs, bar=False)).failed == [jobs[0]]

    asyncio.run(main())
    assert order == ["other", "1 failed"]


def test_giving_up_on_a_job_ends_no_job_and_no_program() -> None:
    mock = MockTransport(by_name)
    job = a_client(mock).submit("x", name="held")

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(job, 0.05)

    asyncio.run(main())
    assert not mock.jobs["MOCK0000"].cancelled.is_set()
    assert [thread.daemon for thread in threading.enumerate() if thread.name.startswith("mgpu-await")] in (
        [],
        [True],
    )
    mock.jobs["MOCK0000"].cancelled.set()


def test_trouble_reaches_whoever_awaits() -> None:
    mock = MockTransport(by_name)
    job = Job(a_client(mock).caller, "NOSUCH00")

    async def main() -> None:
        with pytest.raises(Exception, match="There is no job NOSUCH00"):
            await job

    asyncio.run(main())


def test_a_bar_in_a_terminal_is_redrawn() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    bar = TextBar(stream)
    bar.update(Tally(total=2, running=1, waiting=1))
    bar.say("one failed")
    bar.update(Tally(total=2, completed=1, failed=1))
    bar.close()
    lines = stream.getvalue().split("\r")
    assert [line.rstrip() for line in lines[1:]] == [
        f"[{'':24}] 0 of 2 over · 1 running · 1 waiting",
        f"one failed{' ' * 52}\n[{'':24}] 0 of 2 over · 1 running · 1 waiting",
        f"[{'#' * 24}] 2 of 2 over · 1 did not complete",
    ]


def test_a_sweep_is_a_table() -> None:
    def play(spec: JobSpec) -> Play:
        return Play(output=(Say(b"step 1\rloss 0.25\r\n\x1b[32mloss 0.5\x1b[0m\n\n"),), lasts_s=2.0)

    client = a_client(MockTransport(play))
    array = client.submit(["t", "{lr}"], sweep=["lr=0.1,0.01", "kind=a,b%2"])
    assert isinstance(array, JobArray)
    table = array.wait().table()
    first = {
        "lr": 0.1,
        "kind": "a",
        "job": "MOCK0000",
        "state": "completed",
        "seconds": 2.0,
        "exit_code": 0,
        "last line": "loss 0.5",
    }
    assert (table[0], len(table), [row["kind"] for row in table]) == (first, 4, ["a", "b", "a", "b"])
    assert repr(table).splitlines()[:3] == [
        "4 of 4 completed",
        "lr    kind  Job       State      Time   Exit  Last line",
        "0.1   a     MOCK0000  completed  2.0 s  0     loss 0.5",
    ]
    assert "<table>" in table._repr_html_()


def test_values_of_a_sweep() -> None:
    assert [value_of(text) for text in ("0.1", "3", "True", "None", "adam", "[1, 2]", "1e-3", "'x'")] == [
        *(0.1, 3, True, None, "adam", "[1, 2]", 0.001, "'x'"),
    ]


def test_tails() -> None:
    text = "".join(f"line {number}\n" for number in range(20_000))
    job = a_client(MockTransport(lambda spec: Play(output=(Say(text.encode()),)))).submit("x")
    assert job.tail(2) == "line 19998\nline 19999\n"
    assert job.tail(15_000).splitlines() == text.splitlines()[-15_000:]
    assert (job.tail(0), job.tail(50_000)) == ("", text)


def test_attached_as_text(capsys: Captured) -> None:
    says = (Say(b"a\n"), Say(b"b\n", rank=1), Say(b"c\n", "stderr"))
    client = a_client(MockTransport(lambda spec: Play(output=says)))
    one = client.submit("x", nodes=2)
    assert isinstance(front.now(), front.TextFront)
    assert one.attach() is one
    out, err = capsys.readouterr()
    assert (out, err.splitlines()) == (
        "[0] a\n[1] b\n",
        ["[0] c", f"Done in 1.0 s on node-1, node-2, 2 simulated GPUs, exit 0 · {one.id}"],
    )
    one.attach(rank=0)
    assert capsys.readouterr().out == "a\n"
    assert len(new_key()) == 32


def test_an_array_without_values_is_told_by_its_indices() -> None:
    client = a_client(MockTransport(by_name))
    array = client.submit("x", array="3,5", name="one")
    assert isinstance(array, JobArray)
    gather(array.jobs, bar=False)
    assert SweepTable(array.jobs).to_dicts() == [
        {
            "index": index,
            "job": str(job.id),
            "state": "completed",
            "seconds": 1.0,
            "exit_code": 0,
            "last line": "hello one",
        }
        for index, job in zip((3, 5), array.jobs, strict=True)
    ]


def test_who_leaves_a_job_that_is_shown_is_told_how_to_come_back(capsys: Captured) -> None:
    class Leaving(io.StringIO):
        def write(self, text: str) -> int:
            raise KeyboardInterrupt

    job = a_client(MockTransport(by_name)).submit("x", name="one")
    with contextlib.redirect_stdout(Leaving()), pytest.raises(KeyboardInterrupt):
        job.attach()
    assert capsys.readouterr().err == (
        f"Left {job.id}; it goes on. `mgpu attach {job.id}` shows it again, `mgpu_cancel {job.id}` ends it.\n"
    )
