"""One conversation with the mock server and with a real one: the same requests, the same answers, whole
values.

`MockTransport` stands for the server in hundreds of tests. Only what no two servers have alike is made alike
before the comparison: names of jobs and arrays by the order of their appearance, times, sequence numbers,
UUIDs, who asks and which machine it is.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mgpu_jupyter.api.route import IDEMPOTENCY_HEADER, NDJSON
from mgpu_jupyter.client.mock import MockTransport, Play, Say, a_node
from mgpu_jupyter.client.transport import Request, Transport
from mgpu_jupyter.model.job import JobSpec
from tests.e2e.cluster import Cluster

LIMIT_S = 60.0
NODE = "node-1"
SAID = {
    "prints": (b"one\ntwo\nthree\n", 0),
    "fails": (b"going to fail\n", 3),
    "silent": (b"", 0),
}
Talk = Callable[["Conversation"], None]


def command(name: str) -> list[str]:
    """Return a command that does what the play of this name does."""
    text, code = SAID[name]
    return ["sh", "-c", f"printf '{text.decode()}'; exit {code}".replace("\n", "\\n")]


def play_of(spec: JobSpec) -> Play:
    """Return how a job goes in the mock, by its name."""
    if spec.name == "lasts":
        return Play(hold=True)
    if spec.name == "waits" or spec.hold:
        return Play(waits=True)
    text, code = SAID[spec.name or "silent"]
    return Play(output=(Say(text),) if text else (), exit_code=code)


MACHINES = frozenset(("address", "cwd", "host", "pid", "python", "gpu_indices"))
"""What a placement says of its machine."""


class Conversation:
    """Asks one server, and writes down what it answered."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.log: list[tuple[str, int, Any]] = []
        self._names: dict[str, str] = {}

    def ask(self, method: str, path: str, body: object = None, **more: Any) -> Any:
        """Send a request, note the answer, and return its body as it came."""
        query = {name: str(value) for name, value in more.pop("query", {}).items()}
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        answer = self._transport.send(
            Request(method=method, path=path, query=query, headers=more.pop("headers", {}), body=data)
        )
        told = bytes(answer.body)
        value = json.loads(told) if told[:1] in (b"{", b"[") else told
        self.log.append(
            (f"{method} {self.alike(path)} {self.alike(query)}", answer.status, self.alike(value))
        )
        return value

    def submit(self, name: str, **spec: Any) -> str:
        words = ["sleep", "3600"] if name in ("lasts", "waits") else command(name)
        return str(self.ask("POST", "jobs", {"command": words, "name": name, "gpus": 1, **spec})["job_id"])

    def until(self, job: str, *states: str) -> None:
        """Wait until a job is in one of these states; how often it is asked for is not noted."""
        give_up_at = time.monotonic() + LIMIT_S
        while True:
            answer = json.loads(self._transport.send(Request(path=f"jobs/{job}")).body)
            if answer["state"] in states:
                return
            assert time.monotonic() < give_up_at, answer
            time.sleep(0.05)

    def wait(self, *jobs: str) -> None:
        """Note the frames of a stream that tells of the end of jobs."""
        body = json.dumps({"job_ids": jobs}).encode()
        self._stream(Request(method="POST", path="jobs/wait", body=body, headers={"Accept": NDJSON}))

    def follow(self, path: str, **query: object) -> None:
        """Note the frames of a stream, the pieces of output that belong together as one."""
        asked = {name: str(value) for name, value in query.items()}
        self._stream(Request(path=path, query=asked, headers={"Accept": NDJSON}))

    def _stream(self, asked: Request) -> None:
        stream, data = self._transport.open(asked), b""
        while piece := stream.read(LIMIT_S):
            data += piece
        stream.close()
        frames: list[dict[str, Any]] = []
        for frame in map(json.loads, data.splitlines()):
            if frame.get("type") == "ping":
                continue
            if frames and frame.get("type") == "job" == frames[-1].get("type"):
                frames.pop()  # how many changes a stream catches depends on when it is asked for
            frames.append(frame)
        kinds = [frame for frame in frames if frame.get("type") != "job"]
        self.log.append(
            (f"STREAM {self.alike(asked.path)} {self.alike(asked.query)}", stream.status, self.alike(kinds))
        )

    def alike(self, value: Any, key: str = "") -> Any:
        """Return a value without what differs between any two servers."""
        if isinstance(value, dict):
            return {
                self.alike(name): self.alike(one, name)
                for name, one in value.items()
                if name != "seq" and name not in MACHINES
            }
        if isinstance(value, list):
            return [self.alike(one, key) for one in value]
        if (
            isinstance(value, float | int)
            and not isinstance(value, bool)
            and (key.endswith("_at") or key == "now")
        ):
            return "time"
        if isinstance(value, str):
            if key == "user":
                return "user"
            if re.fullmatch(r"GPU-\S+|[0-9a-f]{8}-[0-9a-f-]{27}", value):
                return "GPU"
            value = re.sub(r"Cancelled by \w+\.", "Cancelled by user.", value)
            return re.sub(
                r"\b[A-Z0-9]{8}\b",
                lambda found: self._names.setdefault(found[0], f"name {len(self._names)}"),
                value,
            )
        return value


# --- what is asked -------------------------------------------------------------------------------


def a_job_that_completes(talk: Conversation) -> None:
    job = talk.submit("prints")
    talk.until(job, "completed")
    talk.ask("GET", f"jobs/{job}")
    for query in ({}, {"offset": 4}, {"offset": 4, "limit": 3}, {"tail": 6}, {"offset": 999}, {"rank": 0}):
        talk.ask("GET", f"jobs/{job}/output", query=query)
    talk.follow(f"jobs/{job}/output", follow=1)
    talk.follow(f"jobs/{job}/output", follow=1, offsets="0:8")
    talk.ask("POST", f"jobs/{job}/cancel")
    talk.ask("PATCH", f"jobs/{job}", {"priority": 5})
    talk.ask("POST", f"jobs/{job}/requeue")


def a_job_that_fails(talk: Conversation) -> None:
    job = talk.submit("fails")
    talk.until(job, "failed")
    talk.ask("GET", "jobs", query={"name": "fails"})
    talk.ask("GET", "jobs", query={"ids": f"{job},NONE0000"})
    talk.wait(job)
    talk.follow(f"jobs/{job}/output", follow=1)


def a_job_that_runs_until_it_is_cancelled(talk: Conversation) -> None:
    job = talk.submit("lasts", gpus=2, time_limit_s=3600.0)
    talk.until(job, "running")
    talk.ask("GET", f"jobs/{job}")
    talk.ask("GET", "jobs", query={"state": "active"})
    talk.ask("GET", "jobs", query={"state": "running"})
    talk.ask("GET", "jobs", query={"state": "queued,completed", "name": "lasts"})
    for change in ({"priority": 5}, {"hold": True}, {"time_limit_s": 3600.0}, {"colour": 1}):
        talk.ask("PATCH", f"jobs/{job}", change)
    talk.ask("GET", f"jobs/{job}/output")
    talk.ask("POST", f"jobs/{job}/cancel")
    talk.until(job, "cancelled")
    talk.ask("GET", f"jobs/{job}")
    talk.ask("POST", f"jobs/{job}/cancel")
    talk.follow(f"jobs/{job}/output", follow=1)


def a_job_that_waits(talk: Conversation) -> None:
    job = talk.submit("waits", hold=True)
    talk.until(job, "queued")
    talk.ask("GET", f"jobs/{job}")
    talk.ask("GET", "jobs", query={"state": "queued"})
    talk.ask("PATCH", f"jobs/{job}", {"priority": 0})
    talk.ask("POST", f"jobs/{job}/requeue")
    talk.ask("POST", f"jobs/{job}/cancel")
    talk.ask("GET", f"jobs/{job}")


def jobs_that_do_not_exist(talk: Conversation) -> None:
    for method, path in (
        ("GET", "jobs/NONE0000"),
        ("GET", "jobs/NONE0000/output"),
        ("GET", "jobs/NONE0000/trace"),
        ("GET", "jobs/NONE0000/explain"),
        ("POST", "jobs/NONE0000/cancel"),
        ("POST", "jobs/NONE0000/requeue"),
        ("POST", "jobs/NONE0000/rerun"),
    ):
        talk.ask(method, path)
    talk.ask("PATCH", "jobs/NONE0000", {"priority": 1})
    talk.follow("jobs/NONE0000/output", follow=1)
    talk.wait("NONE0000")


def requests_that_cannot_be(talk: Conversation) -> None:
    for body in (
        {"command": []},
        {"command": ["x"], "gpus": -1},
        {"command": ["x"], "colour": 1},
        {"command": "x"},
        b"{",
        b"",
    ):
        talk.ask("POST", "jobs", body)
        talk.ask("POST", "jobs/dry-run", body)
    talk.ask("POST", "jobs/bulk", {"jobs": [{"spec": {"command": 7}}]})
    talk.ask("GET", "jobs", query={"state": "purple"})
    talk.ask("GET", "jobs", query={"limit": "many"})


def a_key_is_a_promise(talk: Conversation) -> None:
    body = {"command": command("silent"), "name": "silent"}
    first = talk.ask("POST", "jobs", body, headers={IDEMPOTENCY_HEADER: "once"})
    talk.until(first["job_id"], "completed")
    again = talk.ask("POST", "jobs", body, headers={IDEMPOTENCY_HEADER: "once"})
    assert first["job_id"] == again["job_id"]
    bulk = {"jobs": [{"spec": body, "key": "twice"}, {"spec": body, "key": "twice"}, {"spec": body}]}
    told = talk.ask("POST", "jobs/bulk", bulk)
    assert told["jobs"][0]["job_id"] == told["jobs"][1]["job_id"] != told["jobs"][2]["job_id"]
    for one in told["jobs"]:
        talk.until(one["job_id"], "completed")
    talk.ask("GET", "jobs", query={"name": "silent"})


def an_array(talk: Conversation) -> None:
    told = talk.ask(
        "POST", "jobs", {"command": ["sleep", "3600"], "name": "lasts", "gpus": 1, "array": "3-4"}
    )
    for job in told["job_ids"]:
        talk.until(job, "running")
    talk.ask("GET", "jobs", query={"array": told["array_id"]})
    talk.ask("GET", "jobs", query={"ids": ",".join(told["job_ids"])})
    talk.ask("POST", f"jobs/{told['array_id']}/cancel")
    for job in told["job_ids"]:
        talk.until(job, "cancelled")
    talk.wait(*told["job_ids"])


def pages_of_a_list(talk: Conversation) -> None:
    jobs = [talk.submit("silent") for _ in range(3)]
    for job in jobs:
        talk.until(job, "completed")
    cursor, seen = "", []
    while True:
        page = talk.ask(
            "GET", "jobs", query={"limit": 2, "name": "silent", **({"cursor": cursor} if cursor else {})}
        )
        talk.log.pop()  # a cursor says nothing to anybody but its server
        seen += [job["id"] for job in page["jobs"]]
        if not (cursor := page.get("next_cursor") or ""):
            break
    assert seen[:3] == jobs[::-1]
    assert len(seen) == len(set(seen))
    talk.log.append(("pages", 200, talk.alike(seen[:3])))


SCENES: tuple[Talk, ...] = (
    a_job_that_completes,
    a_job_that_fails,
    a_job_that_runs_until_it_is_cancelled,
    a_job_that_waits,
    jobs_that_do_not_exist,
    requests_that_cannot_be,
    a_key_is_a_promise,
    an_array,
    pages_of_a_list,
)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Transport]:
    """A master and an agent with the GPUs that the mock has."""
    with Cluster(tmp_path_factory.mktemp("contract") / "cluster") as cluster:
        cluster.start_master("--MgpuApp.kill_grace=2")
        cluster.start_node(NODE, 4)
        yield cluster.client.caller.transport


@pytest.fixture(scope="module")
def mock() -> Transport:
    return MockTransport(play_of, nodes=(a_node(NODE),))


@pytest.mark.parametrize("scene", SCENES, ids=lambda scene: scene.__name__)
def test_the_mock_answers_as_a_real_server_does(scene: Talk, real: Transport, mock: Transport) -> None:
    said, expected = Conversation(mock), Conversation(real)
    scene(expected)
    scene(said)
    for one, other in zip(said.log, expected.log, strict=True):
        assert one == other
