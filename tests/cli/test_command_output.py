"""What commands print: whole lines, on which stream, and the exit code."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import administration, models, traces
from mgpu_jupyter.api.files import Result, ResultList
from mgpu_jupyter.cli import console
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.cli.console import ShellViewer, report
from mgpu_jupyter.cli.srun import for_terminal, summary_line
from mgpu_jupyter.client.mock import trace
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.client.watch import Outcome
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.client.answers import Answers, client_of
from tests.client.test_http import a_view
from tests.client.test_requests_sent import ANN, NODE, PING
from tests.client.test_summary_lines import BARE

Captured = pytest.CaptureFixture[str]
JOB = "AAAA1111"


def said(capsys: Captured, line: str, *bodies: object) -> tuple[int, list[str], list[str], Answers]:
    """Run a command against these answers; return its exit code, both streams, and what was asked."""
    client, answers = client_of(*bodies)
    code = entry.mgpu(line.split(), lambda: client)
    out, err = capsys.readouterr()
    return code, out.splitlines(), err.splitlines(), answers


# --- one job --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["explain", "trace", "summary", "logs", "attach", "results"])
def test_a_job_must_be_named(capsys: Captured, command: str) -> None:
    told = f"Error: Name the job, as in `mgpu {command} R4T8W2ZB`."
    code, out, err, answers = said(capsys, command, a_view())
    assert (code, out, answers.asked) == (2, [], [])
    assert [line.removeprefix("Error: ").removeprefix("mgpu: ") for line in err] == [
        told.removeprefix("Error: ")
    ]


def a_result(**changes: Any) -> Result:
    values: dict[str, Any] = {
        "node": NodeId("n1"),
        "number": 0,
        "path": "out/a\x1b.txt",
        "size": 12,
        "sha256": "0123456789abcdef",
        "mode": 0o600,
    }
    return Result(**(values | changes))


def results(*files: Result, **changes: Any) -> ResultList:
    return ResultList(**({"job_id": JobId(JOB), "attempt": 1, "complete": True, "files": files} | changes))


def test_results(capsys: Captured) -> None:
    found = results(
        a_result(),
        a_result(tries=2),
        a_result(problem="It is too large."),
        problems=("b: cannot be read",),
        complete=False,
    )
    first = "0123456789ab            12  n1:out/a\ufffd.txt"
    assert said(capsys, f"results {JOB}", a_view(), found)[:3] == (
        1,
        [
            first,
            f"{first}  (fetched 2 times)",
            f"{first}  NOT HERE: It is too large.",
            "not collected: b: cannot be read",
            "More may come: the job is not over, or its files are under way.",
        ],
        [],
    )
    assert said(capsys, f"results {JOB}", a_view(), results())[:2] == (0, [f"Job {JOB} left no files."])
    code, out, _, _ = said(capsys, f"results {JOB} --json", a_view(), found)
    assert (code, msgspec.json.decode(out[0])["complete"]) == (1, False)


def test_results_are_brought(capsys: Captured, tmp_path: Path) -> None:
    code, out, _, answers = said(capsys, f"results {JOB} --to {tmp_path}", a_view(), results())
    assert (code, out) == (0, [f"Job {JOB} left no files."])
    assert [one[1] for one in answers.asked][1] == f"jobs/{JOB}/results"


def test_a_summary(capsys: Captured) -> None:
    told = traces.Summary(**BARE)
    assert said(capsys, f"summary {JOB}", a_view(), told)[:2] == (
        0,
        [
            "Job ABCD1234 of ann: queued",
            "  has not started, attempt 0",
            "  asked for 1 GPU on 1 node; 0.0 GPU-seconds",
        ],
    )
    code, out, _, _ = said(capsys, f"summary {JOB} --json", a_view(), told)
    assert (code, msgspec.json.decode(out[0])["job_id"]) == (0, "ABCD1234")


def test_a_trace_that_differs(capsys: Captured) -> None:
    check = traces.Check(rank=0, what="node", assigned="a", actual="b", ok=False)
    wrong = replace(trace(a_view()), ok=False, mismatches=("Elsewhere.",), checks=(check,))
    told = f"MISMATCH: job {JOB} ran otherwise than was assigned, in 2 ways; see above."
    for line, code in ((f"trace {JOB}", 0), (f"trace {JOB} --verify", 1)):
        found = said(capsys, line, wrong)
        assert (found[0], found[2]) == (code, [told])
    code, out, err, _ = said(capsys, f"trace {JOB} --json", trace(a_view()))
    assert (code, msgspec.json.decode(out[0])["ok"], err) == (0, True, [])


def test_logs_of_a_rank_must_be_a_number(capsys: Captured) -> None:
    code, _, err, answers = said(capsys, f"logs {JOB} --rank x", a_view())
    assert (code, answers.asked) == (2, [])
    assert "--rank x: write a whole number, like --rank 2." in err[0]


# --- how a job ended ------------------------------------------------------------------------------------


FAILURE = models.Failure(rank=1, node=NodeId("n1"), exit_code=3, last_lines=("a", "b\x1b"))
PLACES = tuple(
    models.Placement(node=NodeId(f"n{rank}"), rank=rank, gpus=(), gpu_indices=()) for rank in (0, 1)
)


@pytest.mark.parametrize(
    ("outcome", "code", "lines"),
    [
        (
            Outcome(job=a_view(), detached=True),
            0,
            [f"mgpu {JOB} goes on: come back with `mgpu attach {JOB}`."],
        ),
        (Outcome(job=a_view(), interrupted=True), 130, [f"Job {JOB} is still stopping: see mgpu_queue."]),
        (
            Outcome(job=a_view(JobState.CANCELLED), interrupted=True),
            130,
            [f"Job {JOB} canceled successfully."],
        ),
        (
            Outcome(job=a_view(JobState.COMPLETED), interrupted=True),
            130,
            [f"Job {JOB} had ended already (completed)."],
        ),
        (Outcome(job=a_view(JobState.COMPLETED)), 0, [f"Job {JOB} completed with exit code 0"]),
        (
            Outcome(job=a_view(JobState.TIMEOUT, time_limit_s=60.0)),
            124,
            [f"Job {JOB}: Time limit 1 m 00 s reached."],
        ),
        (
            Outcome(job=a_view(JobState.FAILED, reason="No node.", exit_code=None)),
            1,
            [f"mgpu {JOB}: No node.", f"Job {JOB}: Failed: No node."],
        ),
        (
            Outcome(
                job=a_view(
                    JobState.FAILED, exit_code=3, reason="It ended.", failure=FAILURE, placements=PLACES
                )
            ),
            3,
            [
                f"mgpu {JOB}: It ended.",
                "The last lines of rank 1:",
                "    a",
                "    b\ufffd",
                f"Job {JOB} completed with exit code 3",
            ],
        ),
        (
            Outcome(
                job=a_view(
                    JobState.FAILED, exit_code=3, reason="It ended.", failure=FAILURE, placements=PLACES[:1]
                )
            ),
            3,
            [f"mgpu {JOB}: It ended.", f"Job {JOB} completed with exit code 3"],
        ),
        (
            Outcome(job=a_view(JobState.FAILED, exit_code=3, reason="It ended.", placements=PLACES)),
            3,
            [f"mgpu {JOB}: It ended.", f"Job {JOB} completed with exit code 3"],
        ),
    ],
)
def test_a_report(capsys: Captured, outcome: Outcome, code: int, lines: list[str]) -> None:
    assert report(outcome) == code
    assert capsys.readouterr().err.splitlines() == lines


def test_what_a_viewer_says_while_a_job_goes_on(capsys: Captured) -> None:
    viewer = ShellViewer(3, 1)
    viewer.changed(a_view(JobState.QUEUED, reason="Busy.", place=1))
    viewer.changed(a_view(JobState.QUEUED, reason="Busy.", place=1))
    viewer.changed(a_view(JobState.QUEUED, reason="Other.", place=2))
    noted = replace(PLACES[0], note="slow disk")
    viewer.changed(a_view(placements=(noted,), warnings=("Not alike.",)))
    viewer.changed(a_view(placements=(noted,), warnings=("Not alike.",), attempt=2))
    assert capsys.readouterr().err.splitlines() == [
        "Waiting for job to start...",
        f"mgpu {JOB} waiting, 1st in queue: Busy.",
        f"mgpu {JOB} waiting, 2nd in queue: Other.",
        "mgpu n0: slow disk",
        "mgpu Not alike.",
        f"mgpu {JOB} runs again (attempt 2).",
    ]
    console.say_how_to_leave()
    assert capsys.readouterr().err == "mgpu: Enter ~ . leaves it running.\n"


def test_a_terminal_is_passed_on() -> None:
    spec = JobSpec(command=("x",))
    assert for_terminal(spec, {"TERM": "xterm"}) == replace(spec, stdin=True)
    pty = replace(spec, pty=True, env={"TERM": "own", "A": "1"})
    found = for_terminal(pty, {"TERM": "xterm", "COLORTERM": "truecolor", "OTHER": "x"})
    assert (found.stdin, found.env) == (True, {"TERM": "own", "COLORTERM": "truecolor", "A": "1"})
    assert for_terminal(replace(spec, pty=True), {"TERM": ""}).env == {}


def test_the_line_for_a_person_at_a_terminal() -> None:
    job = a_view(JobState.COMPLETED, ended_at=5.2)
    line = f"mgpu {JOB}: Done in 3.2 s, 1 GPU, exit 0"
    client, answers = client_of(job, results(a_result()))
    assert summary_line(client, job, has_results=False) == line
    assert answers.asked == []
    assert summary_line(client, job, has_results=True) == f"{line} · 1 result: mgpu results {JOB}"
    client, _ = client_of(job, results())
    assert summary_line(client, job, has_results=True) == f"{line} · 0 results: mgpu results {JOB}"
    client, _ = client_of(Answer(status=404))
    assert summary_line(client, job, has_results=True) == f"{line} · results: mgpu results {JOB}"


# --- administration -------------------------------------------------------------------------------------


def test_users(capsys: Captured) -> None:
    late = time.time() + 86_400
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(late))
    users = (
        ANN,
        replace(ANN, name="bob", role="user", expires_at=1.0),
        replace(ANN, name="eve", role="user", expires_at=late),
    )
    past = time.strftime("%Y-%m-%d %H:%M", time.localtime(1.0))
    assert said(capsys, "user list", administration.UserList(users=users))[:2] == (
        0,
        ["ann | admin | until removed", f"bob | user | expired on {past}", f"eve | user | until {day}"],
    )
    none = ["No users yet: `mgpu user add NAME` prints the line with which one logs in."]
    assert said(capsys, "user list", administration.UserList(users=()))[:2] == (0, none)
    login = administration.NewLogin(user=ANN, line="x y")
    assert said(capsys, "user add ann", login)[:2] == (0, ["mgpu login x y"])
    assert said(capsys, "user remove ann", ANN)[:2] == (
        0,
        [
            (
                "ann is removed, and all logins of that name have ended. Jobs that run go on: see "
                "mgpu_queue -u ann"
            )
        ],
    )
    for line, body in (
        ("user list --json", administration.UserList(users=users)),
        ("user add ann --json", login),
    ):
        code, out, _, _ = said(capsys, line, body)
        assert (code, msgspec.json.decode(out[0])) == (0, msgspec.json.decode(msgspec.json.encode(body)))
    assert msgspec.json.decode(said(capsys, "user remove ann --json", ANN)[1][0])["name"] == "ann"


def test_a_join_line(capsys: Captured) -> None:
    token = administration.JoinToken(
        command="mgpu_node --join x", line="x", expires_at=time.time() + 3600.5, addresses=("a", "b")
    )
    code, out, err, answers = said(capsys, "join-token --ttl 2h --listen a", token)
    assert (code, out) == (0, ["mgpu_node --join x"])
    assert err[0].endswith("; it works once and reaches a, b.")
    assert len(err) == 1
    assert answers.asked[0][3] == {"node_id": None, "ttl_s": 7200.0, "listen": ["a"]}
    told = said(capsys, "join-token", replace(token, message="It listens on a."))
    assert (told[2][0], len(told[2])) == ("It listens on a.", 2)


def test_a_ping(capsys: Captured) -> None:
    lines = [
        "n: answered in 500 ms from host h, a",
        "  agent 1 (master 1), pid 7, 3.11",
        "  its clock is +0.000 s from the master's; it reaches the master at tcp://h",
    ]
    assert said(capsys, "node ping n", PING)[:2] == (0, lines)
    assert said(capsys, "node ping n", replace(PING, warnings=("Old.",)))[:2] == (
        1,
        [*lines, "  WARNING: Old."],
    )
    code, out, _, _ = said(capsys, "node ping n --json", PING)
    assert (code, msgspec.json.decode(out[0])["pid"]) == (0, 7)


@pytest.mark.parametrize(
    ("line", "body"),
    [
        ("node drain n", {"action": "drain"}),
        ("node label n a=1 b c-", {"action": "label", "labels": {"a": "1", "b": "", "c": None}}),
        ("node allow n --user a --only", {"action": "only", "users": ["a"]}),
        ("node allow n --everybody", {"action": "clear-lists"}),
        ("node deny n --account a", {"action": "deny", "accounts": ["a"]}),
    ],
)
def test_orders_about_a_node(capsys: Captured, line: str, body: dict[str, Any]) -> None:
    code, out, _, answers = said(capsys, line, NODE)
    assert (code, out, answers.asked) == (0, ["n: It is drained."], [("PATCH", "nodes/n", {}, body)])


@pytest.mark.parametrize(
    "line",
    [
        "node",
        "node fly n",
        "node drain",
        "node ping",
        "node label n",
        "node drain n a=1",
        "node label n =1",
        "node drain n --user a",
        "node deny n --user a --only",
        "node deny n --everybody",
        "node allow n --everybody --user a",
        "node allow n --everybody --only",
        "node allow n",
        "user",
        "user add",
        "user remove",
        "purge -u ann --all",
        "update AAAA1111",
    ],
)
def test_lines_that_ask_for_nothing_whole(capsys: Captured, line: str) -> None:
    code, out, err, answers = said(capsys, line, NODE)
    assert (code, out, len(err), answers.asked) == (2, [], 1, [])


@pytest.mark.parametrize(
    ("jobs", "line", "told"),
    [
        (1, "purge", "Deleted 1 job and 1.9 MiB of output."),
        (2, "purge --dry-run", "Would delete 2 jobs and 1.9 MiB of output."),
    ],
)
def test_a_purge(capsys: Captured, jobs: int, line: str, told: str) -> None:
    answer = administration.PurgeAnswer(jobs=jobs, output_bytes=2_000_000)
    code, out, _, answers = said(capsys, line, answer)
    assert (code, out) == (0, [told])
    asked = answers.asked[0][3]
    assert asked == {"older_than_s": 2_592_000.0, "user": None, "everybody": False, "dry_run": "dry" in line}
    assert said(capsys, "purge --older-than 0", answer)[3].asked[0][3]["older_than_s"] == 0  # type: ignore[index]
    assert msgspec.json.decode(said(capsys, f"{line} --json", answer)[1][0])["jobs"] == jobs
