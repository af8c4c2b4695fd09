"""The client's methods against the shipped mock transport."""

from __future__ import annotations

import os
import socket
import sys
from datetime import datetime
from pathlib import Path
from typing import Unpack, get_type_hints

import msgspec
import pytest

from mgpu_agent.protocol.errors import InvalidRequest, NotFound
from mgpu_jupyter.api import frames, models, requests
from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER
from mgpu_jupyter.client import Client
from mgpu_jupyter.client import client as client_module
from mgpu_jupyter.client.flags import ALL, KEYWORDS, Keywords
from mgpu_jupyter.client.mock import MockTransport, Play, Say, a_node, lost
from mgpu_jupyter.model.job import JobSpec, JobState, Part

VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_keywords_are_the_fields(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    mock = MockTransport()
    client = Client(transport=mock)
    client.submit(["python", "t.py"])
    client.submit(
        "echo $HOME", gpus=2, nodes=2, name="n", time_limit=60, chdir="sub", nodelist="a,b", exclude=["c"]
    )
    client.submit(
        script="print(1)", gpus_per_node=1, cpus=2, priority=3, env={"K": "V"}, python="/p", requeue=False
    )

    here = str(tmp_path)
    assert mock.specs == [
        JobSpec(command=("python", "t.py"), cwd=here),
        JobSpec(
            command=("bash", "-lc", "echo $HOME"),
            gpus=2,
            nodes=2,
            name="n",
            time_limit_s=60,
            cwd=os.path.join(here, "sub"),
            nodelist=("a", "b"),
            exclude=("c",),
        ),
        JobSpec(
            script="print(1)",
            name="print(...)",
            gpus_per_node=1,
            cpus=2,
            priority=3,
            env={"K": "V"},
            python="/p",
            requeue=False,
            cwd=here,
            kernel_python=sys.executable,
            kernel_python_version=VERSION,
        ),
    ]


@pytest.mark.parametrize(
    ("keywords", "changes"),
    [
        ({"gpu_ids": [0, 1]}, {"gpu_ids": (0, 1), "home": socket.gethostname()}),
        ({"gpu_ids": "0-2", "nodelist": "a"}, {"gpu_ids": (0, 1, 2), "nodelist": ("a",)}),
        ({"node_gpu_ids": {"a": [0], "b": [1, 2]}}, {"node_gpu_ids": {"a": (0,), "b": (1, 2)}}),
        ({"node_gpu_ids": "a:0;b:1,2"}, {"node_gpu_ids": {"a": (0,), "b": (1, 2)}}),
        ({"gpu_type": "A100", "gpu_mem": "20G"}, {"gpu_type": "A100", "gpu_mem_bytes": 20 * 2**30}),
        ({"gpu_mem": 1024, "mem": 1024}, {"gpu_mem_bytes": 2**30}),
        ({"mem": 1024, "mem_per_node": 2048}, {"gpu_mem_bytes": 2**30, "mem_per_node_bytes": 2**31}),
        ({"parts": [{"gpus": 1}, {"cpus": 2}]}, {"parts": (Part(gpus=1), Part(cpus=2))}),
        ({"prefer": "a,b", "partition": "gpu"}, {"prefer": ("a", "b"), "partition": "gpu"}),
        (
            {"constraint": "a100", "arch": "x86_64", "policy": "spread"},
            {"constraint": "a100", "arch": "x86_64", "policy": "spread"},
        ),
        ({"on_disconnect": "keep"}, {"on_disconnect": "keep"}),
        ({"distributed": True, "ntasks_per_node": 2}, {"distributed": True, "ntasks_per_node": 2}),
        ({"qos": "high", "account": "bio", "hold": True}, {"qos": "high", "account": "bio", "hold": True}),
        ({"begin": 1e9}, {"begin_at": 1e9}),
        ({"begin": datetime(2030, 1, 31, 8)}, {"begin_at": datetime(2030, 1, 31, 8).timestamp()}),
        ({"begin": "2030-01-31T08:00"}, {"begin_at": datetime(2030, 1, 31, 8).timestamp()}),
        (
            {"dependency": "afterok:ABCD1234", "array": "1-3"},
            {"dependency": "afterok:ABCD1234", "array": "1-3"},
        ),
    ],
)
def test_keywords_about_place_and_time(keywords: dict[str, object], changes: dict[str, object]) -> None:
    mock = MockTransport()
    Client(transport=mock).submit(["x"], **keywords)  # type: ignore[arg-type]
    assert mock.specs == [msgspec.structs.replace(JobSpec(command=("x",), cwd=os.getcwd()), **changes)]


def test_the_keywords_that_editors_complete_are_those_of_the_table() -> None:
    assert list(Keywords.__annotations__) == list(KEYWORDS)
    for method in (Client.submit, Client.dry_run, Client.submit_many):
        assert get_type_hints(method)["keywords"] == Unpack[Keywords]


def test_a_token_never_enters_a_job_by_a_keyword_either() -> None:
    with pytest.raises(InvalidRequest, match="MGPU_TOKEN never enters a job"):
        Client(transport=MockTransport()).submit(["x"], env={"MGPU_TOKEN": "x"})


def test_text_means_the_same_as_behind_the_flag() -> None:
    mock = MockTransport()
    text = {"gpus": "2", "time_limit": "1.5", "priority": "-5", "retries": "3"}
    Client(transport=mock).submit(["x"], **text)  # type: ignore[arg-type]
    assert mock.specs == [
        JobSpec(command=("x",), cwd=os.getcwd(), gpus=2, time_limit_s=1.5, priority=-5, retries=3)
    ]


def test_every_field_of_a_request_can_be_said() -> None:
    by_itself = {
        "command",
        "script",
        "kernel_python",
        "kernel_python_version",
        "home",
        "stdin",
        "terminal",
        "origin",
        "inputs",
        "outputs_limit_bytes",
    }
    assert {flag.field for flag in ALL if flag.field} == set(JobSpec.__struct_fields__) - by_itself


@pytest.mark.parametrize(
    ("keywords", "sentence"),
    [
        ({"gpus": -1}, "--gpus is not valid: it must be at least 0."),
        ({"gpus": "two"}, "--gpus two: write a whole number, like --gpus 2."),
        ({"time_limit": 0}, "--time-limit is not valid: it must be above 0."),
        (
            {"nodelist": ["a b"]},
            (
                "--nodelist is not valid: use letters, digits, dot, dash and underscore, at most "
                "63; write it like --nodelist "
                "node1,node2."
            ),
        ),
        (
            {"gpu_ids": 0},
            (
                "--gpu-ids is not valid: it must be a list, and it is a whole number; write it like "
                "--gpu-ids 0,1."
            ),
        ),
        ({"gpu_mem": True}, "--gpu-mem True: write an amount of memory, like 20G, or a plain number of MB."),
        ({"begin": -1}, "--begin is not valid: it must be at least 0; write it like --begin now+1hour."),
    ],
)
def test_mistakes_are_found_before_anything_is_sent(keywords: dict[str, object], sentence: str) -> None:
    mock = MockTransport()
    with pytest.raises(InvalidRequest) as caught:
        Client(transport=mock).submit(["x"], **keywords)  # type: ignore[arg-type]

    assert (caught.value.message, mock.requests) == (sentence, [])


def test_submit_many_takes_specs_commands_and_keywords(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    mock = MockTransport()
    jobs = Client(transport=mock).submit_many(
        [JobSpec(command=("a",)), ["b", "c"], "d e", {"command": ["f"], "gpus": 3}], gpus=2
    )

    here = str(tmp_path)
    assert [job.id for job in jobs] == list(mock.jobs)
    assert mock.specs == [
        JobSpec(command=("a",)),
        JobSpec(command=("b", "c"), gpus=2, cwd=here),
        JobSpec(command=("bash", "-lc", "d e"), gpus=2, cwd=here),
        JobSpec(command=("f",), gpus=3, cwd=here),
    ]
    assert len(mock.requests) == 1
    with pytest.raises(InvalidRequest, match="There is no keyword 'gpu'"):
        Client(transport=mock).submit_many(["x"], gpu=1)


def test_a_bulk_is_sent_again_with_the_same_keys() -> None:
    mock = MockTransport()
    mock.failures = [lost()]
    jobs = Client(transport=mock).submit_many([["a"], ["b"]])

    first, second = (
        msgspec.json.decode(request.body or b"", type=requests.BulkSubmit) for request in mock.requests
    )
    assert first == second
    assert len({item.key for item in first.jobs}) == len(jobs) == len(mock.jobs) == 2


def test_a_large_bulk_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "BULK_BODY_BYTES", 5_000)
    mock = MockTransport()
    jobs = Client(transport=mock).submit_many([["echo", "x" * 1_000]] * 10)

    assert len(jobs) == 10
    assert [request.path for request in mock.requests] == ["jobs/bulk"] * 3
    assert Client(transport=mock).submit_many([]) == []


def test_jobs_come_page_by_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "MAX_PAGE", 2)
    mock = MockTransport(lambda spec: Play(hold=spec.name == "held"))
    client = Client(transport=mock)
    client.submit_many([{"command": ["x"], "name": name} for name in ("a", "held", "b", "held", "c")])
    mock.requests.clear()

    assert [job.id for job in client.jobs()] == ["MOCK0004", "MOCK0003", "MOCK0002", "MOCK0001", "MOCK0000"]
    assert [request.query for request in mock.requests] == [
        {"limit": "2"},
        {"limit": "2", "cursor": "2"},
        {"limit": "2", "cursor": "4"},
    ]
    assert [job.id for job in client.jobs(limit=3)] == ["MOCK0004", "MOCK0003", "MOCK0002"]
    assert [job.id for job in client.jobs(state="active")] == ["MOCK0003", "MOCK0001"]
    assert [job.id for job in client.jobs(state=(JobState.COMPLETED,), name="a")] == ["MOCK0000"]
    assert list(client.jobs(user="nobody")) == []


def test_a_job_in_the_hand() -> None:
    mock = MockTransport(lambda spec: Play(output=(Say(b"one\n"), Say(b"err\n", "stderr")), exit_code=3))
    client = Client(transport=mock)
    job = client.submit(["x"])
    assert repr(job) == f"<Job {job.id}>"
    assert (job.wait(60) is job, job.state, job.exit_code, job.output()) == (
        True,
        JobState.FAILED,
        3,
        "one\nerr\n",
    )
    assert repr(job) == f"<Job {job.id} failed>"
    assert client.job(job.id.lower()).id == job.id
    with pytest.raises(NotFound):
        client.job("NOSUCH00")


def test_cancel_ends_a_job_that_runs_on() -> None:
    mock = MockTransport(lambda spec: Play(hold=True))
    job = Client(transport=mock).submit(["sleep", "9"])
    with pytest.raises(TimeoutError):
        job.wait(0.01)
    assert job.state is JobState.RUNNING
    mock.failures = [lost()]
    assert job.cancel() == requests.CancelAnswer(job_id=job.id, state=JobState.STOPPING)
    assert job.wait(60).state is JobState.CANCELLED


def test_output_of_several_ranks_is_labelled() -> None:
    mock = MockTransport(lambda spec: Play(output=(Say(b"a\n"), Say(b"b", rank=1), Say(b"c\n"))))
    job = Client(transport=mock).submit(["x"], nodes=2)
    assert (job.output(), job.output(rank=1)) == ("0: a\n0: c\n1: b\n", "b")


def test_follow_from_an_offset() -> None:
    mock = MockTransport(lambda spec: Play(output=(Say(b"abc"), Say(b"def"))))
    job = Client(transport=mock).submit(["x"])
    output = [
        (frame.offset, frame.data) for frame in job.follow({0: 4}) if isinstance(frame, frames.OutputFrame)
    ]
    assert output == [(4, b"ef")]


def test_the_pool() -> None:
    client = Client(transport=MockTransport(nodes=[a_node("n1", 2)]))
    assert client.nodes() == (a_node("n1", 2),)
    assert (client.cluster().gpus, client.cluster().simulated, client.health().status) == (2, True, "ok")


def test_an_offer_is_taken_by_a_changed_job_in_the_place_of_one_that_waits() -> None:
    mock = MockTransport(lambda spec: Play(hold=True, reason="Waits for 2 GPUs." if spec.gpus == 2 else ""))
    client = Client(transport=mock)
    waits = client.submit(["true"], gpus=2)
    (offer,) = waits.explain().offers
    taken = client.replace(waits.id, offer.patch)
    assert (mock.requests[-1].body, mock.jobs[taken.id].spec.gpus) == (b'{"patch":{"gpus":1}}', 1)
    assert mock.requests[-1].headers[IDEMPOTENCY_HEADER]
    assert waits.state == "cancelled"
