"""Jobs over REST: submit, list, look, cancel, output and streams; status codes and whole bodies."""

from __future__ import annotations

import json

import msgspec
import pytest
from tornado.httpclient import HTTPClientError

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api.models import MAX_BODY_BYTES
from mgpu_jupyter.api.openapi import document
from mgpu_jupyter.api.requests import BulkItem, BulkSubmit
from mgpu_jupyter.api.route import PREFIX
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.model.job import Origin
from mgpu_jupyter.scheduler.events import NodeJoined
from tests.builders import a_spec, facts
from tests.server.conftest import LIMIT_S, read_until, submit


async def test_a_submitted_job_can_be_looked_at_where_the_answer_says(api, jp_fetch, os_user):
    answer = await jp_fetch(
        PREFIX, "jobs", method="POST", body=msgspec.json.encode(a_spec(name="first", gpus=2))
    )
    submitted = json.loads(answer.body)
    code, job = await api(f"jobs/{submitted['job_id']}")

    assert (answer.code, submitted["state"]) == (201, "queued")
    assert answer.headers["Location"].endswith(f"/{PREFIX}/jobs/{submitted['job_id']}")
    assert code == 200
    assert job.pop("submitted_at") > 0
    assert job.pop("seq") > 0
    assert job == {
        "id": submitted["job_id"],
        "state": "queued",
        "user": os_user,
        "name": "first",
        "command": "true",
        "nodes": [],
        "gpus": 2,
        "exit_code": None,
        "attempt": 0,
        "started_at": None,
        "ended_at": None,
        "distributed": False,
        "master_node": None,
        "kill_at": None,
        "reason": "No node has joined yet: start JupyterLab's own agent or run mgpu_node on a GPU machine.",
        "reason_code": "no-nodes",
        "priority": 0,
        "time_limit_s": None,
        "nodes_wanted": 1,
        "place": 1,
        "placements": [],
        "expected_start_at": None,
        "array_id": None,
        "array_index": None,
        "preempted": 0,
        "partition": "",
        "account": "",
        "qos": "",
        "pty": False,
        "mismatches": [],
        "warnings": [],
        "failure": None,
        "origin": None,
        "sweep": {},
    }


async def test_the_same_idempotency_key_is_the_same_job(api):
    headers = {"Idempotency-Key": "one"}
    first = await api("jobs", "POST", a_spec(), headers=dict(headers))
    second = await api("jobs", "POST", a_spec(), headers=dict(headers))
    other = await api("jobs", "POST", a_spec(gpus=3), headers=dict(headers))

    assert first == second
    assert (other[0], other[1]["code"]) == (409, "key-used")
    code, body = await api("jobs", "POST", a_spec(), headers={"Idempotency-Key": "x" * 201})
    assert (code, body["code"]) == (400, "invalid")


async def test_a_bulk_is_all_or_none_and_keeps_the_order(api):
    items = tuple(BulkItem(spec=a_spec(name=f"job-{number}"), key=f"key-{number}") for number in range(3))
    code, body = await api("jobs/bulk", "POST", BulkSubmit(jobs=items))
    again = await api("jobs/bulk", "POST", BulkSubmit(jobs=items))
    names = [(await api(f"jobs/{job['job_id']}"))[1]["name"] for job in body["jobs"]]

    assert (code, names) == (201, ["job-0", "job-1", "job-2"])
    assert again == (code, body)
    bad = BulkSubmit(jobs=(BulkItem(spec=a_spec()), BulkItem(spec=a_spec(nodes=2, gpus=3))))
    code, error = await api("jobs/bulk", "POST", bad)
    assert (code, error["code"]) == (400, "gpu-contradiction")
    assert len((await api("jobs"))[1]["jobs"]) == 3


BAD_BODIES = {
    "not JSON": (b"{", "not-json"),
    "not an object": (b"[]", "invalid"),
    "an unknown field": (b'{"command": ["a"], "gpu": 1}', "invalid"),
    "a wrong type": (b'{"command": ["a"], "gpus": "two"}', "invalid"),
    "a negative number": (b'{"command": ["a"], "gpus": -1}', "invalid"),
    "no command": (b"{}", "no-command"),
    "an empty command": (b'{"command": [" "]}', "no-command"),
    "both": (b'{"command": ["a"], "script": "b"}', "no-command"),
    "a line break in the name": (b'{"command": ["a"], "name": "a\\nb"}', "invalid"),
    "not UTF-8": (b'{"command": ["\xff"]}', "not-json"),
    "too large": (b" " * (MAX_BODY_BYTES + 1), "body-too-large"),
}


@pytest.mark.parametrize("case", BAD_BODIES)
async def test_a_bad_request_is_answered_with_a_sentence(api, case):
    data, expected = BAD_BODIES[case]
    code, body = await api("jobs", "POST", data)

    assert (code, body["code"]) == (413 if expected == "body-too-large" else 400, expected)
    assert body["message"].endswith(".")
    assert (await api("jobs"))[1]["jobs"] == []


async def test_lists_are_paged_newest_first_and_filtered(api):
    ids = [await submit(api, name=f"job-{number % 2}") for number in range(5)]
    code, first = await api("jobs", params={"limit": 2})
    _, second = await api("jobs", params={"limit": 2, "cursor": first["next_cursor"]})
    _, third = await api("jobs", params={"limit": 2, "cursor": second["next_cursor"]})

    pages = [[job["id"] for job in page["jobs"]] for page in (first, second, third)]
    assert pages == [[ids[4], ids[3]], [ids[2], ids[1]], [ids[0]]]
    assert third["next_cursor"] is None
    _, named = await api("jobs", params={"name": "job-1", "state": "active"})
    assert [job["id"] for job in named["jobs"]] == [ids[3], ids[1]]
    assert (await api("jobs", params={"state": "completed,failed"}))[1]["jobs"] == []
    assert (await api("jobs", params={"user": "nobody"}))[1]["jobs"] == []
    assert len((await api("jobs", params={"since": "1"}))[1]["jobs"]) == 5
    for params, expected in (
        ({"limit": "0"}, "invalid"),
        ({"limit": "many"}, "invalid"),
        ({"state": "nearly"}, "unknown-state"),
        ({"cursor": "!!"}, "bad-cursor"),
    ):
        code, body = await api("jobs", params=params)
        assert (code, body["code"]) == (400, expected)


async def test_a_notebook_finds_its_own_jobs(api):
    notebook = "0123456789abcdef" * 2
    found = await submit(api, origin=Origin(notebook=notebook, source="f" * 32))
    await submit(api)
    _, listed = await api("jobs", params={"notebook": notebook})
    assert [(job["id"], job["origin"]) for job in listed["jobs"]] == [
        (found, {"notebook": notebook, "source": "f" * 32})
    ]
    assert (await api("jobs", params={"notebook": notebook, "user": "nobody"}))[1]["jobs"] == []
    assert (await api("jobs", params={"notebook": "f" * 32}))[1]["jobs"] == []


async def test_a_job_of_a_sweep_tells_its_values(api):
    _, first = await api("jobs", "POST", a_spec(sweep={"lr": ("0.1", "0.01"), "seed": ("1",)}, array="0-1"))
    _, listed = await api("jobs", params={"array": first["array_id"]})
    assert [job["sweep"] for job in listed["jobs"]] == [
        {"lr": "0.01", "seed": "1"},
        {"lr": "0.1", "seed": "1"},
    ]


async def test_cancelling_twice_is_no_error(api):
    job_id = await submit(api)

    assert await api(f"jobs/{job_id}/cancel", "POST") == (202, {"job_id": job_id, "state": "cancelled"})
    assert await api(f"jobs/{job_id}/cancel", "POST") == (202, {"job_id": job_id, "state": "cancelled"})
    assert (await api("jobs/NOSUCH00/cancel", "POST"))[0] == 404


async def test_nodes_and_cluster_show_who_holds_what(api, run_job, os_user):
    job = await run_job(gpus=2)
    _, nodes = await api("nodes")
    _, node = await api("nodes/n1")
    _, cluster = await api("cluster")

    assert nodes == {"nodes": [node], "expected": []}
    assert [(gpu["index"], gpu["job_id"], gpu["user"], gpu["simulated"]) for gpu in node["gpus"]] == [
        (0, job.id, os_user, True),
        (1, job.id, os_user, True),
        (2, None, None, True),
        (3, None, None, True),
    ]
    assert {
        name: cluster[name] for name in ("nodes", "nodes_online", "gpus", "gpus_free", "simulated", "admin")
    } == {
        "nodes": 1,
        "nodes_online": 1,
        "gpus": 4,
        "gpus_free": 2,
        "simulated": True,
        "admin": True,
    }
    assert cluster["jobs"] == {"queued": 0, "running": 1, "starting": 0, "stopping": 0}


async def test_whole_numbers_may_have_a_point(api):
    code, body = await api("jobs", "POST", b'{"command": ["true"], "gpus": 2.0}')
    assert code == 201
    assert (await api(f"jobs/{body['job_id']}"))[1]["gpus"] == 2
    code, body = await api("jobs", "POST", b'{"command": ["true"], "gpus": 2.5}')
    assert (code, body["code"]) == (400, "invalid")


async def test_a_method_that_is_not_served_is_told_which_ones_are(jp_fetch):
    with pytest.raises(HTTPClientError) as caught:
        await jp_fetch(PREFIX, "jobs", method="DELETE")
    assert (caught.value.code, caught.value.response.headers["Allow"]) == (405, "GET, POST")


async def test_a_bad_job_of_a_bulk_is_named(api, tell):
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))
    bad = BulkSubmit(jobs=(BulkItem(spec=a_spec()), BulkItem(spec=a_spec(gpus=9))))
    code, body = await api("jobs/bulk", "POST", bad)

    assert (code, body["code"], body["details"]) == (409, "too-large", {"index": 1})
    assert body["message"].startswith("Job 2 of 2: Needs 9 GPUs on one node")
    assert (await api("jobs"))[1]["jobs"] == []


async def test_a_key_that_is_known_is_answered_although_the_nodes_have_changed(api, tell):
    headers = {"Idempotency-Key": "one"}
    first = await api("jobs", "POST", a_spec(gpus=9), headers=dict(headers))
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 4)))

    assert await api("jobs", "POST", a_spec(gpus=9), headers=dict(headers)) == first
    assert (await api("jobs", "POST", a_spec(gpus=9)))[0] == 409


async def test_events_resume_from_a_sequence_number(api, jp_ws_fetch, tell):
    first = await submit(api)
    socket = await jp_ws_fetch(PREFIX, "events", params={"since": "0"})
    frames = await read_until(socket, lambda frame: frame["type"] == "ready")
    assert [frame["job"]["id"] for frame in frames[:-1]] == [first]
    seq = frames[-1]["seq"]

    second = await submit(api)
    (live, *_) = await read_until(socket, lambda frame: frame["type"] == "job")
    assert live["job"]["id"] == second
    assert live["seq"] > seq
    socket.close()
    await tell(NodeJoined(at=1.0, node_id=NodeId("n1"), facts=facts("n1", 1)))

    again = await jp_ws_fetch(PREFIX, "events", params={"since": str(live["seq"])})
    frames = await read_until(again, lambda frame: frame["type"] == "ready")
    names = [(frame["type"], frame.get("job", frame.get("node", {})).get("id")) for frame in frames[:-1]]
    assert sorted(names) == [("job", first), ("node", "n1")]
    assert [frame["seq"] for frame in frames] == sorted(frame["seq"] for frame in frames)
    again.close()


async def test_health_and_what_kernels_get(api, app, jp_serverapp, state_dir):
    import os

    code, health = await api("health")

    assert (code, health["status"], health["message"], health["master_epoch"]) == (200, "ok", "", 1)
    assert health["link_address"] == app.service.link_address
    assert os.environ["MGPU_TOKEN"] == app.service.token
    assert os.environ["MGPU_URL"] == f"http://localhost:{jp_serverapp.port}{jp_serverapp.base_url}"
    assert [
        oct(path.stat().st_mode)[-3:]
        for path in (state_dir / "keys", state_dir / "mgpu.db", state_dir / "keys" / "token")
    ] == [
        "700",
        "600",
        "600",
    ]


async def test_the_document_covers_every_route_and_every_type_is_defined(api):
    code, body = await api("openapi.json")

    assert (code, body) == (200, json.loads(json.dumps(document())))
    paths = {(method.upper(), path) for path, methods in body["paths"].items() for method in methods}
    assert paths == {(route.method, f"/{PREFIX}/{route.path}") for route in ROUTES}
    used = set(__import__("re").findall(r'"#/components/schemas/([^"]+)"', json.dumps(body)))
    assert used <= set(body["components"]["schemas"])
    operations = [
        operation["operationId"] for methods in body["paths"].values() for operation in methods.values()
    ]
    assert len(operations) == len(set(operations)) == len(ROUTES)
    for route in (route for route in ROUTES if route.request is not None):
        assert msgspec.convert(route.example, route.request, strict=True) is not None


NOT_UTF8 = [
    "jobs?name=%d6",
    "jobs?%d6=1",
    "jobs?name=%25%d6%25s",
    "jobs?limit=1&key=%d6secret",
    "jobs?x=%ff%fe",
    "openapi.json?x=%d6",
]


async def test_a_query_that_is_not_utf8_is_refused_in_one_sentence(
    http_server_client, jp_base_url, jp_auth_header, caplog, capsys
):
    sentence = "The query string is not UTF-8: encode its text as UTF-8 and send it again."
    seen = []
    for tail in [*NOT_UTF8, "jobs/%d6?name=secret"]:
        with pytest.raises(HTTPClientError) as refused:
            await http_server_client.fetch(
                f"{jp_base_url}{PREFIX}/{tail}", headers=jp_auth_header, request_timeout=LIMIT_S
            )
        seen.append((refused.value.code, json.loads(refused.value.response.body)))
    good = await http_server_client.fetch(
        f"{jp_base_url}{PREFIX}/jobs?name=%C3%96", headers=jp_auth_header, request_timeout=LIMIT_S
    )

    assert seen[:-1] == [(400, {"code": "not-utf8", "message": sentence, "details": {}})] * len(NOT_UTF8)
    assert (seen[-1][0], seen[-1][1]["code"], good.code) == (400, "bad-request", 200)
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "secret" in line or "Traceback" in line] == []
    assert "Logging error" not in capsys.readouterr().err
