"""The master's turn: durable before visible, one commit per turn, and a turn that fails leaves no trace."""

from __future__ import annotations

import threading

from msgspec.structs import replace

from mgpu_agent.protocol import messages as wire
from mgpu_agent.protocol.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuSample
from mgpu_jupyter.master import calls, node_calls
from mgpu_jupyter.master.master import SEQ_PER_EPOCH
from mgpu_jupyter.master.node_link import QUESTIONS_REMEMBERED, NewestReading, NodeAnswer, OpenQuestions
from mgpu_jupyter.master.ports import JoinKey
from mgpu_jupyter.master.queue_snapshot import queue_snapshot
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.scheduler.events import LaunchWasPrepared, NodeMet, TaskReported
from mgpu_jupyter.scheduler.model import Load, Policy
from tests.builders import a_spec, an_offer, ended, everybody_reached, job_id, status
from tests.master.bench import LIMIT_S, bench

__all__ = ("bench",)  # fixtures


def test_what_is_saved_in_one_turn_is_one_commit_and_comes_before_sends_and_answers(bench):
    bench.join()
    bench.diary.clear()
    for _ in range(3):
        bench.submit()
    bench.master.turn()

    ids = sorted(bench.master.state.jobs)
    assert bench.diary[0] == ("commit", ["starting"] * 3)
    assert sorted(bench.diary[1:4]) == sorted(("launch", new) for new in ids)
    assert bench.diary[4:] == ["answer"] * 3


def test_a_question_sees_what_its_turn_decided_not_the_moment_between_an_end_and_the_next_start(bench):
    bench.join(gpus=1)
    running, second, third = bench.one_job(gpus=1), bench.one_job(gpus=1), bench.one_job(gpus=1)
    waiting = queue_snapshot(bench.master.state, 5.0)
    assert waiting.order == [second.id, third.id]

    bench.nodes.tell(TaskReported(at=3.0, status=ended(running)))
    bench.post(calls.ask(lambda state: queue_snapshot(state, 5.0), bench.answer))
    after = bench.turn()
    assert (after.order, after.keys) == ([third.id], waiting.keys[1:])


def test_a_job_of_two_nodes_is_prepared_after_one_commit_and_started_after_the_next(bench):
    bench.join("n1")
    bench.join("n2")
    bench.diary.clear()
    job = bench.one_job(nodes=2)
    assert bench.diary == [
        ("commit", ["starting"]),
        ("prepare", "n1", 60.0),
        ("prepare", "n2", 60.0),
        "answer",
    ]

    bench.diary.clear()
    bench.nodes.tell(
        *[LaunchWasPrepared(at=1.0, node_id=NodeId(node), key=job.attempt_key) for node in ("n1", "n2")]
    )
    bench.master.turn()
    assert bench.diary == [("commit", ["starting"]), ("start", "n1"), ("start", "n2")]


def test_nodes_of_a_distributed_job_meet_after_a_commit_and_start_after_the_next(bench):
    nodes = (NodeId("n1"), NodeId("n2"))
    for node in nodes:
        bench.join(node)
    job = bench.one_job(nodes=2, distributed=True)
    bench.diary.clear()
    bench.nodes.tell(
        *[
            LaunchWasPrepared(at=1.0, node_id=node, key=job.attempt_key, offer=an_offer(node))
            for node in nodes
        ]
    )
    bench.master.turn()
    bench.nodes.tell(*[NodeMet(at=1.0, node_id=node, met=everybody_reached(job, node)) for node in nodes])
    bench.master.turn()
    meet = [("meet", "n1", ["n2"], 4.0), ("meet", "n2", ["n1"], 4.0)]
    assert bench.diary == [
        ("commit", ["starting"]),
        *meet,
        ("commit", ["starting"]),
        ("start", "n1"),
        ("start", "n2"),
    ]


def test_the_same_key_is_the_same_job_also_within_a_turn_and_after_its_end(bench):
    bench.submit((a_spec(), "k"), (a_spec(), "k"))
    (first,), (second,) = bench.turn()
    bench.cancel(first.id)
    bench.turn()
    bench.submit((a_spec(), "k"))
    ((third,),) = bench.turn()

    assert {first.id, second.id, third.id} == {first.id}
    assert third.state is JobState.CANCELLED
    bench.submit((a_spec(), "k"), user="bob")
    ((other,),) = bench.turn()
    assert other.id != first.id


def test_a_key_that_was_used_for_something_else_is_a_conflict_and_a_bulk_is_all_or_none(bench):
    bench.submit((a_spec(), "k"))
    bench.turn()
    before = len(bench.master.state.jobs)

    bench.submit((a_spec(), None), (a_spec(gpus=2), "k"))
    assert isinstance(bench.turn(), Conflict)
    bench.submit((a_spec(), None), (a_spec(nodes=2, gpus=3), None))
    assert isinstance(bench.turn(), InvalidRequest)
    assert len(bench.master.state.jobs) == before


def test_only_the_owner_and_administrators_cancel(bench):
    job = bench.one_job()

    bench.cancel(job.id, by="bob")
    assert isinstance(bench.turn(), Forbidden)
    bench.cancel(job_id(9))
    assert isinstance(bench.turn(), NotFound)
    bench.cancel(job.id, by="root", is_admin=True)
    assert bench.turn().state is JobState.CANCELLED
    bench.cancel(job.id)
    assert bench.turn().state is JobState.CANCELLED


def test_a_job_may_be_submitted_and_cancelled_in_the_same_turn(bench):
    bench.submit((a_spec(), "k"))
    bench.submit((a_spec(), "k"))
    bench.master.turn()
    (((first,),), ((second,),)) = bench.answers
    bench.answers.clear()
    bench.submit((a_spec(), "x"))
    new = {}
    bench.post(lambda master, turn: new.update(id=next(iter(turn.batch.new))))

    def cancel_it(master, turn):
        calls.cancel(new["id"], "ann", is_admin=False, answer=bench.answer)(master, turn)

    bench.post(cancel_it)
    bench.master.turn()

    assert first.id == second.id
    assert bench.answers[-1].state is JobState.CANCELLED


def test_a_running_job_is_stopped_and_its_nodes_show_who_holds_them(bench):
    bench.join()
    job = bench.one_job()
    bench.nodes.tell(TaskReported(at=1.0, status=status(job)))
    bench.master.turn()

    (node,) = bench.master.nodes()
    assert (node.holders, node.users) == ({"GPU-n1-0": job.id}, {"GPU-n1-0": "ann"})
    bench.cancel(job.id)
    assert bench.turn().state is JobState.STOPPING
    assert ("stop", "n1", "Cancelled by ann.") in bench.diary
    bench.nodes.tell(TaskReported(at=2.0, status=ended(job, exit_code=None, signal=15)))
    bench.master.turn()
    assert bench.master.node(NodeId("n1")).holders == {}
    assert bench.store.find_job(job.id).state is JobState.CANCELLED


def test_a_question_sees_the_state_and_changes_nothing(bench):
    bench.one_job()
    bench.diary.clear()
    bench.post(calls.ask(lambda state: len(state.queue), bench.answer))

    assert bench.turn() == 1
    assert bench.diary == ["answer"]


def test_sequence_numbers_rise_within_a_run_and_over_restarts(bench):
    bench.join()
    first = bench.one_job()
    seq = bench.store.reader().job(first.id).seq
    assert 2 * SEQ_PER_EPOCH < seq <= bench.master.seq
    assert bench.master.node(NodeId("n1")).seq > seq


def test_a_turn_that_fails_is_invisible_and_its_callers_may_try_again(bench):
    bench.join()
    old = bench.one_job()
    bench.diary.clear()
    bench.store.error = Unavailable("disk-full", "Full.")

    bench.submit()
    assert bench.turn().code == "disk-full"
    assert bench.diary == ["answer", "resync"]
    assert bench.master.problem == "Full."
    assert list(bench.master.state.jobs) == [old.id]
    bench.store.error = None
    bench.submit()
    assert len(bench.turn()) == 1
    assert bench.master.problem == ""


def test_a_bug_in_the_core_costs_one_turn(bench, caplog):
    bench.join()
    bench.nodes.tell("not an event")

    bench.submit()
    answer = bench.turn()
    assert answer is None
    assert "a turn came to nothing, event=str" in caplog.text
    assert len(bench.turn()) == 1


def test_a_store_that_cannot_even_be_read_is_tried_again_later(bench, monkeypatch, caplog):
    bench.store.error = Unavailable("disk-full", "Full.")
    monkeypatch.setattr(
        bench.store, "recover", lambda: (_ for _ in ()).throw(Unavailable("store-error", "Gone."))
    )
    bench.submit()

    assert bench.turn().code == "disk-full"
    assert "could not be read again: Gone." in caplog.text


def test_a_time_limit_is_looked_at_without_anything_else_happening(bench):
    bench.master = bench.new_master(Policy(scheduling=Scheduling(max_time_s=0.001)))
    bench.join()
    job = bench.one_job()
    bench.nodes.tell(TaskReported(at=1.0, status=status(job, started_at=1.0)))
    bench.master.turn()

    bench.master.turn()

    assert ("stop", "n1", "Stopped at its time limit of 0.001 s.") in bench.diary


def test_a_mismatch_is_loud(bench, caplog):
    bench.join()
    job = bench.one_job()
    bench.nodes.tell(TaskReported(at=1.0, status=status(job, gpus=())))
    bench.master.turn()

    assert "mismatch: Rank 0 of job" in caplog.text


def test_a_new_master_knows_what_the_old_one_saved(bench):
    bench.store.bind_node_key(NodeId("n1"), "k" * 40)
    bench.join()
    running, waiting = bench.one_job(gpus=4), bench.one_job()

    after = bench.new_master()
    after.start()
    after.stop()

    assert after.state.jobs == bench.master.state.jobs
    assert list(after.state.queue) == [waiting.id]
    assert after.node(NodeId("n1")).holders == dict.fromkeys(running.placements[0].gpus, running.id)


def test_the_thread_serves_until_it_is_stopped_and_answers_those_who_come_too_late(bench):
    bench.master.start()
    done = threading.Event()
    bench.master.post(calls.submit("ann", [(a_spec(), None)], lambda _: done.set()), bench.answer)

    assert done.wait(LIMIT_S)
    assert bench.master.is_alive
    bench.master.stop()
    assert not bench.master.is_alive
    bench.submit()
    assert bench.answers.pop().code == "stopping"
    assert bench.diary[-2:] == ["close", "answer"]


def test_output_that_grew_is_published(bench):
    bench.nodes.inbox.grown.add(job_id(1))
    bench.master.turn()
    bench.master.turn()

    assert bench.published == [([], {job_id(1)})]


def test_a_node_is_asked_and_only_its_own_answer_counts_once(bench):
    told = []
    for node in ("n1", "n2"):
        bench.join(node)
    pong = wire.Pong(
        number=1, node_id=NodeId("n1"), host="h", address="a", agent_version="1", python="p", pid=7, at=1.0
    )
    bench.post(lambda master, turn: master.ask_node(turn, NodeId("n1"), told.append, None, None))
    bench.turn()
    assert (bench.nodes.heard["n1"], bench.nodes.heard["n2"]) == ([wire.Ping(number=1)], [])
    for node, answer in (("n2", pong), ("n1", replace(pong, number=9)), ("n1", pong), ("n1", pong)):
        bench.nodes.answer(NodeId(node), answer)
        bench.turn()
    assert told == [pong]


def test_a_question_to_a_node_that_is_away_is_answered_with_the_next_turn(bench):
    told = []
    bench.post(lambda master, turn: master.ask_node(turn, NodeId("n9"), told.append, None, None))
    bench.turn()
    assert told == []
    bench.turn()
    assert told == [None]


def test_questions_that_nobody_answers_are_given_up(bench):
    questions, told = OpenQuestions(), []
    numbers = [questions.ask(NodeId("n1"), None, told.append).number for _ in range(QUESTIONS_REMEMBERED + 1)]
    for number in (numbers[0], numbers[1], numbers[-1]):
        questions.take(NodeAnswer(NodeId("n1"), number, None))
    assert told == [None, None]


def test_readings_are_shown_until_newer_ones_come(bench):
    bench.join()
    reading = NewestReading(
        samples=(GpuSample(uuid="GPU-n1-0", utilisation_percent=5.0),), load=Load(cpu_percent=12.5)
    )
    bench.nodes.read(NodeId("n1"), reading)
    bench.turn()
    bench.one_job(gpus=0)
    view = bench.master.node(NodeId("n1"))
    assert (view.samples, view.load) == (reading.samples, reading.load)


# --- who gets in ------------------------------------------------------------------------------------


def revoke(bench, node, reason="stolen"):
    bench.post(node_calls.revoke(NodeId(node), "root", reason, bench.answer))
    return bench.turn()


def test_a_nodes_key_is_unbound_with_the_commit_before_it_is_refused_and_its_job_is_requeued(bench):
    bench.store.bind_node_key(NodeId("n1"), "k" * 40)
    bench.join()
    job = bench.one_job()
    bench.diary.clear()

    assert revoke(bench, "n1") == "Revoked by root: stolen."

    assert bench.diary == [("commit", ["queued"]), ("revoke", "n1", "Revoked by root: stolen."), "answer"]
    assert [(node.public_key, node.revoked) for node in bench.store.recover().nodes] == [
        (None, "Revoked by root: stolen.")
    ]
    assert bench.master.state.jobs[job.id].state is JobState.QUEUED
    view = bench.master.node(NodeId("n1"))
    assert (view.state, view.reason) == ("offline", "Revoked by root: stolen.")
    bench.master = bench.new_master()
    bench.master.recover()
    assert bench.master.node(NodeId("n1")).reason == "Revoked by root: stolen."


def test_nodes_that_were_never_seen_can_be_revoked_and_unknown_ones_not(bench):
    assert revoke(bench, "silent", "") == "Revoked by root."
    assert revoke(bench, "nobody").code == "no-such-node"


def test_a_revocation_that_cannot_be_saved_changes_nothing(bench):
    bench.join()
    bench.store.error = Unavailable("disk-full", "full")
    bench.diary.clear()

    assert revoke(bench, "n1").code == "disk-full"
    assert bench.diary == ["answer", "resync"]


def test_a_join_key_is_kept_before_it_works(bench):
    key = JoinKey(public_key="j" * 40, created_by="ann", created_at=1.0, expires_at=2.0)
    bench.post(node_calls.admit(key, bench.answer))

    assert bench.turn() == key
    assert bench.store.recover().join_keys == (key,)
    assert ("admit", key.public_key) in bench.diary


def test_addresses_are_kept_and_told_when_they_are_new(bench):
    def listen(*hosts):
        bench.post(node_calls.listen(hosts, bench.answer))
        return bench.turn()

    assert listen("127.0.0.1", "192.0.2.1") == ("192.0.2.1",)
    assert node_calls.kept_addresses(bench.store) == ("192.0.2.1",)
    assert listen("192.0.2.2") == ("192.0.2.2",)
    assert listen("192.0.2.9").code == "no-such-address"
    assert node_calls.kept_addresses(bench.store) == ("192.0.2.1", "192.0.2.2")
