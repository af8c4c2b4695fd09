"""Nodes of a distributed job meet before anything of it starts: how they reach each other, and what follows
when they do not.
"""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.meeting import Fingerprint, MeetingPoint, Peer, Reached, Unreached, Way
from mgpu_agent.protocol.messages import Met
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.commands import MeetTask, PrepareTask, SaveAttempt, SaveJob, StartTask, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    LaunchWasPrepared,
    NodeJoined,
    NodeMet,
    StateRecovered,
    TaskReported,
    TimePassed,
)
from mgpu_jupyter.scheduler.explain.waiting import waiting
from mgpu_jupyter.scheduler.gang import LET_GO
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.meeting import (
    ALL_PAIRS,
    NEIGHBOURS,
    CannotTalk,
    Meeting,
    cannot_talk,
    differences,
)
from mgpu_jupyter.scheduler.model import Policy, Reason, Rendezvous
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import Cluster, an_offer, everybody_reached, facts, status

POLICY = Policy(prepare_s=15.0, meet_s=4.0, apart_s=60.0, kill_grace_s=5.0)


def two(*nodes, policy=POLICY, **spec):
    """Return a cluster of nodes with one GPU and a job of two of them that is being prepared."""
    cluster = Cluster(*((node, 1) for node in nodes or ("n1", "n2")), policy=policy)
    new = cluster.submit(**{"nodes": 2, "distributed": True, **spec})
    cluster.schedule()
    return cluster, cluster.job(new)


def meeting(*nodes):
    """Return the same when both are prepared and go to each other."""
    cluster, job = two(*nodes)
    for placement in job.placements:
        cluster.prepared(job, placement.rank)
    return cluster, cluster.job(job.id)


def met(cluster, job, node, *ends, at=3.0, **changes):
    return cluster.tell(
        NodeMet(at=at, node_id=NodeId(node), met=everybody_reached(job, node, *ends, **changes))
    )


def unmet(cluster, job, node, other, at=3.0):
    answer = Met(
        key=job.attempt_key,
        unreached=tuple(Unreached(NodeId(other), f"{other}.{end}", "no answer") for end in "ab"),
    )
    return cluster.tell(NodeMet(at=at, node_id=NodeId(node), met=answer))


def test_all_that_are_prepared_go_to_each_other():
    cluster, job = two()
    assert cluster.prepared(job, 0) == [SaveJob(replace(job, prepared=(0,)))]
    save, *asked = cluster.prepared(job, 1)

    assert asked == [
        MeetTask(
            NodeId(node),
            job.attempt_key,
            (Peer(node_id=NodeId(other), ways=an_offer(other).ways, port=40_000),),
            4.0,
        )
        for node, other in (("n1", "n2"), ("n2", "n1"))
    ]
    assert (save.job.is_preparing, books.next_due_at(cluster.state)) == (True, 8.0)


def test_the_last_answer_starts_all_with_what_was_found():
    cluster, job = meeting()
    assert met(cluster, job, "n1") == []
    save, *starts = met(cluster, job, "n2", "b")

    assert (save.job.rendezvous, [one.interface for one in save.job.placements]) == (
        Rendezvous(address="n1.b", port=20_001),
        ["eth1", "eth0"],
    )
    assert starts == [
        StartTask(one.node_id, job.attempt_key, launch_spec(save.job, one, 5.0))
        for one in save.job.placements
    ]
    assert starts[1].spec.env["MASTER_ADDR"] == "n1.b"
    assert (save.job.is_preparing, cluster.state.meetings, met(cluster, job, "n2")) == (False, {}, [])


def test_one_node_meets_nobody_and_stays_at_home():
    cluster = Cluster(("n1", 2), policy=POLICY)
    new = cluster.submit(gpus=2, distributed=True)
    (_, ask) = cluster.schedule()
    job = cluster.job(new)
    assert ask == PrepareTask(launch_spec(job, job.placements[0], 5.0), 60.0, True)
    _, save, start = cluster.prepared(job, 0)
    assert (save.job.rendezvous, start.spec.defaults["GLOO_SOCKET_IFNAME"]) == (
        Rendezvous(address="127.0.0.1", port=20_001),
        "lo",
    )


def test_what_is_not_alike_on_the_nodes_is_told():
    cluster, job = meeting()
    met(cluster, job, "n1", fingerprint=Fingerprint(python="3.11.2", torch="2.13.0", driver="570"))
    save, *_ = met(cluster, job, "n2", fingerprint=Fingerprint(python="3.11.2", torch="2.12.0"))
    assert save.job.warnings == (
        "torch is not the same on all nodes: 2.13.0 on n1, 2.12.0 on n2.",
        "The GPU driver is not the same on all nodes: 570 on n1, none on n2.",
    )
    assert differences({NodeId("n1"): Fingerprint(python="3.11.2"), NodeId("n2"): Fingerprint()}) == ()


# --- when it fails ---------------------------------------------------------------------------------


def test_two_that_cannot_talk_send_the_job_back_and_are_kept_apart():
    cluster, job = meeting("n1", "n2", "n3")
    met(cluster, job, "n1")
    record, save, *stops = unmet(cluster, job, "n2", "n1")

    text = "n2 cannot reach n1 (eth0 n1.a: no answer, eth1 n1.b: no answer)."
    assert (type(record), save.job.state, save.job.reason) == (
        SaveAttempt,
        JobState.QUEUED,
        Reason("cannot-talk", text),
    )
    assert stops == [StopTask(NodeId(node), job.attempt_key, 0.0, text) for node in ("n1", "n2")]
    assert (save.job.failed_starts, cluster.state.meetings) == (0, {})
    cluster.schedule(at=3.0)
    assert [one.node_id for one in cluster.job(job.id).placements] == ["n1", "n3"]
    other = cluster.submit(nodes=2, gpus=0)  # not distributed: it needs no way between its nodes
    cluster.schedule(at=3.0)
    assert cluster.job(other).state is JobState.STARTING


def test_with_no_other_nodes_it_waits_until_they_are_tried_again():
    cluster, job = meeting()
    met(cluster, job, "n1")
    unmet(cluster, job, "n2", "n1")
    cluster.schedule(at=3.0)

    told = waiting(cluster.state, job.id, 3.0)
    assert told.reason == Reason(
        "cannot-talk",
        "n2 cannot reach n1 (eth0 n1.a: no answer, eth1 n1.b: no answer). They are tried again in 1 m 00 s; "
        "other nodes would do at once.",
    )
    cluster.tell(TimePassed(at=62.0))
    assert (cluster.state.wants_pass, books.next_due_at(cluster.state)) == (False, 63.0)
    cluster.tell(TimePassed(at=63.0))
    cluster.schedule(at=63.0)
    assert cluster.job(job.id).state is JobState.STARTING


def test_a_busy_cluster_is_called_busy_whoever_cannot_talk():
    cluster, job = meeting()
    cluster.submit(at=3.0, nodes=2)
    met(cluster, job, "n1")
    unmet(cluster, job, "n2", "n1")
    cluster.schedule(at=3.0)
    assert waiting(cluster.state, job.id, 3.0).reason.code == "busy"


def test_a_promise_is_not_made_on_nodes_that_cannot_talk():
    cluster, job = meeting("n1", "n2", "n3")
    met(cluster, job, "n1")
    unmet(cluster, job, "n2", "n1")
    holder = cluster.submit(at=3.0, priority=10**6, nodelist=("n3",), time_limit_s=20.0)
    cluster.schedule(at=3.0)
    assert cluster.job(holder).state is JobState.STARTING
    (promise,) = cluster.state.planner.promises
    assert (promise.job_id, promise.at, sorted(slot.id for slot, _ in promise.units)) == (
        job.id,
        23.0,
        ["n1", "n3"],
    )


def test_nodes_that_can_talk_are_found_although_the_first_choice_cannot_with_any():
    cluster = Cluster(("n1", 1), ("n2", 1), ("n3", 1), policy=POLICY)
    for other in ("n2", "n3"):
        cluster.state.pool.keep_apart(NodeId("n1"), NodeId(other), 100.0, "No.")
    job = cluster.started(nodes=2, distributed=True)
    assert [one.node_id for one in job.placements] == ["n2", "n3"]
    assert cluster.state.pool.copy().apart == cluster.state.pool.apart


def test_no_address_of_the_first_node_is_common_to_all():
    cluster, job = two("n1", "n2", "n3", nodes=3)
    for rank in range(3):
        cluster.prepared(job, rank)
    met(cluster, job, "n1")
    met(cluster, job, "n2", "a")
    _, save, *_ = met(cluster, job, "n3", "b")
    assert save.job.reason == Reason("cannot-talk", "n2 cannot reach n1 (eth1 n1.b: no answer).")


def test_a_node_that_does_not_say_whom_it_reached():
    cluster, job = meeting()
    met(cluster, job, "n1")
    assert cluster.tell(TimePassed(at=7.9)) == []
    _, save, *stops = cluster.tell(TimePassed(at=8.0))
    text = "n2 did not answer within 6 s whether it reaches the others."
    assert (save.job.reason, save.job.failed_nodes, len(stops)) == (Reason("not-met", text), ("n2",), 2)


def test_what_others_found_out_is_told_although_one_is_silent():
    cluster, job = meeting()
    unmet(cluster, job, "n1", "n2")
    _, save, *_ = cluster.tell(TimePassed(at=8.0))
    assert save.job.reason.text.startswith("n1 cannot reach n2 (eth0 n2.a")


def test_a_meeting_that_began_late_has_its_own_time():
    cluster, job = two()
    cluster.prepared(job, 0, at=10.0)
    cluster.prepared(job, 1, at=14.0)
    assert cluster.tell(TimePassed(at=17.0)) == []
    assert cluster.tell(TimePassed(at=20.0))[1].job.reason.code == "not-met"


def test_cancelled_while_they_meet():
    cluster, job = meeting()
    save, *stops = cluster.tell(CancelRequested(at=3.0, job_id=job.id, by="ann"))
    assert (save.job.state, len(stops), cluster.state.meetings) == (JobState.CANCELLED, 2, {})
    assert met(cluster, job, "n1") == [StopTask(NodeId("n1"), job.attempt_key, 5.0, LET_GO)]


def test_many_pairs_are_counted():
    pairs = [CannotTalk(NodeId("a"), NodeId(f"b{number}"), "x") for number in range(5)]
    text = cannot_talk(pairs)
    assert text == "a cannot reach b0 (x); a cannot reach b1 (x); a cannot reach b2 (x), and 2 more pairs."


# --- lost connections and restarts -----------------------------------------------------------------


def rejoin(cluster, node, *, prepared=(), at=4.0, tasks=()):
    return cluster.tell(
        NodeJoined(at=at, node_id=NodeId(node), facts=facts(node, 1), prepared=prepared, tasks=tasks)
    )[1:]


def test_a_node_that_lost_its_connection_is_asked_for_its_answer_again():
    cluster, job = meeting()
    (again,) = rejoin(cluster, "n1", prepared=(job.attempt_key,))
    assert (type(again), again.node_id) == (MeetTask, "n1")
    met(cluster, job, "n1")
    assert rejoin(cluster, "n1", prepared=(job.attempt_key,)) == []


def test_a_node_whose_offer_was_lost_is_asked_again():
    cluster, job = two()
    ask = PrepareTask(launch_spec(job, job.placements[0], 5.0), 60.0, True)
    assert rejoin(cluster, "n1", prepared=(job.attempt_key,)) == [ask]
    cluster.prepared(job, 1)
    assert rejoin(cluster, "n1", prepared=(job.attempt_key,)) == [ask]
    assert rejoin(cluster, "n2", prepared=(job.attempt_key,)) == []


def test_a_node_that_began_anew_makes_the_meeting_begin_anew():
    cluster, job = meeting()
    met(cluster, job, "n2")
    save, ask = rejoin(cluster, "n1")
    assert (save.job.prepared, ask.spec.node_id) == ((1,), "n1")
    assert met(cluster, job, "n2") == []  # of the meeting before
    _, *asked = cluster.prepared(job, 0, offer=replace(an_offer("n1"), port=41_000))
    assert [one.peers[0].port for one in asked] == [40_000, 41_000]


def test_a_new_master_lets_them_meet_anew():
    cluster, job = meeting()
    cluster.state = ClusterState(POLICY)
    known = tuple((NodeId(node), facts(node, 1)) for node in ("n1", "n2"))
    cluster.tell(StateRecovered(at=100.0, jobs=(job,), nodes=known, epoch=9, number=9))

    assert cluster.job(job.id).prepared == ()
    (ask,) = rejoin(cluster, "n1", prepared=(job.attempt_key,), at=101.0)
    assert isinstance(ask, PrepareTask)
    rejoin(cluster, "n2", prepared=(job.attempt_key,), at=101.0)
    for rank in range(2):
        cluster.prepared(job, rank, at=102.0)
    met(cluster, job, "n1", at=103.0)
    assert len(met(cluster, job, "n2", at=103.0)) == 3


def test_a_new_master_tells_those_to_start_that_had_met():
    cluster, job = meeting()
    met(cluster, job, "n1")
    save, *starts = met(cluster, job, "n2")
    cluster.state = ClusterState(POLICY)
    known = tuple((NodeId(node), facts(node, 1)) for node in ("n1", "n2"))
    cluster.tell(StateRecovered(at=100.0, jobs=(save.job,), nodes=known, epoch=9, number=9))

    assert rejoin(cluster, "n1", prepared=(job.attempt_key,), at=101.0) == [starts[0]]
    (launch,) = rejoin(cluster, "n2", at=101.0)
    assert launch.spec == starts[1].spec


def test_what_is_said_of_another_attempt_changes_nothing():
    cluster, job = meeting()
    stranger = replace(everybody_reached(job, "n1"), key=replace_epoch(job.attempt_key))
    assert cluster.tell(NodeMet(at=3.0, node_id=NodeId("n1"), met=stranger)) == [
        StopTask(NodeId("n1"), stranger.key, 5.0, LET_GO)
    ]
    assert cluster.tell(NodeMet(at=3.0, node_id=NodeId("n9"), met=everybody_reached(job, "n9"))) == []
    no_offer = LaunchWasPrepared(at=3.0, node_id=NodeId("n1"), key=job.attempt_key)
    assert cluster.tell(no_offer) == []


def test_a_node_that_offers_nothing_is_reached_by_nobody():
    cluster, job = two()
    cluster.tell(LaunchWasPrepared(at=2.0, node_id=NodeId("n1"), key=job.attempt_key))
    cluster.prepared(job, 1)
    met(cluster, job, "n1")
    _, save, *_ = cluster.tell(NodeMet(at=3.0, node_id=NodeId("n2"), met=Met(key=job.attempt_key)))
    assert save.job.reason.text == "n2 cannot reach n1 (it has no address)."


def test_started_ranks_end_the_time_to_meet():
    cluster, job = meeting()
    met(cluster, job, "n1")
    met(cluster, job, "n2")
    for rank in range(2):
        cluster.tell(TaskReported(at=4.0, status=status(job, rank)))
    assert (cluster.job(job.id).state, cluster.tell(TimePassed(at=17.0))) == (JobState.RUNNING, [])


def replace_epoch(key):
    return type(key)(key.job_id, key.attempt, key.epoch + 1)


# --- many nodes ------------------------------------------------------------------------------------


def test_of_many_nodes_each_goes_to_the_first_and_to_its_neighbours():
    nodes = tuple(NodeId(f"n{number}") for number in range(ALL_PAIRS + 10))
    large = Meeting(1, nodes)
    large.offers = {
        node: MeetingPoint(ways=(Way(f"{node}.a", ""), Way(f"{node}.b", "eth1")), port=1, master_port=7)
        for node in nodes
    }
    assert [len(large.peers_of(node)) for node in (nodes[0], nodes[5], nodes[-1])] == [
        NEIGHBOURS,
        NEIGHBOURS + 1,
        NEIGHBOURS,
    ]
    for node in nodes:
        reached = tuple(
            Reached(peer.node_id, way.address) for peer in large.peers_of(node) for way in peer.ways
        )
        large.answers[node] = Met(key=None, reached=reached)
    assert (large.apart(), large.rendezvous(), large.interface_of(nodes[3])) == (
        [],
        Rendezvous(address="n0.a", port=7),
        "eth1",
    )


def test_an_address_of_ipv6_is_written_as_in_urls():
    assert [Rendezvous(address=address, port=1).endpoint for address in ("fd00::1", "10.0.0.1")] == [
        "[fd00::1]:1",
        "10.0.0.1:1",
    ]
