"""One suite for every store: what was committed comes back, whole and in order."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.master.ports import (
    ANSWERS_REMEMBERED,
    ATTEMPTS_REMEMBERED,
    JOIN_KEYS_REMEMBERED_S,
    LOCAL_SCOPE,
    Batch,
    JobFilter,
    JoinKey,
    Mark,
    NodeNotes,
    Recovered,
    SavedJob,
    SavedNode,
    SavedState,
    TokenRow,
    UserRow,
)
from mgpu_jupyter.model.explanations import Excluded, Record, UnitAnswer
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState, Origin, digest
from mgpu_jupyter.model.settings import Lists
from mgpu_jupyter.scheduler.model import ArrayPart, Job, Reason
from mgpu_jupyter.scheduler.standing import NodeHealth, NodeOrders
from mgpu_jupyter.store.memory import MemoryStore
from mgpu_jupyter.store.sqlite import SqliteStore
from tests.builders import a_spec, facts, job_id, key, placement

K1, K2 = "a" * 40, "b" * 40


@pytest.fixture(params=["memory", "sqlite", "sqlite-on-network"])
def store(request, tmp_path):
    store = (
        MemoryStore()
        if request.param == "memory"
        else SqliteStore(tmp_path / "mgpu.db", on_network=request.param != "sqlite")
    )
    yield store
    store.close()


def a_job(number, **changes):
    values = {
        "spec": a_spec(name=f"job-{number}", script="print(1)", command=()),
        "submitted_at": float(number),
        "user": "ann",
    }
    return Job(id=job_id(number), number=number, **{**values, **changes})


def save(store, *jobs, seq=1, new=True, epoch=0):
    saved = {job.id: SavedJob(job, seq + index) for index, job in enumerate(jobs)}
    store.commit(Batch(jobs=saved, new=set(saved) if new else set(), epoch=epoch))
    return list(saved.values())


def test_a_new_store_is_empty(store):
    assert store.recover() == Recovered(jobs=(), nodes=(), epoch=0, number=0)
    assert store.reader().jobs(JobFilter()) == []


def test_active_jobs_counters_and_nodes_are_recovered(store):
    running = a_job(
        1, state=JobState.RUNNING, attempt=1, epoch=7, placements=(placement("n1"),), reason=Reason("a", "b")
    )
    save(store, running, a_job(2), epoch=7)
    over = replace(running, state=JobState.COMPLETED, exit_code=0)
    save(store, over, seq=9, new=False, epoch=8)
    store.bind_node_key(NodeId("n1"), K1)
    store.commit(Batch(nodes={NodeId("n1"): facts("n1")}, epoch=8))

    assert store.recover() == Recovered(
        jobs=(a_job(2),),
        nodes=(SavedNode(id=NodeId("n1"), public_key=K1, facts=facts("n1")),),
        epoch=8,
        number=2,
        ended=(over,),
    )


def test_an_update_changes_the_record_and_keeps_the_request(store):
    job = a_job(1)
    save(store, job)
    after = replace(job, state=JobState.STARTING, attempt=1, epoch=1, placements=(placement("n1"),))
    save(store, after, seq=5, new=False)

    assert store.reader().job(job.id) == SavedJob(after, 5)
    assert store.find_job(job.id) == after
    assert store.find_job(job_id(9)) is None


def test_the_master_epoch_rises_with_every_start(store):
    assert [store.next_master_epoch() for _ in range(3)] == [1, 2, 3]


def test_a_key_finds_the_job_of_its_own_user_only(store):
    job = a_job(1, key="k")
    save(store, job, a_job(2, key=None))

    assert store.find_by_key("ann", "k") == job
    assert store.find_by_key("bob", "k") is None
    assert store.find_by_key("ann", "other") is None


def test_a_key_is_bound_to_one_node_and_a_node_to_one_key(store):
    store.bind_node_key(NodeId("n1"), K1)
    store.bind_node_key(NodeId("n1"), K2)
    store.bind_node_key(NodeId("n2"), K2)

    assert [(node.id, node.public_key) for node in store.recover().nodes] == [("n2", K2)]


def test_a_revoked_node_keeps_its_facts_and_no_key_until_it_is_bound_again(store):
    store.bind_node_key(NodeId("n1"), K1)
    store.commit(
        Batch(nodes={NodeId("n1"): facts("n1")}, revoked={NodeId("n1"): "Revoked by root."}, epoch=1)
    )

    revoked = SavedNode(id=NodeId("n1"), public_key=None, facts=facts("n1"), revoked="Revoked by root.")
    assert store.recover().nodes == (revoked,)
    store.bind_node_key(NodeId("n1"), K1)
    assert store.recover().nodes == (replace(revoked, public_key=K1, revoked=""),)


def test_orders_and_failures_are_kept_with_the_node_and_go_with_it(store):
    lists = Lists(allow_users=("ann",), deny_accounts=("guests",))
    orders = NodeOrders(
        state=NodeState.DRAINING, reason="dust", by="root", at=5.0, lists=lists, lists_by="root", lists_at=4.0
    )
    notes = NodeNotes(
        orders=orders,
        health=NodeHealth(
            failures=3, failures_total=9, trouble="Bad.", probe_at=7.5, probe_delay_s=2.5, probe=4
        ),
    )
    for name, public_key in (("n1", K1), ("n2", K2)):
        store.bind_node_key(NodeId(name), public_key)
        store.commit(Batch(nodes={NodeId(name): facts(name)}, notes={NodeId(name): notes}))
    store.bind_node_key(NodeId("n1"), "c" * 40)

    saved = [SavedNode(id=NodeId("n1"), public_key="c" * 40, facts=facts("n1"), notes=notes)]
    saved.append(SavedNode(id=NodeId("n2"), public_key=K2, facts=facts("n2"), notes=notes))
    assert sorted(store.recover().nodes, key=lambda node: node.id) == saved
    store.commit(
        Batch(nodes={NodeId("n2"): facts("n2")}, revoked={NodeId("n2"): "Revoked."}, removed={NodeId("n2")})
    )
    assert list(store.recover().nodes) == saved[:1]
    store.bind_node_key(NodeId("n2"), K2)
    assert store.recover().nodes[-1] == SavedNode(id=NodeId("n2"), public_key=K2)


def test_a_join_key_is_kept_used_up_with_the_binding_and_forgotten_long_after(store):
    first = JoinKey(public_key=K1, created_by="ann", created_at=1.0, expires_at=10.0, node_id=NodeId("n1"))
    second = JoinKey(public_key=K2, created_by="ann", created_at=2.0, expires_at=20.0)
    store.add_join_key(first)
    store.add_join_key(second)
    assert store.recover().join_keys == (first, second)

    store.bind_node_key(NodeId("n2"), "c" * 40, K2)
    assert store.recover().join_keys == (first, replace(second, used_by=NodeId("n2")))

    third = JoinKey(
        public_key="d" * 40, created_by="ann", created_at=15.0 + JOIN_KEYS_REMEMBERED_S, expires_at=9e9
    )
    store.add_join_key(third)
    assert store.recover().join_keys == (replace(second, used_by=NodeId("n2")), third)


def test_assigned_nodes_of_the_current_and_of_past_attempts(store):
    first = a_job(
        1, state=JobState.STOPPING, attempt=1, epoch=3, placements=(placement("n1"), placement("n2", 1))
    )
    second = replace(first, state=JobState.RUNNING, attempt=2, epoch=4, placements=(placement("n3"),))
    save(store, first)
    store.commit(Batch(jobs={first.id: SavedJob(second, 2)}, attempts=[first], epoch=4))

    assert store.assigned_nodes(key(first.id, 1, 3)) == {"n1", "n2"}
    assert store.assigned_nodes(key(first.id, 2, 4)) == {"n3"}
    assert store.assigned_nodes(key(first.id, 2, 99)) == frozenset()
    assert store.assigned_nodes(key(job_id(9), 1, 1)) == frozenset()


def test_pages_are_newest_first_and_filters_combine(store):
    jobs = [a_job(number, user="ann" if number % 2 else "bob") for number in range(1, 7)]
    saved = save(store, *jobs)
    save(store, replace(jobs[4], state=JobState.FAILED), seq=20, new=False)
    reader = store.reader()

    def numbers(**wanted):
        return [saved.job.number for saved in reader.jobs(JobFilter(**wanted))]

    assert reader.jobs(JobFilter(limit=1)) == [saved[5]]
    assert numbers(limit=3) == [6, 5, 4]
    assert numbers(limit=3, before=4) == [3, 2, 1]
    assert numbers(user="ann") == [5, 3, 1]
    assert numbers(user="ann", states=(JobState.QUEUED,)) == [3, 1]
    assert numbers(states=(JobState.FAILED, JobState.COMPLETED)) == [5]
    assert numbers(name="job-2") == [2]
    assert numbers(since=5.0) == [6, 5]
    assert numbers(ids=(jobs[1].id, jobs[3].id, job_id(9))) == [4, 2]


def test_changes_come_in_the_order_of_their_numbers(store):
    jobs = [a_job(number) for number in (1, 2, 3)]
    save(store, *jobs)
    save(store, jobs[0], seq=10, new=False)
    reader = store.reader()

    assert [(saved.job.number, saved.seq) for saved in reader.changed_since(1, 10)] == [
        (2, 2),
        (3, 3),
        (1, 10),
    ]
    assert [saved.seq for saved in reader.changed_since(1, 2)] == [2, 3]
    assert reader.changed_since(10, 10) == []


def test_how_far_jobs_are_is_found_by_their_ids(store):
    jobs = [a_job(1), a_job(2, state=JobState.RUNNING), a_job(3, state=JobState.FAILED, exit_code=7)]
    save(store, *jobs, *(a_job(number) for number in range(4, 1_200)))
    reader = store.reader()

    assert reader.states_of([*(job.id for job in jobs), job_id(9_999)]) == {
        jobs[0].id: SavedState(JobState.QUEUED, None),
        jobs[1].id: SavedState(JobState.RUNNING, None),
        jobs[2].id: SavedState(JobState.FAILED, 7),
    }
    assert len(reader.states_of([a_job(number).id for number in range(1, 1_200)])) == 1_199
    assert reader.states_of([]) == {}


def test_active_jobs_are_counted_by_state(store):
    save(store, a_job(1), a_job(2), a_job(3, state=JobState.RUNNING), a_job(4, state=JobState.FAILED))

    assert store.reader().count_active() == {"queued": 2, "running": 1, "starting": 0, "stopping": 0}


def test_settings_and_tokens(store):
    token = TokenRow(hash=b"h" * 32, user="ann", scope="user", created_at=1.0, expires_at=2.0)
    store.set_setting("link_port", "1")
    store.set_setting("link_port", "2")
    store.add_token(token)

    assert (store.setting("link_port"), store.setting("other")) == ("2", None)
    assert store.reader().token(token.hash) == token
    assert store.reader().token(b"x") is None


def test_a_user_goes_with_all_tokens_but_the_machines_own(store):
    ann = UserRow(name="ann", role="user", created_at=1.0, expires_at=9.0)
    bob = UserRow(name="bob", role="admin", created_at=2.0)
    tokens = [
        TokenRow(hash=bytes([number]) * 32, user=user, scope=scope, created_at=1.0, expires_at=expires_at)
        for number, (user, scope, expires_at) in enumerate(
            [("ann", "user", 9.0), ("bob", "user", None), ("ann", LOCAL_SCOPE, None)]
        )
    ]
    store.add_user(bob, tokens[1])
    store.add_user(ann, tokens[0])
    store.add_token(tokens[2])
    reader = store.reader()

    assert (reader.users(), reader.user("ann"), reader.user("eve")) == ([ann, bob], ann, None)
    store.remove_user("ann")
    store.remove_user("eve")
    assert reader.users() == [bob]
    assert [reader.token(token.hash) for token in tokens] == [None, tokens[1], tokens[2]]


def test_answers_come_back_by_name_and_only_the_newest_of_each_stay(store):
    out = Excluded(
        check="gpus",
        text="1 GPU free, 2 needed.",
        never=False,
        count=1,
        nodes=(NodeId("n1"),),
        passed=("named",),
    )
    unit = UnitAnswer(first=0, count=1, needs="2 GPUs", missing=1, would_do=0, excluded=(out,))
    busy = Record(at=1.0, code="busy", text="Busy.", units=(unit,))
    held = Record(at=2.0, code="held", text="Held.")
    store.commit(Batch(answers=[("shape 1", busy), ("JOB00001", held), ("shape 2", replace(busy, at=3.0))]))
    many = [replace(held, at=10.0 + number) for number in range(ANSWERS_REMEMBERED + 5)]
    store.commit(Batch(answers=[("JOB00002", record) for record in many]))
    reader = store.reader()

    assert reader.answers(("shape 1", "JOB00001")) == [busy, held]
    assert reader.answers(("JOB00002",)) == many[5:]
    assert reader.answers(("nothing",)) == []


def test_the_jobs_of_an_array_are_found_by_its_id(store):
    part = ArrayPart("ARRAY001", 0, 2, 2, 0, 1)
    first, second, other = a_job(1, array=part), a_job(2, array=replace(part, index=1)), a_job(3)
    save(store, second, first, other)
    running = replace(first, state=JobState.RUNNING)
    save(store, running, seq=9, new=False)

    assert store.find_array("ARRAY001") == [running, second]
    assert store.find_array(job_id(3)) == []
    assert [saved.job for saved in store.reader().jobs(JobFilter(array="ARRAY001"))] == [second, running]
    assert {job.array for job in store.recover().jobs} == {part, replace(part, index=1), None}


def test_the_jobs_of_a_notebook_are_found_again(store):
    notebook = digest("host", "/a.ipynb")
    first = a_job(1, spec=JobSpec(command=("x",), origin=Origin(notebook=notebook)))
    save(store, first, a_job(2, spec=JobSpec(command=("x",), origin=Origin(source=notebook))), a_job(3))

    assert [saved.job for saved in store.reader().jobs(JobFilter(notebook=notebook))] == [first]
    assert store.reader().jobs(JobFilter(notebook=notebook, user="nobody")) == []


def test_jobs_are_forgotten_whole_and_their_numbers_are_not_given_again(store):
    ended = a_job(7, state=JobState.COMPLETED, ended_at=9.0, attempt=1)
    save(store, a_job(3), ended)
    mark = Mark(job_id=ended.id, attempt=1, step="output", who="0", at=8.0)
    store.commit(
        Batch(
            attempts=[ended], answers=[(str(ended.id), Record(at=1.0, code="busy", text="why"))], marks=[mark]
        )
    )
    store.forget_jobs([ended.id])

    assert store.find_job(ended.id) is None
    assert store.reader().answers([str(ended.id)]) == []
    assert (store.reader().attempts(ended.id), store.reader().marks(ended.id)) == ([], [])
    assert [saved.job.number for saved in store.reader().jobs(JobFilter())] == [3]
    assert store.recover().number == 7
    store.forget_jobs([])
    assert store.recover().number == 7


def test_earlier_attempts_and_the_first_of_each_mark_come_back_and_old_ones_go(store):
    def mark(step, at, attempt=1, who="0"):
        return Mark(job_id=job_id(1), attempt=attempt, step=step, who=who, at=at)

    attempts = [a_job(1, attempt=number, epoch=number) for number in range(1, ATTEMPTS_REMEMBERED + 3)]
    save(store, a_job(1), a_job(2))
    store.commit(
        Batch(
            attempts=attempts[:1],
            marks=[mark("output", 5.0), mark("collected", 7.0), mark("prepared", 4.0, who="n1")],
        )
    )
    store.commit(Batch(attempts=[], marks=[mark("output", 9.0), mark("output", 6.0, attempt=2)]))

    reader = store.reader()
    assert [job.attempt for job in reader.attempts(job_id(1))] == [1]
    save(store, a_job(1, attempt=2), new=False)
    assert [(one.step, one.at, one.attempt) for one in reader.marks(job_id(1))] == [
        ("prepared", 4.0, 1),
        ("output", 5.0, 1),
        ("output", 6.0, 2),
        ("collected", 7.0, 1),
    ]
    assert (reader.attempts(job_id(2)), reader.marks(job_id(2))) == ([], [])

    save(store, a_job(1, attempt=attempts[-1].attempt), new=False)
    for attempt in attempts[1:]:
        store.commit(Batch(attempts=[attempt]))
    assert [job.attempt for job in reader.attempts(job_id(1))] == list(range(3, ATTEMPTS_REMEMBERED + 3))
    assert reader.marks(job_id(1)) == []
    reader.close()


def test_values_of_an_environment_are_dropped_after_the_end_and_names_stay(store):
    def with_env(number, **changes):
        return a_job(number, spec=a_spec(name="x", env={"A": "1", "MGPU_DISPLAY_KEY": "d"}), **changes)

    over = {"state": JobState.COMPLETED}
    jobs = [
        with_env(1, ended_at=10.0, **over),
        with_env(2, ended_at=30.0, **over),
        with_env(3),
        a_job(4, ended_at=10.0, **over),
    ]
    save(store, *jobs)

    assert (store.drop_values(20.0), store.drop_values(20.0)) == ((1, 0), (0, 0))
    found = [store.reader().job(job.id) for job in jobs]
    assert [(saved.job.spec.env, saved.values_dropped) for saved in found] == [
        ({"A": "", "MGPU_DISPLAY_KEY": "d"}, True),
        ({"A": "1", "MGPU_DISPLAY_KEY": "d"}, False),
        ({"A": "1", "MGPU_DISPLAY_KEY": "d"}, False),
        ({}, False),
    ]
