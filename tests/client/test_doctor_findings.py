"""What `mgpu doctor` finds on the way to the server, of it and of its nodes: each finding with its fix."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path
from typing import Any

import psutil
import pytest
from msgspec.structs import replace

from mgpu_agent import __version__
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.places import StatePlace
from mgpu_jupyter.api import models
from mgpu_jupyter.client import doctor
from mgpu_jupyter.client.doctor import UPGRADE, SetupFinding, examine
from mgpu_jupyter.client.mock import a_node, lost
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.model.job import NodeState
from tests.client.answers import client_of

HEALTH = models.Health(status="ok", version=__version__)
NODE = replace(a_node("n1", 1), agent_version=__version__)
START_IT = "start mgpu_node there; if it runs, see its log and whether tcp://m:1 can be reached from n1"
ANSWERS = SetupFinding(check="server", level="ok", text=f"The server answers (mgpu {__version__}).")


def found(state: Path, *bodies: object, only: tuple[str, ...] = ()) -> list[SetupFinding]:
    client, _ = client_of(*bodies)
    told = list(examine({"MGPU_STATE_DIR": str(state)}, lambda: client))
    return [one for one in told if one.check not in ("state", "permissions", "disk") or one.check in only]


def of_nodes(state: Path, *nodes: models.Node, health: models.Health = HEALTH) -> list[SetupFinding]:
    told = found(state, health, models.NodeList(nodes=nodes))
    assert told[0] == replace(ANSWERS, text=f"The server answers (mgpu {health.version}).")
    return told[1:]


def test_all_is_well(state_dir: Path) -> None:
    client, answers = client_of(HEALTH, models.NodeList(nodes=(NODE,)))

    told = list(examine({"MGPU_STATE_DIR": str(state_dir)}, lambda: client))

    assert [(one.check, one.level, one.fix) for one in told] == [
        (check, "ok", "") for check in ("state", "permissions", "disk", "server", "nodes")
    ]
    assert [one.text for one in told[:2] + told[3:]] == [
        f"State is kept in {state_dir}.",
        "Keys and records are readable by you alone.",
        ANSWERS.text,
        "n1 is online.",
    ]
    assert told[2].text.endswith("iB are free there.")
    assert [one[1] for one in answers.asked] == ["health", "nodes"]


def test_no_nodes_yet(state_dir: Path) -> None:
    fix = "run mgpu_node on a machine with GPUs; `mgpu join-token` prints the line for another machine"
    assert of_nodes(state_dir) == [
        SetupFinding(check="nodes", level="warning", text="There are no nodes yet.", fix=fix)
    ]


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        (
            {"state": NodeState.OFFLINE, "reason": "It is silent."},
            [
                (
                    "unreachable",
                    "error",
                    "n1 is offline: It is silent.",
                    START_IT,
                )
            ],
        ),
        (
            {"state": NodeState.SUSPECT, "reason": "It is silent"},
            [
                (
                    "unreachable",
                    "error",
                    "n1 is suspect: It is silent.",
                    START_IT,
                )
            ],
        ),
        (
            {"state": NodeState.UNHEALTHY, "reason": "The disk /x is full: make room there."},
            [("health", "error", "n1 gets no jobs: The disk /x is full.", "make room there")],
        ),
        (
            {"state": NodeState.UNHEALTHY, "reason": "It is ill."},
            [("health", "error", "n1 gets no jobs: It is ill.", "")],
        ),
        (
            {"state": NodeState.DRAINING, "reason": "By ann."},
            [("orders", "warning", "n1 is draining: By ann.", "mgpu node resume n1  gives it jobs again")],
        ),
        (
            {"agent_version": "0.0"},
            [("version", "warning", f"n1 runs mgpu 0.0, the server {__version__}.", UPGRADE)],
        ),
        (
            {"gpus": (), "gpu_note": "NVML is missing."},
            [
                (
                    "driver",
                    "warning",
                    "n1 offers no GPU. NVML is missing.",
                    "make nvidia-smi work there, then restart its mgpu_node",
                )
            ],
        ),
        ({"gpus": ()}, [("nodes", "ok", "n1 is online.", "")]),
        ({"gpu_note": "MIG is on."}, [("nodes", "ok", "n1 is online.", "")]),
        (
            {"gpus": (replace(NODE.gpus[0], state="unhealthy", reason="It is hot."),)},
            [("gpu", "warning", "GPU 0 of n1: It is hot.", "")],
        ),
        (
            {"state": NodeState.OFFLINE, "reason": "x", "agent_version": "0.0"},
            [
                (
                    "unreachable",
                    "error",
                    "n1 is offline: x.",
                    START_IT,
                ),
                ("version", "warning", f"n1 runs mgpu 0.0, the server {__version__}.", UPGRADE),
            ],
        ),
    ],
)
def test_a_node(state_dir: Path, changes: dict[str, Any], findings: list[tuple[str, ...]]) -> None:
    health = replace(HEALTH, link_address="tcp://m:1")
    told = of_nodes(state_dir, replace(NODE, **changes), health=health)
    assert [(one.check, one.level, one.text, one.fix) for one in told] == findings


def test_the_first_of_several_addresses_of_the_link_is_named(state_dir: Path) -> None:
    health = replace(HEALTH, link_address="tcp://m:1", link_addresses=("tcp://a:1", "tcp://b:1"))
    (told,) = of_nodes(state_dir, replace(NODE, state=NodeState.OFFLINE, reason="x"), health=health)
    assert "whether tcp://a:1 can be reached" in told.fix


def test_an_address_that_nobody_else_reaches(state_dir: Path) -> None:
    here = replace(NODE, id=NodeId("n2"), host=socket.gethostname())
    told = of_nodes(state_dir, replace(NODE, host="elsewhere"), here)
    assert [(one.check, one.level, one.text, one.fix) for one in told] == [
        (
            "address",
            "warning",
            "n1 announces 127.0.0.1, by which no other machine reaches it.",
            "start its mgpu_node with --host ADDRESS",
        ),
        ("nodes", "ok", "n2 is online.", ""),
    ]
    assert [one.check for one in of_nodes(state_dir, replace(NODE, host="elsewhere"))] == ["nodes"]
    away = replace(NODE, host="elsewhere", address="192.0.2.1")
    assert [one.check for one in of_nodes(state_dir, away, here)] == ["nodes", "nodes"]


@pytest.mark.parametrize(
    ("changes", "findings"),
    [
        ({"status": "starting"}, [("master", "error", "The master is starting.", "")]),
        (
            {"status": "failed", "message": "The disk is full: make room."},
            [("master", "error", "The disk is full: make room.", "")],
        ),
        (
            {"version": "0.0"},
            [("version", "warning", f"The server has mgpu 0.0, this program {__version__}.", UPGRADE)],
        ),
        (
            {"warnings": ("The key is old: make a new one.", "It is hot.")},
            [
                ("server", "warning", "The key is old.", "make a new one"),
                ("server", "warning", "It is hot.", ""),
            ],
        ),
    ],
)
def test_the_server(state_dir: Path, changes: dict[str, Any], findings: list[tuple[str, ...]]) -> None:
    health = replace(HEALTH, **changes)
    node = replace(NODE, agent_version=health.version)
    told = found(state_dir, health, models.NodeList(nodes=(node,)))
    assert [(one.check, one.level, one.text, one.fix) for one in told[1:] if one.check != "nodes"] == findings
    assert ("nodes" in [one.check for one in told]) == (health.status == "ok")


def test_a_server_that_relays_is_asked_about_nodes_whatever_it_is(state_dir: Path) -> None:
    health = replace(HEALTH, status="degraded", relays_to="http://m")
    told = found(state_dir, health, models.NodeList(nodes=(NODE,)))
    assert [one.check for one in told] == ["server", "master", "nodes"]


@pytest.mark.parametrize(
    ("answer", "finding"),
    [
        (
            Answer(status=401, body=b'{"code":"x","message":"Who are you?"}'),
            ("key", "Who are you?", "log in again with a line of `mgpu user add`, or unset MGPU_TOKEN"),
        ),
        (
            Answer(status=404, body=b'{"code":"x","message":"Not \x1bhere."}'.replace(b"\x1b", b"\\u001b")),
            ("server", "Not \ufffdhere.", ""),
        ),
        (lost("Nobody answers: start it."), ("port", "Nobody answers.", "start it")),
        (
            lost("Nobody answers."),
            ("port", "Nobody answers.", "start JupyterLab with mgpu-jupyter, or run mgpu_master"),
        ),
    ],
)
def test_no_answer(state_dir: Path, answer: object, finding: tuple[str, str, str]) -> None:
    told = found(state_dir, answer)
    assert [(one.check, one.text, one.fix) for one in told] == [finding]
    assert told[0].level == "error"


@pytest.mark.parametrize(("content", "holder"), [("4711\n", "4711"), ("", "unknown")])
def test_a_master_that_holds_its_lock_and_does_not_answer(state_dir: Path, content: str, holder: str) -> None:
    lock = state_dir / "master.lock"
    lock.write_text(content)
    assert [one.check for one in found(state_dir, lost("Nobody answers."))] == ["port"]
    with lock.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        told = found(state_dir, lost("Nobody answers."))
    assert told[0] == SetupFinding(
        check="lock",
        level="error",
        text=f"Process {holder} holds the master's lock and does not answer.",
        fix=f"look at it (ps {holder}); if it hangs, run  kill {holder}  and start it again",
    )
    assert [one.check for one in told] == ["lock", "port"]


def test_state_that_cannot_be_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    place = tmp_path / "file" / "state"
    for body in (HEALTH, lost("Nobody answers.")):
        (first, *rest) = found(
            place, body, models.NodeList(nodes=(NODE,)), only=("state", "disk", "permissions")
        )
        assert (first.check, first.level, first.fix) == ("state", "error", "")
        assert first.text.startswith(f"MGPU_STATE_DIR={place} is not writable")
        assert {one.check for one in rest} <= {"server", "nodes", "port"}


def test_state_on_a_network(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "state_place", lambda _: StatePlace(state_dir, on_network=True))
    told = found(state_dir, HEALTH, models.NodeList(nodes=(NODE,)), only=("state",))
    assert told[0] == SetupFinding(
        check="state",
        level="warning",
        text=f"{state_dir} is on a network file system.",
        fix="set MGPU_STATE_DIR to a directory on a local disk",
    )
    assert [one.check for one in told] == ["state", "server", "nodes"]


def test_state_that_others_can_read(state_dir: Path) -> None:
    state_dir.chmod(0o755)
    (told,) = (
        one
        for one in found(state_dir, HEALTH, models.NodeList(nodes=()), only=("permissions",))
        if one.check == "permissions"
    )
    assert (told.level, told.fix) == ("error", f"run  chmod 700 {state_dir}")
    assert told.text.startswith(str(state_dir))
    assert told.text.endswith(".")


def test_state_that_cannot_be_looked_at(state_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor, "check_private_state", refuse)
    told = found(state_dir, HEALTH, models.NodeList(nodes=()), only=("permissions",))
    assert told[0] == SetupFinding(
        check="permissions",
        level="error",
        text=f"{state_dir}: Permission denied.",
        fix=f"run  sudo chown -R {os.getuid()} {state_dir}",
    )


@pytest.mark.parametrize(("free", "level"), [(99_999_999, "error"), (100_000_000, "ok")])
def test_a_disk_that_is_full(state_dir: Path, monkeypatch: pytest.MonkeyPatch, free: int, level: str) -> None:
    real = psutil.disk_usage(str(state_dir))
    monkeypatch.setattr(psutil, "disk_usage", lambda _: real._replace(free=free))
    told = found(state_dir, HEALTH, models.NodeList(nodes=()), only=("disk",))
    assert (told[0].check, told[0].level) == ("disk", level)
    if level == "error":
        assert (
            told[0].text == f"The disk of {state_dir} has 95.4 MiB left: submits are refused when it is full."
        )
        assert told[0].fix == "make room there, or set MGPU_STATE_DIR to another disk"
    else:
        assert told[0].text == "95.4 MiB are free there."
