"""A job in front of someone: what the viewer is told, in order, and what an interrupt does at each moment."""

from __future__ import annotations

import dataclasses

import pytest

from mgpu_agent.protocol.errors import InvalidRequest, Unavailable
from mgpu_jupyter.api import models
from mgpu_jupyter.api.frames import EndFrame, GapFrame, JobFrame, OutputFrame, PingFrame
from mgpu_jupyter.client import Client, Job, Timeouts
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.client.watch import Outcome, Viewer, attach, cancel_and_see, frames_for, run, show, watch
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.test_http import a_view, out

SPEC = JobSpec(command=("python", "train.py"))
SAYS = (Say(b"one\n"), Say(b"two\n", stream="stderr"))


@dataclasses.dataclass
class Notes(Viewer):
    """Writes down what it is told; is interrupted at the moments that are named."""

    interrupts: tuple[str, ...] = ()
    broken: bool = False
    pace_s: float = 0.0
    told: list[str] = dataclasses.field(default_factory=list)

    def _note(self, text: str) -> None:
        self.told.append(text)
        if text in self.interrupts:
            raise KeyboardInterrupt
        if self.broken and text.startswith("output"):
            raise BrokenPipeError

    def submitted(self, job: Job) -> None:
        self._note(f"submitted {job.id}")

    def changed(self, job: models.Job) -> None:
        self._note(f"changed {job.state}")

    def output(self, frame: OutputFrame) -> None:
        self._note(f"output {frame.stream} {frame.data.decode()!r}")

    def gap(self, frame: GapFrame) -> None:
        self._note(f"gap {frame.rank} {frame.message}")

    def interrupted(self, job: Job) -> None:
        self._note(f"interrupted {job.id}")

    def tick(self) -> None:
        if "tick" not in self.told:
            self._note("tick")

    def keyed(self, key: str) -> None:
        if key:
            self._note(f"keyed {key}")


@dataclasses.dataclass
class Typing:
    """What goes to the job, as far as it is asked."""

    told: list[str]
    leaves: bool = False

    def has_left(self) -> bool:
        self.told.append("asked")
        return self.leaves

    def begin(self, job: Job) -> None:
        self.told.append(f"begin {job.id}")

    def end(self) -> None:
        self.told.append("end")


def a_client(**play: object) -> tuple[Client, MockTransport]:
    mock = MockTransport(lambda _: Play(output=SAYS, **play))  # type: ignore[arg-type]
    return Client(transport=mock, timeouts=Timeouts(cancel_wait_s=30.0)), mock


def paths(mock: MockTransport) -> list[str]:
    return [f"{request.method} {request.path}" for request in mock.requests]


SEEN = ["changed running", "output stdout 'one\\n'", "output stderr 'two\\n'"]
OUTPUT = "GET jobs/MOCK0000/output"


def test_a_job_is_submitted_and_shown_to_its_end() -> None:
    client, mock = a_client()
    viewer = Notes()

    outcome = run(client, SPEC, viewer)

    assert outcome == Outcome(job=mock.jobs["MOCK0000"].view(JobState.COMPLETED))
    assert viewer.told == ["submitted MOCK0000", *SEEN, "changed completed"]
    assert paths(mock) == ["POST jobs", OUTPUT]


def test_what_goes_to_the_job_begins_when_it_is_saved_and_ends_with_it() -> None:
    client, _ = a_client()
    viewer = Notes()

    run(client, SPEC, viewer, Typing(viewer.told))

    assert viewer.told == ["submitted MOCK0000", "begin MOCK0000", *SEEN, "changed completed", "end"]


def test_an_interrupt_cancels_and_the_end_is_seen() -> None:
    client, mock = a_client(hold=True)
    viewer = Notes(("output stderr 'two\\n'",))

    outcome = run(client, SPEC, viewer)

    assert outcome == Outcome(job=mock.jobs["MOCK0000"].view(JobState.CANCELLED), interrupted=True)
    assert viewer.told == ["submitted MOCK0000", *SEEN, "interrupted MOCK0000", "changed cancelled"]
    assert paths(mock) == ["POST jobs", OUTPUT, "POST jobs/MOCK0000/cancel"]


def test_an_interrupt_before_anything_is_shown_cancels_too() -> None:
    client, mock = a_client(hold=True)
    viewer = Notes(("submitted MOCK0000",))

    outcome = run(client, SPEC, viewer)

    assert outcome == Outcome(job=mock.jobs["MOCK0000"].view(JobState.CANCELLED), interrupted=True)
    assert viewer.told == ["submitted MOCK0000", "interrupted MOCK0000", *SEEN, "changed cancelled"]


def test_a_second_interrupt_stops_watching() -> None:
    client, mock = a_client(hold=True)
    viewer = Notes(("changed running", "changed cancelled"))

    with pytest.raises(KeyboardInterrupt):
        run(client, SPEC, viewer)

    assert mock.jobs["MOCK0000"].final is JobState.CANCELLED


@pytest.mark.parametrize("leaves", [True, False])
def test_whoever_left_is_told_so_and_the_job_goes_on(leaves: bool) -> None:
    client, mock = a_client(hold=True)
    viewer = Notes(("changed running",))

    outcome = run(client, SPEC, viewer, Typing(viewer.told, leaves))

    begun = ["submitted MOCK0000", "begin MOCK0000", "changed running", "end", "asked"]
    state = JobState.RUNNING if leaves else JobState.CANCELLED
    rest = [] if leaves else ["interrupted MOCK0000", *SEEN[1:], "changed cancelled"]
    assert viewer.told == [*begun, *rest, "end"]
    assert outcome == Outcome(job=mock.jobs["MOCK0000"].view(state), detached=leaves, interrupted=not leaves)


def test_an_interrupt_while_it_is_submitted_takes_it_back(monkeypatch: pytest.MonkeyPatch) -> None:
    client, mock = a_client(hold=True)
    taken: list[tuple[JobSpec, str]] = []
    keys: list[str] = []

    def interrupted(spec: JobSpec, key: str) -> Job:
        keys.append(key)
        raise KeyboardInterrupt

    monkeypatch.setattr(client, "submit_spec", interrupted)
    monkeypatch.setattr(client, "withdraw", lambda spec, key: taken.append((spec, key)))
    viewer = Notes()
    with pytest.raises(KeyboardInterrupt):
        run(client, SPEC, viewer)

    assert (taken, viewer.told, mock.jobs) == ([(SPEC, keys[0])], [], {})


def test_when_nobody_reads_the_job_ends() -> None:
    client, mock = a_client(hold=True)

    with pytest.raises(BrokenPipeError):
        run(client, SPEC, Notes(broken=True))

    assert mock.jobs["MOCK0000"].final is JobState.CANCELLED


def test_a_job_of_before_is_not_called_submitted() -> None:
    client, mock = a_client()
    viewer = Notes()
    job = client.submit_spec(SPEC)

    assert watch(client, job, viewer) == Outcome(job=mock.jobs["MOCK0000"].view(JobState.COMPLETED))
    assert viewer.told == [*SEEN, "changed completed"]


def test_attaching_shows_one_rank_and_an_interrupt_leaves_the_job() -> None:
    client, mock = a_client(hold=True)
    job = client.submit_spec(SPEC)
    viewer = Notes(("output stdout 'one\\n'",))

    outcome = attach(job, viewer, Typing(viewer.told), 0)

    assert outcome == Outcome(job=mock.jobs["MOCK0000"].view(JobState.RUNNING), detached=True)
    assert viewer.told == ["begin MOCK0000", *SEEN[:2], "end", "end"]
    assert mock.requests[1].query == {"follow": "1", "rank": "0"}
    assert paths(mock) == ["POST jobs", OUTPUT, "GET jobs/MOCK0000"]


def test_attaching_to_the_end() -> None:
    client, mock = a_client(exit_code=3)
    job = client.submit_spec(SPEC)
    viewer = Notes()

    outcome = attach(job, viewer, Typing(viewer.told))

    assert outcome == Outcome(job=mock.jobs["MOCK0000"].view(JobState.FAILED))
    assert viewer.told == ["begin MOCK0000", *SEEN, "changed failed", "end"]
    assert mock.requests[1].query == {"follow": "1"}


def test_a_viewer_with_a_pace_is_called_while_nothing_comes() -> None:
    client, _mock = a_client(hold=True)
    viewer = Notes(("tick",), pace_s=0.01)

    outcome = run(client, SPEC, viewer)

    assert outcome.interrupted
    assert outcome.job.state is JobState.CANCELLED
    assert viewer.told[-3:] == ["tick", "interrupted MOCK0000", "changed cancelled"]


def test_every_frame_goes_to_its_place() -> None:
    job, end = a_view(), a_view(JobState.COMPLETED)
    frames = (
        JobFrame(seq=1, job=job, display_key="k"),
        PingFrame(),
        None,
        GapFrame(rank=1, message="lost"),
        out(b"x", 9),
        EndFrame(job=end),
        out(b"never", 10),
    )
    viewer = Notes()

    assert show(frames, viewer) == end
    assert viewer.told == [
        *("keyed k", "changed running", "tick", "gap 1 lost", "output stdout 'x'", "changed completed")
    ]
    with pytest.raises(AssertionError, match="a stream ends with its end frame"):
        show((PingFrame(),), viewer)


def test_a_job_that_does_not_end_in_time_is_told_as_it_is() -> None:
    mock = MockTransport(lambda _: Play(hold=True))
    client = Client(transport=mock, timeouts=Timeouts(cancel_wait_s=0.0))
    job = client.submit_spec(SPEC)

    found = cancel_and_see(client, job, frames_for(job, Viewer()), Viewer())

    assert found == mock.jobs["MOCK0000"].view(JobState.CANCELLED)
    assert paths(mock) == ["POST jobs", "POST jobs/MOCK0000/cancel", OUTPUT, "GET jobs/MOCK0000"]


@pytest.mark.parametrize("is_known", [True, False])
def test_a_server_that_is_lost_after_the_cancel_leaves_what_was_seen(is_known: bool) -> None:
    client, _mock = a_client(hold=True)
    job = client.submit_spec(SPEC)
    before = job.refresh() if is_known else None

    class Gone(Viewer):
        def changed(self, job: models.Job) -> None:
            raise Unavailable("no-answer", "Gone.")

    if before is None:
        with pytest.raises(Unavailable, match="Gone"):
            cancel_and_see(client, job, frames_for(job, Gone()), Gone())
    else:
        assert cancel_and_see(client, job, frames_for(job, Gone()), Gone()) == before


def test_a_request_that_is_refused_shows_nothing() -> None:
    client, _mock = a_client()
    viewer = Notes()

    with pytest.raises(InvalidRequest):
        run(client, JobSpec(command=()), viewer, Typing(viewer.told))

    assert viewer.told == []
