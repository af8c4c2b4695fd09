"""What a job finds in its environment and how it is called, as pure functions."""

from __future__ import annotations

from mgpu_agent.process.environment import (
    base_environment,
    command_words,
    interpreter_words,
    task_environment,
    visible_devices,
)
from mgpu_agent.protocol.ids import AttemptKey, GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuInfo, LaunchSpec, OutputFile, TaskSpec

GPUS = {
    GpuUuid(uuid): GpuInfo(index=index, uuid=GpuUuid(uuid), name="g", memory_bytes=1)
    for index, uuid in ((2, "GPU-a"), (5, "GPU-b"))
}


def a_spec(**options: object) -> LaunchSpec:
    values: dict[str, object] = {
        "key": AttemptKey(JobId("AAAAAAAA"), 2, 7),
        "node_id": NodeId("n1"),
        "incarnation": "i",
        "user": "u",
        "tasks": (TaskSpec(rank=0),),
    }
    return LaunchSpec(**{**values, **options})  # type: ignore[arg-type]


def environment_of(spec: LaunchSpec, task: TaskSpec, **base: str) -> dict[bytes, bytes]:
    devices = visible_devices(spec.gpus, GPUS)
    return task_environment(
        spec,
        task,
        node_id=NodeId("n1"),
        devices=devices,
        cwd="/here",
        base={name.encode(): value.encode() for name, value in base.items()},
    )


def test_the_base_has_no_secrets_and_nothing_of_the_agents_own() -> None:
    dropped = (
        b"MGPU_TOKEN MGPU_URL JUPYTER_TOKEN JPY_PARENT_PID JPY_API_TOKEN JUPYTERHUB_API_TOKEN "
        b"JUPYTERHUB_USER JUPYTER_SERVER_URL "
        b"CONFIGPROXY_AUTH_TOKEN PWD OLDPWD _ SHLVL MGPU_TASK MGPU_FAILPOINTS LINES COLUMNS"
    ).split()
    kept = {
        b"PATH": b"/bin",
        b"HOME": b"/home/u",
        b"ODD": b"\xff\xfe",
        b"MGPU_STATE_DIR": b"/s",
        b"JUPYTER_PATH": b"/j",
    }

    assert base_environment({**dict.fromkeys(dropped, b"secret"), **kept}) == kept


def test_a_task_finds_its_place_and_its_own_settings_last() -> None:
    spec = a_spec(
        argv=("true",), gpus=("GPU-b", "GPU-a"), env={"A": "spec", "B": "spec", "PYTHONUNBUFFERED": "0"}
    )

    assert environment_of(spec, TaskSpec(rank=1, env={"B": "task"})) == {
        b"PYTHONUNBUFFERED": b"0",
        b"CUDA_DEVICE_ORDER": b"PCI_BUS_ID",
        b"CUDA_VISIBLE_DEVICES": b"5,2",
        b"MGPU_JOB_ID": b"AAAAAAAA",
        b"MGPU_ATTEMPT": b"2",
        b"MGPU_EPOCH": b"7",
        b"MGPU_NODE_ID": b"n1",
        b"MGPU_RANK": b"1",
        b"MGPU_GPUS": b"GPU-b,GPU-a",
        b"PWD": b"/here",
        b"A": b"spec",
        b"B": b"task",
    }


def test_files_are_named_to_the_program_that_copies() -> None:
    task = TaskSpec(rank=0, files=(OutputFile(1, "a b", append=True),))
    found = environment_of(a_spec(argv=("true",)), task)
    assert found[b"MGPU_OUTPUT_FILES"] == b'[[1, "a b", true]]'


def test_defaults_are_for_what_the_node_does_not_set() -> None:
    spec = a_spec(argv=("true",), defaults={"OMP_NUM_THREADS": "4", "OTHER": "1"})
    found = environment_of(spec, TaskSpec(rank=0), OMP_NUM_THREADS="9")
    assert (found.get(b"OMP_NUM_THREADS"), found[b"OTHER"]) == (None, b"1"), "what the node sets stays"


def test_a_cell_imports_from_its_directory() -> None:
    cell = a_spec(script="pass")
    own = a_spec(script="pass", env={"PYTHONPATH": "/mine"})
    found = [
        environment_of(cell, TaskSpec(rank=0))[b"PYTHONPATH"],
        environment_of(cell, TaskSpec(rank=0), PYTHONPATH="/node")[b"PYTHONPATH"],
        environment_of(own, TaskSpec(rank=0), PYTHONPATH="/node")[b"PYTHONPATH"],
    ]

    assert found == [b"/here", b"/here:/node", b"/here:/mine"]


def test_visible_devices() -> None:
    cases = {(): "", (GpuUuid("GPU-a"),): "2", (GpuUuid("MIG-x"), GpuUuid("MIG-y")): "MIG-x,MIG-y"}

    assert {wanted: visible_devices(wanted, GPUS) for wanted in cases} == cases


def test_uuids_where_numbers_cannot_be_relied_on() -> None:
    with_mig = {
        **GPUS,
        GpuUuid("MIG-x"): GpuInfo(
            index=1000, uuid=GpuUuid("MIG-x"), name="m", memory_bytes=1, mig_parent="GPU-c"
        ),
    }
    wanted = (GpuUuid("GPU-a"), GpuUuid("GPU-b"))

    assert (visible_devices(wanted, GPUS, by_uuid=True), visible_devices(wanted, with_mig)) == (
        "GPU-a,GPU-b",
        "GPU-a,GPU-b",
    )
    assert visible_devices((GpuUuid("GPU-a"), GpuUuid("MIG-new")), GPUS) == "GPU-a,MIG-new"


def test_interpreter_lines() -> None:
    cases = {
        "print(1)": (),
        "# !no": (),
        "#!/bin/bash\necho": ("/bin/bash",),
        "#! /bin/bash -e -x \necho": ("/bin/bash", "-e -x"),
        "#!/usr/bin/env python3": ("/usr/bin/env", "python3"),
        "#!\nx": (),
    }

    assert {source: interpreter_words(source) for source in cases} == cases


def test_words_to_run() -> None:
    words = [
        command_words(a_spec(argv=("a", "b c")), "", "", "/r"),
        command_words(a_spec(script="pass"), "/s/x.py", "/py", "/r"),
        command_words(a_spec(script="#!/bin/sh -e\n"), "/s/x", "/py", "/r"),
    ]

    assert words == [(b"a", b"b c"), (b"/py", b"-u", b"/r", b"/s/x.py"), (b"/bin/sh", b"-e", b"/s/x")]
