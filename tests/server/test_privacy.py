"""What one user learns of another's jobs: a secret in every field, every route of the table and every frame,
in all three settings.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuProcess, GpuSample, GpuTrouble, Trouble
from mgpu_jupyter.api.route import PREFIX, Kind
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.master.node_link import NewestReading
from mgpu_jupyter.master.privacy import SOMEBODY, Sight, shown
from mgpu_jupyter.model.job import Origin
from mgpu_jupyter.scheduler.events import LaunchWasRefused, NodeJoined, TaskReported
from tests.builders import a_spec, ended, facts, status

pytestmark = pytest.mark.slow

LIMIT_S = 20.0
NOTEBOOK, PID, OUTSIDE_PID = "ab" * 16, 987_654, 424_242
NAMES = {"plantedbob", "planted-name"}
"""What `names` shows and `none` does not."""
NEVER = {"planted-value", "PLANTED_ENV", "planted-script", "/planted-cwd"}
"""What is shown to nobody: the environment, a script beyond its first line, the directory that was asked
for.
"""
SECRETS = {
    "planted-command",
    "planted-first-line",
    "planted-sweep",
    "/planted/dir",
    "/planted/python",
    "planted-note",
    "planted-reason",
    "planted-refusal",
    "planted-program",
    NOTEBOOK,
    str(PID),
    str(OUTSIDE_PID),
}
"""What only `full`, owners and administrators see."""


@pytest.fixture(params=["full", "names", "none"])
def privacy(request):
    return request.param


@pytest.fixture
def mgpu_config(privacy):
    return {"local_agent": False, "privacy": privacy, "quotas": {"plantedbob": {"running": 2}}}


@pytest.fixture
def plant(app, ask, add, tell):
    """Two users, and jobs of one of them: one that runs, one that failed, one that was refused, one that
    waits for a quota.
    """

    async def plant():
        tokens = {"bob": await add("plantedbob"), "ann": await add("ann"), "admin": app.service.token}

        async def submit(**spec):
            code, body = await ask(
                "jobs",
                tokens["bob"],
                "POST",
                a_spec(**{"name": "planted-name", "env": {"PLANTED_ENV": "planted-value"}, **spec}),
            )
            assert code == 201, body
            return body["job_id"]

        service = app.service
        outside = {
            facts("n1").gpus[3].uuid: GpuTrouble(
                Trouble.OUTSIDE, f"In use outside mgpu by pid {OUTSIDE_PID} of plantedbob."
            )
        }
        await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1"), troubles=outside))
        jobs = {}
        jobs["failed"] = await submit(
            command=("planted-command", "{lr}"), sweep={"lr": ("planted-sweep",)}, array="0-0"
        )
        job = service.saved_job(jobs["failed"]).job
        await tell(
            TaskReported(
                at=2.0, status=ended(job, exit_code=None, reason="planted-reason", cwd="/planted/dir")
            )
        )
        jobs["refused"] = await submit(command=("planted-command",), hold=False)
        job = service.saved_job(jobs["refused"]).job
        await tell(
            LaunchWasRefused(
                at=2.0,
                node_id=NodeId("n1"),
                key=job.attempt_key,
                code="no-program",
                message="planted-refusal",
                fault="job",
            )
        )
        script = "# hello\nprint('planted-first-line')\nprint('planted-script')\n"
        jobs["running"] = await submit(
            script=script, command=(), cwd="/planted-cwd", origin=Origin(notebook=NOTEBOOK, source=NOTEBOOK)
        )
        job = service.saved_job(jobs["running"]).job
        told = status(job, pid=PID, cwd="/planted/dir", python="/planted/python", note="planted-note")
        await tell(TaskReported(at=2.0, status=told))
        for _ in range(3):
            jobs["queued"] = await submit(command=("planted-command",), gpus=1)
        process = GpuProcess(pid=PID, user="plantedbob", name="planted-program")
        gpus = service.master.node(NodeId("n1")).facts.gpus
        samples = tuple(GpuSample(uuid=gpu.uuid, memory_used_bytes=1, processes=(process,)) for gpu in gpus)

        link = service.master.link

        def poll_once():
            """Let the reading come in, as if the node had told it."""
            del link.poll
            inbox = link.poll()
            inbox.readings[NodeId("n1")] = NewestReading(samples=samples)
            return inbox

        link.poll = poll_once
        link.wake()
        end = asyncio.get_running_loop().time() + LIMIT_S
        while service.master.node(NodeId("n1")).samples != samples:
            assert asyncio.get_running_loop().time() < end, "the reading was not shown"
            await asyncio.sleep(0.01)
        return tokens, jobs

    return plant


@pytest.fixture
def look(http_server_client, jp_base_url, jp_http_port):
    """Ask all that there is in the name of one user; return the answers as text, by route."""

    async def look(token, jobs):
        headers = {"Authorization": f"mgpu {token}"}
        seen = {}
        for route in ROUTES:
            if route.kind is Kind.WEBSOCKET or route.method != "GET" or route.path == "openapi.json":
                continue
            of_jobs = "{job_id}" in route.path
            for kind, job_id in jobs.items() if of_jobs else [("", "")]:
                path = (
                    route.path.replace("{job_id}", job_id)
                    .replace("{node_id}", "n1")
                    .replace("{user_name}", "plantedbob")
                )
                query = "?verify=1" if path.endswith("trace") else ""
                answer = await http_server_client.fetch(
                    f"{jp_base_url}{PREFIX}/{path}{query}", headers=headers, raise_error=False
                )
                seen[f"{route.path} {kind}".strip()] = answer.body.decode()
        for path in (
            "jobs?user=plantedbob",
            "jobs?name=planted-name",
            f"jobs?notebook={NOTEBOOK}&user=plantedbob",
        ):
            answer = await http_server_client.fetch(
                f"{jp_base_url}{PREFIX}/{path}", headers=headers, raise_error=False
            )
            seen[path] = str(len(json.loads(answer.body)["jobs"]))
        for action, job_id in (("cancel", jobs["running"]), ("rerun", jobs["failed"])):
            answer = await http_server_client.fetch(
                f"{jp_base_url}{PREFIX}/jobs/{job_id}/{action}",
                method="POST",
                body=b"",
                headers=headers,
                raise_error=False,
            )
            seen[f"POST {action}"] = answer.body.decode()
        body = json.dumps({"command": ["true"], "gpus": 4})
        answer = await http_server_client.fetch(
            f"{jp_base_url}{PREFIX}/jobs/dry-run", method="POST", body=body, headers=headers
        )
        seen["POST dry-run"] = answer.body.decode()
        url = f"ws://localhost:{jp_http_port}{jp_base_url}{PREFIX}/events?since=0&samples=1&queue=1"
        socket = await websocket_connect(HTTPRequest(url, headers=headers))
        frames = []
        while not {"ready", "queue"} <= {frame["type"] for frame in frames}:
            frames.append(json.loads(await asyncio.wait_for(socket.read_message(), LIMIT_S)))
        socket.close()
        seen["WS events"] = json.dumps(frames)
        return seen

    return look


def found(seen, words):
    return {(where, word) for where, text in seen.items() for word in words if word in text}


async def test_no_route_and_no_frame_tells_more_than_the_setting_says(plant, look, privacy, ask):
    tokens, jobs = await plant()
    seen = await look(tokens["ann"], jobs)
    assert (await ask("cluster", tokens["ann"]))[1]["privacy"] == privacy
    assert len(seen) > 30
    assert found(seen, NEVER) == set()
    hidden = {"full": set(), "names": SECRETS, "none": SECRETS | NAMES}[privacy]
    assert found(seen, hidden) == set()
    shown_ = {"full": SECRETS | NAMES, "names": NAMES, "none": set()}[privacy]
    assert {word for _, word in found(seen, shown_)} == shown_
    counts = [seen[path] for path in seen if path.startswith("jobs?")]
    assert counts == {"full": ["6", "6", "1"], "names": ["6", "6", "0"], "none": ["0", "0", "0"]}[privacy]


async def test_owners_and_administrators_see_all_in_every_setting(plant, look):
    tokens, jobs = await plant()
    for who in ("bob", "admin"):
        seen = await look(tokens[who], jobs)
        assert found(seen, NEVER - {"planted-script", "/planted-cwd"}) == set()
        assert {word for _, word in found(seen, SECRETS | NAMES)} >= (SECRETS | NAMES) - {str(OUTSIDE_PID)}


def test_what_has_nothing_to_do_with_jobs_is_left_as_it_is():
    sight = Sight("none", "ann", False, lambda _: "bob")
    assert (shown("text", sight), sight.user_shown("bob"), sight.user_shown("ann")) == (
        "text",
        SOMEBODY,
        "ann",
    )
