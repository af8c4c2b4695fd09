"""One suite for everything that plays the link to nodes, and enrolment with it: what the master may count
on.
"""

from __future__ import annotations

import threading

import pytest

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.meeting import Peer
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.master.node_link import (
    AskNode,
    Enrolment,
    Inbox,
    NewestReading,
    NodeAnswer,
    NodeLink,
    PassInput,
)
from mgpu_jupyter.scheduler.commands import (
    LaunchTask,
    MeetTask,
    PrepareTask,
    ProbeNode,
    StartTask,
    StopTask,
    WarnTask,
)
from mgpu_jupyter.scheduler.events import NodeJoined, NodeLeft, TaskReported
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import Load
from tests.builders import ended, facts, status
from tests.contract.node_links import AT, LIMIT_S, LINKS

N1, N2 = NodeId("n1"), NodeId("n2")


@pytest.fixture(params=LINKS)
def nodes(request, tmp_path):
    nodes = LINKS[request.param](tmp_path)
    yield nodes
    if not nodes.is_over:
        nodes.link.close()
    nodes.close()


@pytest.fixture
def joined(nodes):
    for name in (N1, N2):
        nodes.join(name)
    return nodes


def heard(nodes, name):
    """Return all that a node was told by now: what is sent after it is heard after it."""
    nodes.link.flush()
    nodes.link.send([ProbeNode(name, 99)])
    *messages, last = nodes.heard_until(name, lambda messages: wire.Probe(number=99) in messages)
    assert last == wire.Probe(number=99)
    return messages


def methods(role):
    return {name for name in vars(role) if not name.startswith("_")}


def test_the_ports_are_small_and_all_of_them_are_played(nodes):
    assert methods(NodeLink) == {"wait", "wake", "poll", "send", "committed", "flush", "resync", "close"}
    assert methods(Enrolment) == {"listen", "admit", "knows", "revoke", "forget"}
    assert all(callable(getattr(nodes.link, name)) for name in methods(NodeLink))
    assert all(callable(getattr(nodes.enrolment, name)) for name in methods(Enrolment))


def test_a_wait_ends_when_it_is_woken_from_another_thread(nodes):
    waiting, over = threading.Event(), threading.Event()

    def wait():
        waiting.set()
        nodes.link.wait(LIMIT_S)
        over.set()

    thread = threading.Thread(target=wait)
    thread.start()
    waiting.wait(LIMIT_S)
    nodes.link.wake()
    thread.join(LIMIT_S / 2)
    assert over.is_set()


def test_a_node_that_joins_is_told_once_with_what_it_runs(nodes):
    task = status(nodes.job)
    assert nodes.join(N1, task) == [NodeJoined(at=AT, node_id=N1, facts=facts("n1"), tasks=(task,))]
    assert nodes.link.poll() == Inbox()


def test_events_come_in_the_order_in_which_a_node_told_them(joined):
    first, second = status(joined.job), ended(joined.job)
    joined.report(first)
    joined.report(second)
    joined.leave(N1)
    seen = joined.poll_until(lambda seen: len(seen.events) == 3)
    left = NodeLeft(at=AT, node_id=N1, reason="stopped")
    assert seen.events == [TaskReported(at=AT, status=first), TaskReported(at=AT, status=second), left]


def test_each_command_reaches_its_node_in_order_and_no_other(joined):
    spec = launch_spec(joined.job, joined.job.placements[0], 15.0)
    key, peer = spec.key, Peer(node_id=N2, ways=(), port=1)
    typed = wire.Input(key=key, rank=0, writer="w", offset=7, data=b"x")
    joined.link.send(
        [
            LaunchTask(spec),
            PrepareTask(spec, 60.0, meets=True),
            MeetTask(N1, key, (peer,), 4.0),
            StartTask(N1, key),
            StartTask(N1, key, spec),
            WarnTask(N1, key, 10, 99.5),
            StopTask(N1, key, 5.0, "because", "cancel"),
            PassInput(N1, typed),
            AskNode(N1, 3, key),
        ]
    )
    joined.link.send([ProbeNode(N1, 7)])
    messages = heard(joined, N1)
    (secret,) = (message.secret for message in messages if isinstance(message, wire.Meet))
    assert messages == [
        wire.Launch(spec=spec),
        wire.Prepare(spec=spec, hold_s=60.0, meets=True),
        wire.Meet(key=key, secret=secret, peers=(peer,), limit_s=4.0),
        wire.Start(key=key),
        wire.Start(key=key, spec=spec),
        wire.Warn(key=key, signal=10, serial=99.5),
        wire.Stop(key=key, grace_s=5.0, reason="because", cause="cancel"),
        typed,
        wire.Ping(number=3, key=key),
        wire.Probe(number=7),
    ]
    assert heard(joined, N2) == []


def test_nothing_leaves_before_the_flush(joined):
    joined.link.send([ProbeNode(N1, 1)])
    assert joined.heard(N1) == []
    assert heard(joined, N1) == [wire.Probe(number=1)]


def test_what_is_for_a_node_that_is_away_is_dropped_and_does_not_come_later(nodes):
    nodes.join(N2)
    nodes.link.send([ProbeNode(N1, 1), ProbeNode(N2, 2)])
    assert heard(nodes, N2) == [wire.Probe(number=2)]
    nodes.link.send([ProbeNode(N1, 3)])
    nodes.join(N1)
    assert heard(nodes, N1) == []


def test_what_waits_for_a_node_that_leaves_is_dropped(joined):
    joined.leave(N1)
    joined.poll_until(lambda seen: seen.events)
    joined.link.send([ProbeNode(N1, 1)])
    joined.link.flush()
    joined.join(N1)
    assert heard(joined, N1) == []


def test_an_end_may_go_once_it_is_committed(joined):
    joined.report(ended(joined.job))
    joined.poll_until(lambda seen: seen.events)
    assert heard(joined, N1) == []
    joined.link.committed()
    assert heard(joined, N1) == [wire.Forget(keys=(joined.job.attempt_key,), ranks=(0,))]
    joined.link.committed()
    assert heard(joined, N1) == []


def test_an_end_whose_turn_came_to_nothing_is_asked_for_again_and_not_forgotten(joined):
    joined.report(ended(joined.job))
    joined.poll_until(lambda seen: seen.events)
    joined.link.resync()
    joined.link.committed()
    assert [heard(joined, name) for name in (N1, N2)] == [[wire.Resync()], [wire.Resync()]]


def test_readings_come_whole_and_once(joined):
    samples = (
        GpuSample(uuid="GPU-n1-0", utilisation_percent=40.0),
        GpuSample(uuid="GPU-n1-1", utilisation_percent=60.0),
    )
    joined.read(N1, samples, 12.5)
    seen = joined.poll_until(lambda seen: seen.readings)
    assert seen.readings == {
        N1: NewestReading(samples=samples, load=Load(gpu_percent=50.0, cpu_percent=12.5))
    }
    assert joined.link.poll().readings == {}


def test_what_was_read_of_input_and_output_that_grew_come_beside_the_events(joined):
    ack = wire.InputAck(key=joined.job.attempt_key, rank=0, writer="w", offset=7)
    joined.print_out(N1, b"hello")
    joined.acknowledge(N1, ack)
    seen = joined.poll_until(lambda seen: seen.typed and seen.grown)
    assert (seen.events, seen.typed, seen.grown) == ([], [ack], {joined.job.id})


def test_an_answer_comes_under_the_name_of_who_gave_it(joined):
    pong = wire.Pong(
        number=5, node_id=N1, host="h", address="a", agent_version="1", python="p", pid=7, at=1.0
    )
    joined.link.send([AskNode(N1, 5)])
    assert heard(joined, N1) == [wire.Ping(number=5)]
    joined.answer(N1, pong)
    joined.answer(N2, pong)
    seen = joined.poll_until(lambda seen: len(seen.answers) == 2)
    assert sorted(seen.answers) == [NodeAnswer(N1, 5, pong), NodeAnswer(N2, 5, pong)]


def test_a_question_to_a_node_that_is_away_is_answered_at_once(nodes):
    nodes.link.send([AskNode(N1, 5)])
    nodes.link.wait(LIMIT_S)
    assert nodes.link.poll() == Inbox(answers=[NodeAnswer(N1, 5, None)])


def test_a_node_that_is_revoked_is_heard_no_more_and_hears_no_more_and_others_notice_nothing(joined):
    joined.enrolment.revoke(N1, "Revoked by root.")
    joined.report(status(joined.job))
    joined.leave(N2)
    seen = joined.poll_until(lambda seen: seen.events and joined.is_refused(N1))
    assert seen.events == [NodeLeft(at=AT, node_id=N2, reason="stopped")]
    joined.link.send([StopTask(N1, joined.job.attempt_key, 5.0, "because"), AskNode(N1, 1)])
    joined.link.flush()
    assert joined.poll_until(lambda seen: seen.answers).answers == [NodeAnswer(N1, 1, None)]
    assert [message for message in joined.heard(N1) if not isinstance(message, wire.Refuse)] == []
    assert [joined.enrolment.knows(name) for name in (N1, N2)] == [False, True]


def test_a_node_that_is_forgotten_is_away(joined):
    joined.enrolment.forget(N1)
    joined.link.send([AskNode(N1, 1)])
    assert joined.poll_until(lambda seen: seen.answers).answers == [NodeAnswer(N1, 1, None)]
    assert [joined.enrolment.knows(name) for name in (N1, N2)] == [False, True]


def test_an_address_is_listened_on_once(nodes):
    assert [nodes.enrolment.listen(host) for host in ("127.0.0.1", "127.0.0.3", "127.0.0.3")] == [
        False,
        True,
        False,
    ]


def test_closing_tells_what_may_go_and_says_goodbye(joined):
    joined.report(ended(joined.job))
    joined.poll_until(lambda seen: seen.events)
    joined.link.committed()
    joined.is_over = True
    last = joined.link.close()
    forget, bye = wire.Forget(keys=(joined.job.attempt_key,), ranks=(0,)), wire.Bye()
    told = {N1: [], N2: []}
    for name in (N1, N2):
        while bye not in told[name]:
            told[name] += joined.heard(name)
    assert told == {N1: [forget, bye], N2: [bye]}
    assert (last.events, last.answers, last.readings) == ([], [], {})
