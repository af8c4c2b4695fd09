"""Versions of the queue: what is sent of a change, and that who applies it has the queue."""

from __future__ import annotations

import random

from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.api import frames
from mgpu_jupyter.client.live_view import LiveState, Model
from mgpu_jupyter.master.queue_snapshot import QueueSnapshot, queue_snapshot
from mgpu_jupyter.model.settings import Quota, Scheduling
from mgpu_jupyter.scheduler.explain.waiting import waiting
from mgpu_jupyter.scheduler.model import Policy, Reason
from mgpu_jupyter.server.live.queue_versions import Numbers, Version, difference, whole
from tests.builders import Cluster

NUMBERS = Numbers()
IDS = [JobId(f"JOB{number:05}") for number in range(5_000)]


def version(number, order, group=lambda job_id: "busy", words=None, expected=None, numbers=NUMBERS):
    keys = [group(job_id) for job_id in order]
    reasons = {key: Reason("busy", (words or {}).get(key, f"Waits for {key}.")) for key in keys}
    return numbers.version(number, QueueSnapshot(list(order), keys, reasons, expected or {}))


def applied(model, frame):
    """Send a frame over the wire to a reader."""
    model.take(frames.QueueFrame(**{name: getattr(frame, name) for name in frame.__struct_fields__}))
    return model.view(LiveState.LIVE)


def same(view, wanted: Version):
    told = {job_id: view.waiting(job_id) for job_id in wanted.order}
    return (
        view.queue == wanted.order
        and {job_id: one.place for job_id, one in told.items()}
        == {job_id: place for place, job_id in enumerate(wanted.order, 1)}
        and {job_id: one.reason for job_id, one in told.items()}
        == {job_id: wanted.reasons[number].text for job_id, number in wanted.why.items()}
        and {job_id: one.expected_at for job_id, one in told.items() if one.expected_at}
        == dict(wanted.expected)
    )


def test_when_the_first_of_five_thousand_starts_one_line_is_sent():
    old, new = version(2, IDS), version(3, IDS[1:])
    frame = difference(old, new)

    assert frame == frames.QueueFrame(version=3, base=2, removed=(IDS[0],))


def test_other_words_for_all_are_one_line():
    old = version(2, IDS, words={"busy": "n1 has 3 free."})
    new = version(3, IDS, words={"busy": "n1 has 2 free."})
    frame = difference(old, new)

    (number,) = frame.reasons
    assert frame == frames.QueueFrame(
        version=3, base=2, reasons={number: frames.Why("busy", "n1 has 2 free.")}
    )


def test_who_moves_to_the_front_moves_alone():
    old, new = version(2, IDS), version(3, [IDS[-1], *IDS[:-1]])

    assert difference(old, new) == frames.QueueFrame(
        version=3, base=2, removed=(IDS[-1],), inserted=((0, (IDS[-1],)),)
    )


def test_expected_starts_come_and_go():
    old = version(2, IDS[:3], expected={IDS[0]: 10.0, IDS[1]: 20.2})
    new = version(3, IDS[1:3], expected={IDS[2]: 30.0})

    assert difference(old, new) == frames.QueueFrame(
        version=3, base=2, removed=(IDS[0],), expected={IDS[2]: 30.0, IDS[1]: None}
    )


def test_a_reader_that_applies_differences_has_the_queue():
    draw = random.Random(8)
    model, numbers, order = Model(), Numbers(), []
    last = None
    for number in range(2, 120):
        new = [job_id for job_id in draw.sample(IDS, 6) if job_id not in order]
        for job_id in draw.sample(order, min(len(order), draw.randrange(4))):
            order.remove(job_id)
        for job_id in new:
            order.insert(draw.randrange(len(order) + 1), job_id)
        if draw.random() < 0.3:
            draw.shuffle(order)
        groups = {job_id: draw.choice("abc") for job_id in order}
        expected = {
            job_id: float(draw.randrange(1, 1000)) for job_id in draw.sample(order, min(2, len(order)))
        }
        words = {key: f"Waits for {key}, {draw.randrange(3)} missing." for key in "abc"}
        now = version(number, order, groups.__getitem__, words, expected, numbers)
        view = applied(model, whole(now) if last is None or draw.random() < 0.05 else difference(last, now))
        assert same(view, now), number
        last = now


def test_the_snapshot_of_the_queue_says_what_each_job_is_told():
    """One look at all says the same as a question about each."""
    policy = Policy(scheduling=Scheduling(quotas={"max": Quota(running=0)}))
    cluster = Cluster(("n1", 4), policy=policy)
    cluster.started(gpus=3, time_limit_s=1000.0)
    cluster.submit(gpus=4, user="bob", time_limit_s=500.0)
    for _ in range(3):
        cluster.submit(gpus=2, user="ann")
    cluster.submit(gpus=1, user="max")
    cluster.submit(gpus=1, user="ann", time_limit_s=50_000.0)
    cluster.schedule(3.0)
    fresh = cluster.submit(gpus=1, user="zoe")
    state = cluster.state
    snapshot = queue_snapshot(state, 3.0)

    told = {job_id: snapshot.reasons[key] for job_id, key in zip(snapshot.order, snapshot.keys, strict=True)}
    assert list(snapshot.order) == list(state.queue)
    assert told == {job_id: waiting(state, job_id, 3.0).reason for job_id in snapshot.order}
    assert sorted(reason.code for reason in told.values()) == [
        "busy",
        "busy",
        "busy",
        "busy",
        "new",
        "promised",
        "quota",
    ]
    assert told[fresh].code == "new"
    assert snapshot.expected == {
        job_id: start
        for job_id in snapshot.order
        if (start := waiting(state, job_id, 3.0).expected_at) is not None
    }
    assert list(snapshot.expected) == [snapshot.order[0]]
