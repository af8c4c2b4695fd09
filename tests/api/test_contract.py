"""The vocabulary of REST as a value: what may be said, in which words. Behaviour of the routes is tested with
the server.
"""

from __future__ import annotations

import re
import typing

import msgspec
import pytest

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import frames, models, requests
from mgpu_jupyter.api.route import Kind
from mgpu_jupyter.api.routes import ROUTES
from mgpu_jupyter.model.job import JobSpec, JobState, NodeState

JOB = models.Job(
    id=JobId("AB12CD34"),
    state=JobState.RUNNING,
    user="ada",
    name="train",
    command="python train.py",
    nodes=(NodeId("n1"),),
    gpus=1,
    exit_code=None,
    attempt=1,
    submitted_at=1.0,
    started_at=2.0,
    ended_at=None,
    reason="",
)
NODE = models.Node(
    id=NodeId("n1"),
    state=NodeState.ONLINE,
    reason="",
    host="gpu001",
    address="192.0.2.10",
    arch="x86_64",
    cpus=8,
    memory_bytes=2**30,
    gpus=(),
)

KEYS_FOR_SCRIPTS: dict[type[msgspec.Struct], str] = {
    models.Job: "id state user name command nodes gpus exit_code attempt "
    "submitted_at started_at ended_at reason",
    models.Node: "id state reason host gpus",
    models.Gpu: "index uuid name memory_bytes job_id simulated",
    requests.Submitted: "job_id state",
    models.ErrorBody: "code message details",
}


@pytest.mark.parametrize("body", KEYS_FOR_SCRIPTS)
def test_keys_that_scripts_rely_on(body: type[msgspec.Struct]) -> None:
    assert [key for key in KEYS_FOR_SCRIPTS[body].split() if key not in body.__struct_fields__] == []


def test_operations_and_paths_are_unique() -> None:
    assert (
        len({route.operation for route in ROUTES})
        == len({(route.method, route.path) for route in ROUTES})
        == len(ROUTES)
    )


def test_writes_are_the_routes_that_are_not_get() -> None:
    assert [route.operation for route in ROUTES if route.is_write] == [
        "changeNode",
        "pingNode",
        "removeNode",
        "addJoinToken",
        "submitJob",
        "submitJobs",
        "waitForJobs",
        "explainRequest",
        "parseLine",
        "changeJob",
        "cancelJob",
        "requeueJob",
        "rerunJob",
        "replaceJob",
        "purgeJobs",
        "findPythons",
        "findMissingPieces",
        "addPieces",
        "addUser",
        "removeUser",
    ]


def test_variables_of_paths() -> None:
    assert {name for route in ROUTES for name in re.findall(r"{(.*?)}", route.path)} == {
        "node_id",
        "job_id",
        "user_name",
    }


def test_sockets_are_get_routes() -> None:
    assert {(route.method, route.path) for route in ROUTES if route.kind is Kind.WEBSOCKET} == {
        ("GET", "jobs/{job_id}/stream"),
        ("GET", "events"),
    }


def test_every_body_has_a_json_schema() -> None:
    bodies = [body for route in ROUTES for body in (route.request, route.response) if body is not None]
    _, components = msgspec.json.schema_components(bodies)
    assert {
        "JobSpec",
        "Job",
        "JobList",
        "Node",
        "NodeList",
        "Health",
        "Cluster",
        "Submitted",
        "BulkSubmit",
    } <= set(components)


@pytest.mark.parametrize(
    ("union", "frame", "kind"),
    [
        (
            frames.JobStreamFrame,
            frames.OutputFrame(rank=0, stream="stderr", offset=3, data=b"\x00\xff\n"),
            "output",
        ),
        (frames.JobStreamFrame, frames.JobFrame(seq=4, job=JOB), "job"),
        (frames.JobStreamFrame, frames.GapFrame(rank=1, message="its node is lost"), "gap"),
        (frames.JobStreamFrame, frames.EndFrame(job=JOB), "end"),
        (frames.JobStreamFrame, frames.PingFrame(), "ping"),
        (frames.EventFrame, frames.JobFrame(seq=4, job=JOB), "job"),
        (frames.EventFrame, frames.NodeFrame(seq=5, node=NODE), "node"),
        (frames.EventFrame, frames.ReadyFrame(seq=6), "ready"),
        (frames.EventFrame, frames.PingFrame(), "ping"),
        (
            frames.EventFrame,
            frames.SamplesFrame(
                at=1.5, nodes={NODE.id: frames.NodeReading(cpu=3, gpus={"0": (9, 8, None, 7)})}
            ),
            "samples",
        ),
        (
            frames.EventFrame,
            frames.QueueFrame(
                version=9,
                base=8,
                removed=(JOB.id,),
                inserted=((0, (JOB.id,)),),
                reasons={"1": frames.Why("busy", "Waits.")},
                why={JOB.id: 1},
                expected={JOB.id: None},
            ),
            "queue",
        ),
        (frames.EventFrame, frames.GoneFrame(seq=7, nodes=(NODE.id,), jobs=(JOB.id,)), "gone"),
        (frames.EventFrame, frames.ResetFrame(seq=8, message="Again."), "reset"),
    ],
)
def test_frames_survive_json(union: typing.Any, frame: msgspec.Struct, kind: str) -> None:
    text = msgspec.json.encode(frame)
    assert msgspec.json.decode(text, type=union) == frame
    assert msgspec.json.decode(text)["type"] == kind
    assert b"\n" not in text


def test_a_request_with_an_unknown_word_is_refused() -> None:
    for kind in (JobSpec, requests.BulkItem, requests.BulkSubmit):
        assert kind.__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize(
    "body",
    [
        b'{"jobs":[]}',
        b'{"jobs":[{"spec":{"command":["true"]},"key":""}]}',
        b'{"jobs":[{"command":["true"]}]}',
    ],
)
def test_bulk_that_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(body, type=requests.BulkSubmit)
