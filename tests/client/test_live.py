"""The model behind the mirror of a kernel: views never change, changes are told once, old things go."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter import Client
from mgpu_jupyter.api import frames, models
from mgpu_jupyter.client import live_view
from mgpu_jupyter.client.live import mirror_of
from mgpu_jupyter.client.live_view import Changes, LiveState, Model, View, WaitingNow
from mgpu_jupyter.client.mock import MockTransport, a_node, lost
from mgpu_jupyter.model.job import JobState

CLUSTER = models.Cluster(
    name="lab",
    user="ann",
    admin=False,
    nodes=1,
    nodes_online=1,
    gpus=4,
    gpus_free=4,
    simulated=True,
    jobs={},
    notice="",
    seq=10,
)


def a_job(number: int = 1, state: JobState = JobState.QUEUED, seq: int = 1) -> models.Job:
    return models.Job(
        id=JobId(f"JOB{number:05}"),
        state=state,
        user="ann",
        name="",
        command="true",
        nodes=(),
        gpus=1,
        exit_code=None,
        attempt=0,
        submitted_at=0.0,
        started_at=None,
        ended_at=None,
        reason="It is held.",
        reason_code="held",
        seq=seq,
    )


@pytest.fixture
def model() -> Model:
    model = Model()
    model.begin(CLUSTER, [a_node("n1", 2)], [a_job()])
    model.take_changes()
    return model


def test_a_view_stays_as_it_was(model: Model) -> None:
    before = model.view(LiveState.LIVE)
    model.take(frames.JobFrame(seq=11, job=a_job(2, seq=11)))
    model.take(frames.NodeFrame(seq=12, node=a_node("n2")))
    model.take(
        frames.SamplesFrame(at=1.0, nodes={"n1": frames.NodeReading(cpu=7, gpus={"1": (50, 1024, 60, 200)})})
    )
    model.take(
        frames.QueueFrame(
            version=9, inserted=((0, (JobId("JOB00002"),)),), reasons={"1": frames.Why("busy", "Waits.")}
        )
    )
    after = model.view(LiveState.LIVE)

    assert (set(before.jobs), set(before.nodes), before.queue, before.reading("n1").cpu) == (
        {"JOB00001"},
        {"n1"},
        (),
        None,
    )
    assert (set(after.jobs), set(after.nodes), after.queue) == (
        {"JOB00001", "JOB00002"},
        {"n1", "n2"},
        ("JOB00002",),
    )
    assert after.reading("n1") == frames.NodeReading(cpu=7, gpus={"0": (None,) * 4, "1": (50, 1024, 60, 200)})
    assert [(gpu.utilisation_percent, gpu.memory_used_bytes) for gpu in after.gpus("n1")] == [
        (None, None),
        (50, 1 << 30),
    ]
    assert (after.version - before.version, model.seq, model.queue_version) == (1, 12, 9)
    assert (after.gpus("none"), after.reading("none")) == ((), frames.NodeReading())
    with pytest.raises(TypeError):
        after.jobs["X"] = a_job()  # type: ignore[index]


def test_changes_are_told_once(model: Model) -> None:
    model.take(frames.JobFrame(seq=11, job=a_job(2, seq=11)))
    model.take(frames.PingFrame())
    model.take(frames.GoneFrame(seq=12, nodes=("n1",), jobs=(JobId("JOB00001"),)))

    assert model.take_changes() == Changes(jobs=frozenset(("JOB00001", "JOB00002")), nodes=frozenset(("n1",)))
    assert not model.take_changes()
    assert set(model.view(LiveState.LIVE).jobs) == {"JOB00002"}
    assert bool(Changes(queue=True) | Changes(state=True))
    assert (Changes(queue=True) | Changes(jobs=frozenset(("A",)))) == Changes(
        jobs=frozenset(("A",)), queue=True
    )


def test_an_older_version_of_a_job_changes_nothing(model: Model) -> None:
    model.take(frames.JobFrame(seq=20, job=a_job(1, JobState.RUNNING, seq=20)))
    model.take(frames.JobFrame(seq=15, job=a_job(1, JobState.STARTING, seq=15)))

    assert model.view(LiveState.LIVE).jobs[JobId("JOB00001")].state is JobState.RUNNING


def test_only_so_many_ended_jobs_are_kept(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live_view, "ENDED_KEPT", 3)
    for number in range(2, 8):
        model.take(frames.JobFrame(seq=number, job=a_job(number, JobState.COMPLETED, seq=number)))

    assert set(model.view(LiveState.LIVE).jobs) == {"JOB00001", "JOB00005", "JOB00006", "JOB00007"}


def test_a_new_snapshot_forgets_what_is_not_in_it_and_keeps_what_was_seen_to_end(model: Model) -> None:
    model.take(frames.JobFrame(seq=11, job=a_job(2, JobState.COMPLETED, seq=11)))
    model.begin(replace(CLUSTER, seq=50), [a_node("n9")], [a_job(3)])
    view = model.view(LiveState.LIVE)

    assert (set(view.jobs), set(view.nodes), model.seq) == ({"JOB00002", "JOB00003"}, {"n9"}, 50)
    assert model.take_changes().nodes == {"n1", "n9"}


def test_a_job_that_stands_aside_is_told_its_own_reason(model: Model) -> None:
    view = model.view(LiveState.LIVE)

    assert view.waiting("JOB00001") == live_view.WaitingNow(None, 0, "held", "It is held.", None)
    assert view.waiting("NONE") is None


def test_a_server_that_is_away_is_said_and_looked_for_again() -> None:
    transport = MockTransport()
    transport.failures = [lost("The server is away.")]
    client = Client(transport=transport)
    mirror = mirror_of(client)
    states: list[tuple[LiveState, str]] = []
    seen = threading.Event()

    def hear(view: View, changes: Changes) -> None:
        states.append((view.state, view.problem))
        if view.nodes or len(states) > 2:
            seen.set()
        mirror.retry()

    with mirror.reader(hear, per_second=1000.0) as reader:
        assert seen.wait(20.0)
        late = mirror.reader()
        first = late.wait(20.0)
        late.close()
        assert reader.view.retry_at is not None
    again = late.wait(0.0)

    assert mirror is mirror_of(client)
    assert states[0] == (LiveState.STALE, "The server is away.")
    assert states[1] == (LiveState.STALE, "Nothing can be typed here.")  # the stand-in has no WebSockets
    assert first is not None
    assert first.state
    assert again is None
    assert mirror.view.state is LiveState.STOPPED


def test_a_reader_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    mirror = mirror_of(Client(transport=MockTransport()))

    def fail(view: View, changes: Changes) -> None:
        raise ValueError("not today")

    with mirror.reader(fail, per_second=1000.0), mirror.reader(per_second=1000.0) as other:
        assert other.wait(20.0) is not None

    assert "a reader of live figures failed" in caplog.text


def test_an_expected_start_is_kept_until_the_queue_knows_of_none(model: Model) -> None:
    job, why = JobId("JOB00001"), {"1": frames.Why("busy", "Waits.")}
    model.take(
        frames.QueueFrame(version=1, inserted=((0, (job,)),), reasons=why, why={job: 1}, expected={job: 50.0})
    )
    assert model.view(LiveState.LIVE).waiting(job) == WaitingNow(1, 1, "busy", "Waits.", 50.0)
    model.take(frames.QueueFrame(version=2, base=1, expected={job: None}))
    assert model.view(LiveState.LIVE).waiting(job) == WaitingNow(1, 1, "busy", "Waits.", None)


def test_clients_of_one_server_and_one_login_share_a_mirror() -> None:
    one, same = Client("http://127.0.0.1:9/", "a"), Client("http://127.0.0.1:9/", "a")
    other, elsewhere = Client("http://127.0.0.1:9/", "b"), Client("http://127.0.0.1:8/", "a")
    mirrors = [mirror_of(client) for client in (one, same, other, elsewhere)]
    assert mirrors[0] is mirrors[1]
    assert len({id(mirror) for mirror in mirrors}) == 3
