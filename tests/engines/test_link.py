"""The link to agents over a carrier in memory: what becomes an event, what is refused, what is sent."""

from __future__ import annotations

import logging

from msgspec.structs import replace

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.meeting import Peer
from mgpu_agent.protocol.model import STDERR, STDOUT, GpuSample, GpuTrouble, OutputMark, Trouble
from mgpu_jupyter.engines.agents.enrolment import ENROL_USER
from mgpu_jupyter.master.node_link import AskNode, Incoming, NewestReading, NodeAnswer
from mgpu_jupyter.master.ports import Mark
from mgpu_jupyter.scheduler.commands import LaunchTask, MeetTask, PrepareTask, StartTask, StopTask
from mgpu_jupyter.scheduler.events import (
    GpusChanged,
    LaunchWasPrepared,
    LaunchWasRefused,
    NodeHeard,
    NodeJoined,
    NodeLeft,
    NodeMeasured,
    NodeMet,
    NodeMisnamed,
    NodeSilent,
    TaskReported,
)
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import Load
from tests.builders import ended, facts, status
from tests.engines.world import AT, CHECKS, EPOCH, World, wait_until


def test_a_hello_becomes_an_event_and_is_welcomed_with_what_is_already_here(world):
    task = status(world.job)
    world.hello()
    world.output(b"hello")
    world.sent()

    events = world.hello(route=b"\0r2", tasks=(task,))

    assert events == [NodeJoined(at=AT, node_id=NodeId("n1"), facts=facts("n1"), tasks=(task,))]
    marks = tuple(OutputMark(task.key, 0, stream, offset) for stream, offset in ((STDOUT, 5), (STDERR, 0)))
    welcome = wire.Welcome(
        cluster="test", heartbeat_s=2.0, sample_s=2.0, output_window_bytes=4 << 20, received=marks
    )
    assert world.sent() == [(b"\0r2", welcome), (b"\0r2", wire.Check(checks=CHECKS))]


def test_a_key_that_claims_another_nodes_id_is_refused_and_the_node_notices_nothing(world, caplog):
    world.hello("n2", b"\0r2")
    world.sent()

    for _ in range(3):
        assert world.say(wire.Hello(node_id=NodeId("n2"), facts=facts("n2")), node="n1") == [
            NodeMisnamed(at=AT, node_id="n1", said="n2")
        ]

    refusal = wire.Refuse(
        code="wrong-node-id", message="Your key is bound to n1, not to n2: use that --node-id."
    )
    assert world.sent() == [(b"\0r1", refusal)] * 3
    assert len([record for record in caplog.records if "wrong-node-id" in record.message]) == 1
    assert world.say(wire.Heartbeat(at=1.0), node="n2", route=b"\0r2") == []


def test_a_report_under_another_name_counts_for_the_node_of_the_key_and_is_told_of(world, caplog):
    task = status(world.job)
    world.hello()
    misnamed = NodeMisnamed(at=AT, node_id=NodeId("n1"), said="n9", key=task.key)

    events = world.say(wire.TaskReport(status=replace(task, node_id=NodeId("n9"))))
    again = world.hello(tasks=(replace(task, node_id=NodeId("n9")),))

    assert events == [misnamed, TaskReported(at=AT, status=task)]
    assert again == [misnamed, NodeJoined(at=AT, node_id=NodeId("n1"), facts=facts("n1"), tasks=(task,))]
    assert [record.levelname for record in caplog.records if "n1 reports as n9" in record.message] == [
        "WARNING"
    ]


def test_a_node_is_asked_who_it_is_and_its_answer_comes_under_its_own_name(world):
    task = status(world.job)
    world.link.send([AskNode(NodeId("n1"), 1)])
    assert world.take("answers") == [NodeAnswer(NodeId("n1"), 1, None)]
    world.hello()
    world.hello("n2", b"\0r2")
    world.sent()

    world.link.send([AskNode(NodeId("n1"), 1, task.key)])
    assert world.sent() == [(b"\0r1", wire.Ping(number=1, key=task.key))]
    pong = wire.Pong(
        number=1, node_id=NodeId("n1"), host="h", address="a", agent_version="1", python="p", pid=7, at=1.0
    )
    assert [world.say(pong, node="n2", route=b"\0r2"), world.say(pong)] == [[], []]
    assert world.take("answers") == [NodeAnswer(NodeId("n2"), 1, pong), NodeAnswer(NodeId("n1"), 1, pong)]


def test_steps_are_noted_once_and_only_of_what_a_node_was_given(world):
    task = ended(world.job, stdout_bytes=2)
    world.hello()
    world.hello("n2", b"\0r2")

    world.say(wire.Prepared(key=task.key), node="n2", route=b"\0r2")
    world.say(wire.Prepared(key=task.key))
    world.output(b"h")
    world.output(b"i", offset=1)
    world.say(wire.TaskReport(status=task))
    world.link.committed()
    wait_until(lambda: any(isinstance(message, wire.Forget) for _, message in world.sent()))

    def mark(step, who):
        return Mark(job_id=world.job.id, attempt=1, step=step, who=who, at=AT)

    assert world.take("marks") == [mark("prepared", "n1"), mark("output", "0"), mark("collected", "0")]
    assert world.take("marks") == []


def test_frames_of_an_older_connection_are_dropped_and_one_without_hello_is_asked_for_it(world):
    assert world.say(wire.TaskReport(status=status(world.job))) == []
    assert world.sent() == [(b"\0r1", wire.Resync())]
    world.hello(route=b"\0r1")
    world.hello(route=b"\0r2")
    world.sent()

    assert world.say(wire.TaskReport(status=status(world.job)), route=b"\0r1") == []
    assert world.sent() == []
    assert world.say(wire.TaskReport(status=status(world.job)), route=b"\0r2") == [
        TaskReported(at=AT, status=status(world.job))
    ]


def test_a_node_reports_only_for_itself(world):
    world.hello("n2", b"\0r2")

    assert world.say(wire.TaskReport(status=status(world.job)), node="n2", route=b"\0r2") == []


def test_a_parcel_goes_only_from_a_node_of_the_attempt_to_a_node_of_the_attempt(world):
    """n1 and n2 have it; sybil is enrolled and has not, whomever she names."""
    key = world.job.attempt_key
    world.assigned[key] = frozenset({NodeId("n1"), NodeId("n2")})
    routes = {"n1": b"\0r1", "n2": b"\0r2", "sybil": b"\0r3"}
    for node, route in routes.items():
        world.hello(node, route)
    world.sent()
    another = AttemptKey(key.job_id, key.attempt, key.epoch + 1)
    passed = []
    for sender, own in routes.items():
        for target in (*routes, "nobody"):
            for about in (key, another):
                world.say(wire.Post(key=about, to=target, data=b"order"), node=sender, route=own)
                passed += [(sender, target, about, route, message) for route, message in world.sent()]
    between = [("n1", "n1"), ("n1", "n2"), ("n2", "n1"), ("n2", "n2")]
    assert passed == [
        (one, two, key, routes[two], wire.Posted(key=key, sender=one, data=b"order")) for one, two in between
    ]
    world.say(wire.Post(key=key, to="n2", data=bytes(wire.MAX_POST_BYTES + 1)), node="n1")
    world.say(
        wire.Post(key=key, to="n2", data=b"order"), node="n1", route=b"\0r3"
    )  # from a connection that is not its own
    assert [message for _, message in world.sent() if isinstance(message, wire.Posted)] == []


def test_refusals_readings_and_farewells(world):
    world.hello()
    attempt = world.job.attempt_key
    sample = GpuSample(uuid="GPU-n1-0", utilisation_percent=5.0)
    refused = wire.LaunchRefused(key=attempt, code="c", message="m", fault="request", exit_code=127)

    events = world.say(
        refused, wire.Heartbeat(at=1.0, samples=(sample,)), wire.Heartbeat(at=2.0), wire.Leave()
    )

    assert events == [
        LaunchWasRefused(
            at=AT, node_id=NodeId("n1"), key=attempt, code="c", message="m", fault="request", exit_code=127
        ),
        NodeMeasured(at=AT, node_id=NodeId("n1"), load=Load(gpu_percent=5.0)),
        NodeLeft(at=AT, node_id=NodeId("n1"), reason="Its agent was stopped."),
    ]
    assert world.take("readings") == {"n1": NewestReading(samples=(sample,), load=Load(gpu_percent=5.0))}
    assert world.take("readings") == {}


def test_troubles_of_gpus_are_told_once_and_taken_back(world):
    lost = GpuTrouble(Trouble.LOST, "Gone.")
    bad, well = GpuSample(uuid="GPU-n1-0", trouble=lost), GpuSample(uuid="GPU-n1-0")
    (joined,) = world.say(wire.Hello(node_id=NodeId("n1"), facts=facts(), samples=(bad,)))
    events = world.say(
        *(wire.Heartbeat(at=1.0, samples=(sample,)) for sample in (bad, well, well, bad)),
        wire.Heartbeat(at=2.0),
    )

    assert joined == NodeJoined(at=AT, node_id=NodeId("n1"), facts=facts(), troubles={"GPU-n1-0": lost})
    assert events == [
        GpusChanged(at=AT, node_id=NodeId("n1"), troubles=troubles) for troubles in ({}, {"GPU-n1-0": lost})
    ]


def test_bad_frames_and_newer_masters_are_answered_or_dropped(world, caplog):
    world.carrier.incoming.append(Incoming("n1", b"\0r1", [memoryview(b"rubbish")]))

    assert world.poll() == []
    assert [message.code for _, message in world.sent()] == ["bad-frame"]
    assert world.say(wire.Hello(node_id=NodeId("n1"), facts=facts()), epoch=EPOCH + 1) == []
    assert "knows a newer master" in caplog.text


# --- enrolment --------------------------------------------------------------------------------------


def test_enrolment_binds_a_key_before_it_answers(world):
    public = "k" * 40

    assert world.say(wire.Enrol(node_id=NodeId("n7"), public_key=public), node=ENROL_USER) == []

    assert (world.bound, world.carrier.allowed) == ({"n7": public}, {"n7": public})
    assert world.sent() == [(b"\0r1", wire.Enrolled(node_id=NodeId("n7")))]


def test_what_enrolment_does_not_allow(world):
    world.hello("n1", b"\0r9")
    world.sent()

    world.say(wire.Hello(node_id=NodeId("n1"), facts=facts()), node=ENROL_USER)
    world.say(wire.Enrol(node_id=NodeId("n1"), public_key="k" * 40), node=ENROL_USER)
    world.say(wire.Enrol(node_id=NodeId("n2"), public_key="short"), node=ENROL_USER)
    for bad in ("", ENROL_USER, "../n1", "n" * 64):
        world.say(wire.Enrol(node_id=NodeId(bad), public_key="k" * 40), node=ENROL_USER)
    world.say(wire.Enrol(node_id=NodeId("n1"), public_key="k" * 40), node="n1", route=b"\0r9")

    assert [message.code for _, message in world.sent()] == [
        "enrol-first",
        "node-id-taken",
        "bad-key",
        *["bad-node-id"] * 4,
        "already-enrolled",
    ]
    assert world.bound == {}


# --- silence ----------------------------------------------------------------------------------------


def test_a_silent_node_is_told_once_and_again_when_it_speaks(tmp_path):
    world = World(tmp_path / "logs", timeout_s=5.0)
    world.hello()
    world.now += 5.5

    (event,) = world.poll()
    assert event == NodeSilent(
        at=AT + 5.5, node_id=NodeId("n1"), reason="Nothing is heard of it any more.", heard_at=AT
    )
    assert world.poll() == []
    assert world.say(wire.Heartbeat(at=1.0)) == [NodeHeard(at=AT + 5.5, node_id=NodeId("n1"))]
    world.link.close()


def test_a_connection_that_breaks_makes_the_node_silent_at_once(world):
    world.hello()
    world.sent()
    world.carrier.gone.add(b"\0r1")
    world.link.send([LaunchTask(launch_spec(world.job, world.job.placements[0], 15.0))])
    world.link.flush()

    assert world.poll() == [
        NodeSilent(at=AT, node_id=NodeId("n1"), reason="Its connection broke.", heard_at=AT)
    ]


def test_a_connection_that_ends_makes_the_node_silent_until_its_next_hello_whatever_it_still_brings(world):
    world.hello()
    world.carrier.ended.append(b"\0r1")
    silent = NodeSilent(at=AT, node_id=NodeId("n1"), reason="Its connection broke.", heard_at=AT)
    assert world.poll() == [silent]

    assert world.say(wire.Heartbeat(at=1.0)) == []
    world.carrier.ended.append(b"\0of nobody")
    assert world.poll() == []
    world.hello(route=b"\0r2")
    assert world.say(wire.Heartbeat(at=2.0), route=b"\0r2") == []
    world.carrier.ended.append(b"\0r2")
    assert world.poll() == [silent]


def test_a_beat_is_answered_with_itself_and_only_on_the_connection_it_came_by(world):
    world.hello()
    world.sent()

    world.say(wire.Heartbeat(at=1.0, beat=70.5))
    world.say(wire.Heartbeat(at=2.0, beat=72.5))
    world.say(wire.Heartbeat(at=2.5))
    assert world.sent() == [(b"\0r1", wire.Heard(beat=72.5))]
    assert world.sent() == []

    world.say(wire.Heartbeat(at=3.0, beat=74.5))
    world.say(wire.Hello(node_id=NodeId("n1"), facts=facts("n1"), beat=1.5), route=b"\0r2")
    assert [
        (route, message.beat) for route, message in world.sent() if isinstance(message, wire.Welcome)
    ] == [(b"\0r2", 1.5)]


def test_a_launch_in_two_steps_goes_out_and_its_answers_come_in(world):
    world.hello()
    world.sent()
    spec = launch_spec(world.job, world.job.placements[0], 15.0)

    world.link.send([PrepareTask(spec, 60.0)])
    world.link.send([StartTask(NodeId("n1"), spec.key)])
    assert world.sent() == [
        (b"\0r1", wire.Prepare(spec=spec, hold_s=60.0)),
        (b"\0r1", wire.Start(key=spec.key)),
    ]

    assert world.say(wire.Prepared(key=spec.key)) == [
        LaunchWasPrepared(at=AT, node_id=NodeId("n1"), key=spec.key)
    ]
    joined = world.say(wire.Hello(node_id=NodeId("n1"), facts=facts("n1"), prepared=(spec.key,)))
    assert joined == [NodeJoined(at=AT, node_id=NodeId("n1"), facts=facts("n1"), prepared=(spec.key,))]


def test_every_launch_says_how_much_its_files_may_be(world):
    world.hello()
    world.sent()
    plain = launch_spec(world.job, world.job.placements[0], 15.0)
    spec = replace(plain, folder="0" * 64, results=("*",))
    world.link.send([LaunchTask(spec)])
    world.link.send([PrepareTask(spec, 60.0)])
    world.link.send([StartTask(NodeId("n1"), spec.key, spec)])

    limited = replace(spec, folder_limit_bytes=20 * 1024**3, results_limit_bytes=20 * 1024**3)
    assert [message for _, message in world.sent()] == [
        wire.Launch(spec=limited),
        wire.Prepare(spec=limited, hold_s=60.0),
        wire.Start(key=spec.key, spec=limited),
    ]


def test_a_meeting_goes_out_with_one_secret_for_each_attempt_and_its_answer_comes_in(world):
    world.hello()
    world.sent()
    spec = launch_spec(world.job, world.job.placements[0], 15.0)
    other = replace(spec.key, epoch=99)
    peer = Peer(node_id=NodeId("n2"), ways=(), port=1)
    for key in (spec.key, spec.key, other):
        world.link.send([MeetTask(NodeId("n1"), key, (peer,), 4.0)])

    first, again, another = (message for _, message in world.sent())
    assert (first, len(first.secret), first.secret == another.secret) == (again, 32, False)
    met = wire.Met(key=spec.key)
    assert world.say(met) == [NodeMet(at=AT, node_id=NodeId("n1"), met=met)]


def test_what_is_decided_is_sent_with_the_next_flush_and_dropped_for_a_node_that_is_away(world):
    spec = launch_spec(world.job, world.job.placements[0], 15.0)
    world.link.send([LaunchTask(spec)])
    assert world.sent() == []
    world.hello()
    world.sent()

    world.link.send([LaunchTask(spec)])
    world.link.send([StopTask(NodeId("n1"), spec.key, 5.0, "because")])
    world.link.resync()

    stop = wire.Stop(key=spec.key, grace_s=5.0, reason="because")
    assert world.sent() == [(b"\0r1", wire.Launch(spec=spec)), (b"\0r1", stop), (b"\0r1", wire.Resync())]


def test_closing_says_goodbye(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    world = World(tmp_path / "logs")
    world.hello()
    world.sent()

    world.link.close()

    assert [message for _, _, message in world.carrier.sent] == [wire.Bye()]
    assert world.carrier.is_closed
