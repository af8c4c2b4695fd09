"""Commands about machines that come and go: `mgpu nodes`, `mgpu join-token` and `mgpu node`."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import msgspec
import pytest

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import administration, models
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, a_node
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.model.job import NodeState
from mgpu_jupyter.model.settings import Lists

ACTIONS = "drain, resume, maintenance, allow, deny, label, remove, revoke, ping"
Captured = pytest.CaptureFixture[str]


def run(command: Callable[..., int], words: list[str], mock: MockTransport) -> int:
    return command(words, lambda: Client(transport=mock))


def test_nodes(capsys: Captured) -> None:
    gpu = models.Gpu(
        index=1,
        uuid=GpuUuid("G"),
        name="H100",
        memory_bytes=80 << 30,
        simulated=False,
        job_id=JobId("RRRR0001"),
        user="me",
        utilisation_percent=89.4,
        memory_used_bytes=57_100_000_000,
        state="held",
    )
    busy = models.Gpu(
        index=2,
        uuid=GpuUuid("H"),
        name="H100",
        memory_bytes=80 << 30,
        simulated=False,
        state="outside",
        reason="In use outside mgpu by pid 8 of bob.",
        processes=(models.GpuProcess(pid=8, user="bob", memory_bytes=5, outside=True),),
        nvlinks={GpuUuid("G"): 4},
    )
    real = models.Node(
        id=NodeId("r"),
        state=NodeState.DRAINING,
        reason="update",
        host="h",
        address="192.0.2.7",
        arch="",
        cpus=4,
        memory_bytes=1,
        gpus=(gpu, busy),
        address_method="default-route",
        port=8081,
        orders=models.NodeOrders(
            lists=Lists(allow_users=("ann",), allow_accounts=("lab",), deny_users=("ev\x1be",)),
            lists_by="root",
            labels={"room": "B2"},
        ),
        labels={"room": "B2", "fast": ""},
        rack="r2",
        switch="s1",
        failures=1,
        failures_total=2,
        cpu_percent=12.4,
        memory_available_bytes=7,
    )
    mock = MockTransport(nodes=[a_node("s", 1), real])
    assert run(entry.mgpu, ["nodes"], mock) == 0
    assert capsys.readouterr().out.splitlines() == [
        "s: online | host s | 8 CPUs | 1 GPU, simulated, 1 free",
        "  address 127.0.0.1",
        "  GPU 0: Simulated GPU (simulated) | 80 GiB | free",
        "r: draining (update) | host h | 4 CPUs, 12 % busy | 2 GPUs, 0 free",
        "  address 192.0.2.7 (the interface of the default route), port 8081",
        "  rack r2, switch s1",
        "  labels fast, room=B2",
        "  only for ann, account lab (set by root)",
        "  not for ev\ufffde (set by root)",
        "  GPU 1: H100 | 53.2 of 80 GiB | 89 % busy | RRRR0001 of me",
        "  GPU 2: H100 | 80 GiB | outside: In use outside mgpu by pid 8 of bob.",
    ]
    assert run(entry.mgpu, ["nodes", "--json"], mock) == 0
    assert json.loads(capsys.readouterr().out)["nodes"][1] == {
        "id": "r",
        "state": "draining",
        "reason": "update",
        "host": "h",
        "address": "192.0.2.7",
        "address_method": "default-route",
        "port": 8081,
        "orders": {
            "state": None,
            "reason": "",
            "by": "",
            "at": None,
            "lists": {"allow_users": ["ann"], "allow_accounts": ["lab"], "deny_users": ["ev\x1be"]},
            "lists_reason": "",
            "lists_by": "root",
            "lists_at": None,
            "labels": {"room": "B2"},
            "labels_reason": "",
            "labels_by": "",
            "labels_at": None,
        },
        "failures": 1,
        "failures_total": 2,
        "probe_at": None,
        "cpu_percent": 12.4,
        "memory_available_bytes": 7,
        "runs": "",
        "rack": "r2",
        "switch": "s1",
        "last_seen_at": None,
        "warnings": [],
        "gpus": [
            {
                "index": 1,
                "uuid": "G",
                "name": "H100",
                "memory_bytes": 80 << 30,
                "job_id": "RRRR0001",
                "simulated": False,
                "state": "held",
                "reason": "",
                "processes": [],
                "mig_parent": "",
                "nvlinks": {},
            },
            {
                "index": 2,
                "uuid": "H",
                "name": "H100",
                "memory_bytes": 80 << 30,
                "job_id": None,
                "simulated": False,
                "state": "outside",
                "reason": "In use outside mgpu by pid 8 of bob.",
                "processes": [{"pid": 8, "user": "bob", "memory_bytes": 5, "outside": True, "name": ""}],
                "mig_parent": "",
                "nvlinks": {"G": 4},
            },
        ],
    }


def an_answer(body: object, status: int = 200) -> Answer:
    return Answer(status=status, body=msgspec.json.encode(body))


def test_join_token_prints_one_line_and_says_the_rest_beside_it(capsys: Captured) -> None:
    mock = MockTransport()
    token = administration.JoinToken(
        command="mgpu_node --join mgpu1.AAAA --node-id gpu-1",
        line="mgpu1.AAAA",
        expires_at=time.time() + 1800.4,
        addresses=("tcp://192.0.2.1:8790",),
        message="The link now listens on tcp://192.0.2.1:8790 too.",
    )
    mock.failures.append(an_answer(token, 201))
    words = [
        "join-token",
        "--node-id",
        "gpu-1",
        "--ttl",
        "30m",
        "--listen",
        "192.0.2.1",
        "--listen",
        "192.0.2.2",
    ]
    assert run(entry.mgpu, words, mock) == 0

    out, err = capsys.readouterr()
    assert out == "mgpu_node --join mgpu1.AAAA --node-id gpu-1\n"
    assert err.splitlines() == [
        "The link now listens on tcp://192.0.2.1:8790 too.",
        "Run this line on the new machine within 30 m 00 s; it works once and reaches tcp://192.0.2.1:8790.",
    ]
    request = mock.requests[0]
    assert (request.method, request.path, json.loads(request.body or b"")) == (
        "POST",
        "join-tokens",
        {"node_id": "gpu-1", "ttl_s": 1800.0, "listen": ["192.0.2.1", "192.0.2.2"]},
    )


def test_node_revoke_says_what_became_of_the_node(capsys: Captured) -> None:
    mock = MockTransport()
    answer = administration.NodeActionAnswer(
        node_id=NodeId("a b"), action="revoke", message="Revoked by me: st\x1bolen."
    )
    mock.failures.append(an_answer(answer))
    assert run(entry.mgpu, ["node", "revoke", "a b", "--reason", "stolen"], mock) == 0

    request = mock.requests[0]
    assert capsys.readouterr() == ("a b: Revoked by me: st\ufffdolen.\n", "")
    assert (request.method, request.path, json.loads(request.body or b"")) == (
        "PATCH",
        "nodes/a%20b",
        {"action": "revoke", "reason": "stolen"},
    )


@pytest.mark.parametrize(
    ("words", "body"),
    [
        (["drain", "n1", "--reason", "dust"], {"action": "drain", "reason": "dust"}),
        (["resume", "n1"], {"action": "resume"}),
        (["maintenance", "n1"], {"action": "maintenance"}),
        (["remove", "n1"], {"action": "remove"}),
        (
            ["label", "n1", "room=B2", "fast", "old-"],
            {"action": "label", "labels": {"room": "B2", "fast": "", "old": None}},
        ),
        (["allow", "n1", "--user", "ann", "--user", "bob"], {"action": "allow", "users": ["ann", "bob"]}),
        (["allow", "n1", "--only", "--account", "lab"], {"action": "only", "accounts": ["lab"]}),
        (["allow", "n1", "--everybody"], {"action": "clear-lists"}),
        (
            ["deny", "n1", "--user", "eve", "--account", "lab"],
            {"action": "deny", "users": ["eve"], "accounts": ["lab"]},
        ),
    ],
)
def test_node_actions_are_one_request_each(
    capsys: Captured, words: list[str], body: dict[str, object]
) -> None:
    mock = MockTransport()
    mock.failures.append(
        an_answer(administration.NodeActionAnswer(node_id=NodeId("n1"), action="x", message="Done."))
    )
    assert run(entry.mgpu, ["node", *words], mock) == 0

    (request,) = mock.requests
    assert capsys.readouterr() == ("n1: Done.\n", "")
    assert (request.method, request.path, json.loads(request.body or b"")) == ("PATCH", "nodes/n1", body)


def test_a_node_is_removed_by_the_client() -> None:
    mock = MockTransport()
    answer = administration.NodeActionAnswer(
        node_id=NodeId("a b"), action="remove", message="It is forgotten."
    )
    mock.failures.append(an_answer(answer))

    assert Client(transport=mock).admin.remove_node("a b") == answer
    assert [(request.method, request.path) for request in mock.requests] == [("DELETE", "nodes/a%20b")]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["join-token", "--ttl", "soon"], "--ttl soon: write a time like 30m, 1h or 2d."),
        (["join-token", "--ttl", "0h"], "--ttl 0h: write a time above nothing, like 30m, 1h or 2d."),
        (["node"], f"mgpu node knows {ACTIONS}: write for example mgpu node drain ID."),
        (["node", "melt", "n1"], f"mgpu node knows {ACTIONS}: write for example mgpu node drain ID."),
        (["node", "allow", "n1"], "Whom? Write mgpu node allow n1 --user NAME, or --account NAME."),
        (["node", "deny", "n1"], "Whom? Write mgpu node deny n1 --user NAME, or --account NAME."),
        (
            ["node", "drain", "n1", "--user", "a"],
            "--user and --account go with allow and deny: leave them out of drain.",
        ),
        (
            ["node", "revoke", "n1", "--account", "a"],
            "--user and --account go with allow and deny: leave them out of revoke.",
        ),
        (
            ["node", "deny", "n1", "--only", "--user", "a"],
            "--only and --everybody go with allow: leave them out of deny.",
        ),
        (
            ["node", "allow", "n1", "--everybody", "--user", "a"],
            "--everybody names all: leave --only, --user and --account out.",
        ),
        (
            ["node", "label", "n1"],
            "Labels go with label: write mgpu node label n1 room=B2, or leave them out.",
        ),
        (
            ["node", "drain", "n1", "room=B2"],
            "Labels go with label: write mgpu node label n1 room=B2, or leave them out.",
        ),
        (["node", "label", "n1", "=B2"], "=B2 is no label: write NAME=VALUE, or NAME- to take one off."),
        (["node", "revoke"], "Which node? Write mgpu node revoke ID; `mgpu nodes` lists them."),
    ],
)
def test_wrong_words_about_machines_get_one_sentence(
    capsys: Captured, words: list[str], sentence: str
) -> None:
    mock = MockTransport()
    assert run(entry.mgpu, words, mock) == 2
    assert (capsys.readouterr(), mock.requests) == (("", f"{sentence}\n"), [])


@pytest.mark.parametrize("words", [["join-token", "--help"], ["node", "--help"]])
def test_help_about_machines(capsys: Captured, words: list[str]) -> None:
    assert run(entry.mgpu, words, MockTransport()) == 0
    assert capsys.readouterr().out.startswith(f"usage: mgpu {words[0]} ")


def test_doctor_shows_what_nodes_say_as_text(capsys: Captured) -> None:
    """Issue 16, finding 14: version and host of a node reached the terminal as they came."""
    evil = "1.0\x1b]0;owned\x07\nok    all is well"
    told = msgspec.structs.replace(
        a_node("n1", 1), agent_version=evil, host=evil, address=evil, state=NodeState.OFFLINE, reason=evil
    )
    assert run(entry.mgpu, ["doctor"], MockTransport(nodes=[told])) == 1
    out = capsys.readouterr().out
    assert [char for char in out if not char.isprintable() and char != "\n"] == []
    assert "n1 runs mgpu 1.0\ufffd]0;owned\ufffd ok    all is well, the server " in out
