"""Each method of the client, of a job and of `client.admin`: the request that it sends, what it returns."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mgpu_agent.protocol.errors import InvalidRequest, NotFound
from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import administration, files, histories, models, requests, traces
from mgpu_jupyter.client import Client, Timeouts
from mgpu_jupyter.client.client import job_id_of
from mgpu_jupyter.client.job import OUTPUT_PAGE_BYTES, TAIL_BYTES, rank_count
from mgpu_jupyter.client.login import Login
from mgpu_jupyter.client.mock import explanation, trace
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.answers import client_of
from tests.client.test_http import a_view
from tests.client.test_summary_lines import BARE

JOB = JobId("ABCD1234")
NODE = administration.NodeActionAnswer(node_id=NodeId("n"), action="drain", message="It is drained.")
ORDER = requests.OrderAnswer(job_id=JOB, state=JobState.QUEUED)
CANCEL = requests.CancelAnswer(job_id=JOB, state=JobState.STOPPING)
PURGED = administration.PurgeAnswer(jobs=3, output_bytes=9)
ANN = administration.User(name="ann", role="admin", created_at=1.0)
LOGIN = administration.NewLogin(user=ANN, line="mgpu login x")
JOIN = administration.JoinToken(command="mgpu_node --join x", line="x", expires_at=9.0, addresses=("a",))
LEFT = files.ResultList(job_id=JOB, attempt=1, complete=True)
USAGE = histories.JobUsage(job_id=JOB, state=JobState.RUNNING, attempt=1, asked=2)
CLUSTER = histories.ClusterHistory(
    step_s=1.0, times=(), gpus=(), in_use=(), mine=(), busy=(), waiting=(), wanted=(), ended={}
)
HISTORY = histories.NodeHistory(
    node=NodeId("n"), step_s=1.0, times=(), cpu=(), memory_available_mib=(), gpus=()
)
PING = traces.NodePing(
    node_id="n",
    seconds=0.5,
    host="h",
    address="a",
    agent_version="1",
    master_version="1",
    python="3.11",
    pid=7,
    started_at=1.0,
    clock_skew_s=0.0,
    link="tcp://h",
)
CHANGE = {"priority": None, "time_limit_s": None, "hold": False, "release": False}
NODES = models.NodeList(nodes=())
NO_QUERY: dict[str, str] = {}
SUMMARY = traces.Summary(**BARE)


def places(*ranks: int) -> tuple[models.Placement, ...]:
    return tuple(models.Placement(node=NodeId("n"), rank=rank, gpus=(), gpu_indices=()) for rank in ranks)


@pytest.mark.parametrize(
    ("do", "answer", "asked"),
    [
        (
            lambda one: one.admin.join_token(),
            JOIN,
            ("POST", "join-tokens", {}, {"node_id": None, "ttl_s": 3600.0, "listen": []}),
        ),
        (
            lambda one: one.admin.join_token(node_id="n", ttl_s=60.0, listen=["10.0.0.1"]),
            JOIN,
            ("POST", "join-tokens", {}, {"node_id": "n", "ttl_s": 60.0, "listen": ["10.0.0.1"]}),
        ),
        (
            lambda one: one.admin.revoke_node("a/b"),
            NODE,
            ("PATCH", "nodes/a%2Fb", {}, {"action": "revoke"}),
        ),
        (
            lambda one: one.admin.revoke_node("n", "stolen"),
            NODE,
            ("PATCH", "nodes/n", {}, {"action": "revoke", "reason": "stolen"}),
        ),
        (
            lambda one: one.admin.change_node("n", "allow", users=["ann"], accounts=["lab"]),
            NODE,
            ("PATCH", "nodes/n", {}, {"action": "allow", "users": ["ann"], "accounts": ["lab"]}),
        ),
        (
            lambda one: one.admin.change_node("n", "label", labels={"rack": "3", "old": None}),
            NODE,
            ("PATCH", "nodes/n", {}, {"action": "label", "labels": {"rack": "3", "old": None}}),
        ),
        (lambda one: one.admin.ping_node("a/b"), PING, ("POST", "nodes/a%2Fb/ping", {}, None)),
        (lambda one: one.admin.remove_node("a/b"), NODE, ("DELETE", "nodes/a%2Fb", {}, None)),
        (
            lambda one: one.admin.add_user("ann", admin=True, ttl_s=60.0),
            LOGIN,
            ("POST", "users", {}, {"name": "ann", "role": "admin", "ttl_s": 60.0}),
        ),
        (
            lambda one: one.admin.add_user("ann"),
            LOGIN,
            ("POST", "users", {}, {"name": "ann", "role": "user", "ttl_s": None}),
        ),
        (lambda one: one.admin.remove_user("ann"), ANN, ("DELETE", "users/ann", {}, None)),
        (
            lambda one: one.admin.purge(60.0),
            PURGED,
            (
                "POST",
                "jobs/purge",
                {},
                {"older_than_s": 60.0, "user": None, "everybody": False, "dry_run": False},
            ),
        ),
        (
            lambda one: one.admin.purge(60.0, user="ann", everybody=True, dry_run=True),
            PURGED,
            (
                "POST",
                "jobs/purge",
                {},
                {"older_than_s": 60.0, "user": "ann", "everybody": True, "dry_run": True},
            ),
        ),
        (lambda one: one.handle("abcd1234").cancel(), CANCEL, ("POST", "jobs/ABCD1234/cancel", {}, None)),
        (lambda one: one.cancel(" abcd1234 "), CANCEL, ("POST", "jobs/ABCD1234/cancel", {}, None)),
        (lambda one: one.handle(JOB).hold(), ORDER, ("PATCH", "jobs/ABCD1234", {}, CHANGE | {"hold": True})),
        (
            lambda one: one.handle(JOB).release(),
            ORDER,
            ("PATCH", "jobs/ABCD1234", {}, CHANGE | {"release": True}),
        ),
        (
            lambda one: one.handle(JOB).update(priority=3, time_limit=60.0),
            ORDER,
            ("PATCH", "jobs/ABCD1234", {}, CHANGE | {"priority": 3, "time_limit_s": 60.0}),
        ),
        (lambda one: one.handle(JOB).requeue(), ORDER, ("POST", "jobs/ABCD1234/requeue", {}, None)),
        (lambda one: one.handle(JOB).refresh(), a_view(), ("GET", "jobs/ABCD1234", {}, None)),
        (lambda one: one.job("abcd1234").snapshot, a_view(), ("GET", "jobs/ABCD1234", {}, None)),
        (lambda one: one.handle(JOB).results(), LEFT, ("GET", "jobs/ABCD1234/results", {}, None)),
        (lambda one: one.handle(JOB).wait_for_results(), LEFT, ("GET", "jobs/ABCD1234/results", {}, None)),
        (lambda one: one.handle(JOB).summary(), SUMMARY, ("GET", "jobs/ABCD1234/summary", {}, None)),
        (lambda one: one.handle(JOB).usage(), USAGE, ("GET", "jobs/ABCD1234/usage", {"points": "300"}, None)),
        (
            lambda one: one.handle(JOB).usage(points=7),
            USAGE,
            ("GET", "jobs/ABCD1234/usage", {"points": "7"}, None),
        ),
        (lambda one: one.explain("abcd1234"), explanation(), ("GET", "jobs/ABCD1234/explain", {}, None)),
        (lambda one: one.trace("abcd1234"), trace(a_view()), ("GET", "jobs/ABCD1234/trace", {}, None)),
        (
            lambda one: one.trace(JOB, verify=True),
            trace(a_view()),
            ("GET", "jobs/ABCD1234/trace", {"verify": "1"}, None),
        ),
        (lambda one: one.node_list(), NODES, ("GET", "nodes", {}, None)),
        (
            lambda one: one.cluster_history(),
            CLUSTER,
            ("GET", "cluster/history", {"span": "86400", "points": "300"}, None),
        ),
        (
            lambda one: one.node_history("n"),
            HISTORY,
            ("GET", "nodes/n/history", {"span": "600", "points": "300"}, None),
        ),
        (
            lambda one: one.node_history("n", span=59.7, points=3),
            HISTORY,
            ("GET", "nodes/n/history", {"span": "60", "points": "3"}, None),
        ),
    ],
)
def test_a_call(
    do: Callable[[Client], object], answer: object, asked: tuple[str, str, dict[str, str], object]
) -> None:
    client, answers = client_of(answer)

    assert do(client) == answer
    assert answers.asked == [asked]


def test_lists_come_without_their_envelope() -> None:
    client, answers = client_of(administration.UserList(users=(ANN,)), NODES)

    assert (client.admin.users(), client.nodes()) == ((ANN,), ())
    assert [one[:2] for one in answers.asked] == [("GET", "users"), ("GET", "nodes")]


def test_a_name_that_no_user_can_have_is_not_sent() -> None:
    client, answers = client_of(LOGIN)

    with pytest.raises(InvalidRequest) as caught:
        client.admin.add_user("a b")

    told = "'a b' cannot be a user's name: use letters, digits and . _ @ - (64 at most)."
    assert (caught.value.message, answers.asked) == (told, [])


def test_a_user_is_added_once_even_when_the_answer_is_lost() -> None:
    client, answers = client_of(Answer(status=503), LOGIN)
    client.use(Timeouts(retry_s=30.0, backoff_base_s=0.001))

    with pytest.raises(Exception, match="not ready"):
        client.admin.add_user("ann")

    assert len(answers.asked) == 1


@pytest.mark.parametrize("text", ["", "ABCD123", "ABCD12345", "../nodes", "ABCD 123"])
def test_what_is_no_id_is_not_sent(text: str) -> None:
    with pytest.raises(NotFound) as caught:
        job_id_of(text)
    told = f"{text!r} is no job id (eight characters A-Z and 0-9): see `mgpu_queue --all`."
    assert caught.value.message == told


def test_a_long_word_that_is_no_id_is_shortened() -> None:
    with pytest.raises(NotFound) as caught:
        job_id_of("x" * 51)
    assert caught.value.message.startswith(f"'{'x' * 50}' is no job id")


@pytest.mark.parametrize(
    ("keywords", "query"),
    [
        ({}, {}),
        ({"state": "active"}, {"state": "active"}),
        ({"state": JobState.RUNNING}, {"state": "running"}),
        ({"state": ["queued", "running"]}, {"state": "queued,running"}),
        (
            {"user": "ann", "name": "n", "since": 0.1, "array": "ARRA0000", "notebook": "digest"},
            {"user": "ann", "name": "n", "since": "0.1", "array": "ARRA0000", "notebook": "digest"},
        ),
        ({"user": "", "name": ""}, {"user": "", "name": ""}),
    ],
)
def test_which_jobs_are_asked_for(keywords: dict[str, Any], query: dict[str, str]) -> None:
    client, answers = client_of(models.JobList(jobs=(a_view(),)))

    assert [job.snapshot for job in client.jobs(**keywords)] == [a_view()]
    assert answers.asked == [("GET", "jobs", query | {"limit": str(models.MAX_PAGE)}, None)]


def test_pages_follow_each_other_up_to_the_limit() -> None:
    page = models.JobList(jobs=(a_view(), a_view()), next_cursor="c")
    client, answers = client_of(page)

    assert len(list(client.jobs(limit=3))) == 3
    assert [one[2] for one in answers.asked] == [{"limit": "3"}, {"limit": "1", "cursor": "c"}]
    assert list(client.jobs(limit=0)) == []
    assert len(answers.asked) == 2

    client, answers = client_of(page, models.JobList(jobs=(a_view(),)))
    assert len(list(client.jobs())) == 3
    most = str(models.MAX_PAGE)
    assert [one[2] for one in answers.asked] == [{"limit": most}, {"limit": most, "cursor": "c"}]


def test_a_job_is_asked_about_until_it_is_over() -> None:
    client, answers = client_of(a_view(), a_view(JobState.FAILED, exit_code=3))
    job = client.handle(JOB)

    assert repr(job) == "<Job ABCD1234>"
    assert job.state is JobState.RUNNING
    assert repr(job) == "<Job ABCD1234 running>"
    assert (job.exit_code, job.state, job.info.exit_code) == (3, JobState.FAILED, 3)
    assert len(answers.asked) == 2
    assert job.wait() is job
    assert len(answers.asked) == 2


def test_output_is_read_in_pages() -> None:
    client, answers = client_of(b"one\n", b"two\xff\n", b"")

    assert client.handle(JOB).output(rank=1) == "one\ntwo\ufffd\n"
    assert [one[2] for one in answers.asked] == [
        {"rank": "1", "offset": str(offset), "limit": str(OUTPUT_PAGE_BYTES)} for offset in (0, 4, 9)
    ]
    assert {one.headers["Accept"] for one in answers.requests} == {"application/octet-stream"}


def test_output_of_one_rank_is_plain_and_of_several_has_numbers() -> None:
    client, _ = client_of(a_view(), b"a\n", b"")
    assert client.handle(JOB).output() == "a\n"

    client, _ = client_of(a_view(placements=places(0, 1)), b"a\nb", b"", b"c\n", b"")
    assert client.handle(JOB).output() == "0: a\n0: b\n1: c\n"


@pytest.mark.parametrize(
    ("lines", "shown"), [(2, "b\nc\n"), (1, "c\n"), (10, "a\nb\nc\n"), (0, ""), (-1, "")]
)
def test_the_last_lines(lines: int, shown: str) -> None:
    client, answers = client_of(b"a\nb\nc\n")

    assert client.handle(JOB).tail(lines, rank=2) == shown
    size = str(TAIL_BYTES)
    assert answers.asked == [
        ("GET", "jobs/ABCD1234/output", {"rank": "2", "tail": size, "limit": size}, None)
    ]


def test_more_is_read_until_there_are_enough_lines() -> None:
    client, answers = client_of(b"x" * TAIL_BYTES, b"a\n" + b"x" * TAIL_BYTES)

    assert client.handle(JOB).tail(2) == "a\n" + "x" * TAIL_BYTES
    assert [one[2]["tail"] for one in answers.asked] == [str(TAIL_BYTES), str(8 * TAIL_BYTES)]

    client, answers = client_of(b"x\n" * (TAIL_BYTES // 2))
    assert client.handle(JOB).tail() == "x\n" * 10
    assert len(answers.asked) == 1


def test_a_line_that_is_longer_than_an_answer_may_be_is_shown_as_far_as_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(models, "MAX_OUTPUT_LIMIT", TAIL_BYTES)
    client, _ = client_of(b"x" * TAIL_BYTES)
    assert client.handle(JOB).tail() == "x" * TAIL_BYTES


def test_how_many_ranks_a_job_has() -> None:
    assert rank_count(a_view()) == 1
    assert rank_count(a_view(nodes=("a", "b"))) == 2
    assert rank_count(a_view(nodes=("a", "b"), placements=places(0, 0, 1, 2))) == 3


def test_a_dry_run_sends_no_folder(tmp_path: Path) -> None:
    client, answers = client_of(explanation())

    assert client.dry_run_spec(JobSpec(command=("x",), sync=str(tmp_path))) == explanation()
    (request,) = answers.asked
    assert (request[:2], "sync" in dict(request[3])) == (("POST", "jobs/dry-run"), False)  # type: ignore[call-overload]


def test_a_login_speaks_to_its_own_server() -> None:
    login = Login(url="https://h:1/", token="secret", pin="")  # type: ignore[call-arg]
    with Client.of_login(login, timeouts=Timeouts(retry_s=1.5)) as client:
        assert client.timeouts.retry_s == 1.5
        assert client.caller.transport.place == "https://h:1/ secret"  # type: ignore[attr-defined]
    assert Client.of_login(login).timeouts == Timeouts()
