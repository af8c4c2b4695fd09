"""What a request means: how many units, and what each asks of its node."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.units import Group, Need, Unit, gpus_of, groups_of, groups_of_request, units_of


def _spec(**fields: object) -> JobSpec:
    return msgspec.convert({"command": ["true"], **fields}, JobSpec)


@pytest.mark.parametrize(
    ("fields", "gpus_of_each_unit"),
    [
        ({}, [1]),
        ({"gpus": 0}, [0]),
        ({"gpus": 4}, [4]),
        ({"nodes": 2}, [1, 1]),
        ({"nodes": 2, "gpus": 4}, [2, 2]),
        ({"nodes": 2, "gpus": 0}, [0, 0]),
        ({"nodes": 2, "gpus_per_node": 3}, [3, 3]),
        ({"nodes": 2, "gpus_per_node": 3, "gpus": 6}, [3, 3]),
        ({"gpus_per_node": 3}, [3]),
        ({"nodelist": ["a", "b", "c"]}, [1, 1, 1]),
        ({"nodelist": ["a", "b", "c"], "nodes": 2}, [1, 1]),
        ({"nodelist": ["a", "b", "c"], "gpus": 6}, [2, 2, 2]),
        ({"nodelist": ["a"], "nodes": 1, "gpus_per_node": 0}, [0]),
    ],
)
def test_units(fields: dict[str, object], gpus_of_each_unit: list[int]) -> None:
    expected = tuple(Unit(index=index, gpus=gpus, cpus=0) for index, gpus in enumerate(gpus_of_each_unit))
    assert units_of(check(_spec(**fields))) == expected


def test_cpus_are_for_each_node() -> None:
    assert units_of(_spec(nodes=2, cpus=8)) == (Unit(index=0, gpus=1, cpus=8), Unit(index=1, gpus=1, cpus=8))


@given(nodes=st.integers(1, 50), per_node=st.integers(0, 16))
def test_total_and_per_node_mean_the_same(nodes: int, per_node: int) -> None:
    by_total = units_of(_spec(nodes=nodes, gpus=nodes * per_node))
    by_node = units_of(_spec(nodes=nodes, gpus_per_node=per_node))
    assert by_total == by_node == tuple(Unit(index=index, gpus=per_node, cpus=0) for index in range(nodes))


def test_what_holds_for_each_node() -> None:
    spec = _spec(nodes=2, cpus=8, mem_per_node_bytes=2**30, arch="aarch64")
    assert units_of(spec) == tuple(
        Unit(index=index, gpus=1, cpus=8, mem_bytes=2**30, arch="aarch64") for index in range(2)
    )


# --- exactly these GPUs ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "count"),
    [
        ({}, 1),
        ({"gpus": 2}, 1),
        ({"nodelist": ["a", "b"]}, 2),
        ({"nodelist": ["a", "b"], "nodes": 1}, 1),
        ({"nodelist": ["a", "b"], "gpus": 4}, 2),
        ({"nodelist": ["a", "b"], "gpus": 2}, 2),
        ({"nodes": 3, "gpus_per_node": 2}, 3),
    ],
)
def test_gpu_ids_are_for_each_node(fields: dict[str, object], count: int) -> None:
    spec = check(_spec(gpu_ids=[3, 0], **fields))
    assert units_of(spec) == tuple(Unit(index=index, gpus=2, gpu_ids=(0, 3)) for index in range(count))


@pytest.mark.parametrize(
    "fields", [{}, {"gpus": 3}, {"nodes": 2}, {"gpus": 3, "nodes": 2, "nodelist": ["n2", "n1"]}]
)
def test_node_gpu_ids_are_a_unit_for_each_node(fields: dict[str, object]) -> None:
    spec = check(
        _spec(node_gpu_ids={"n2": [2], "n1": [1, 0]}, cpus=4, mem_per_node_bytes=5, arch="x86_64", **fields)
    )
    assert units_of(spec) == (
        Unit(index=0, gpus=1, cpus=4, mem_bytes=5, arch="x86_64", gpu_ids=(2,), node=NodeId("n2")),
        Unit(index=1, gpus=2, cpus=4, mem_bytes=5, arch="x86_64", gpu_ids=(0, 1), node=NodeId("n1")),
    )


# --- parts -----------------------------------------------------------------------------------------

PARTS = [
    {"gpus": 1, "cpus": 2, "mem_bytes": 10},
    {"gpus": 2, "cpus": 3, "mem_bytes": 20, "arch": "x86_64"},
    {"cpus": 1},
]


def test_parts_are_summed_on_one_node() -> None:
    assert units_of(check(_spec(parts=PARTS))) == (
        Unit(index=0, gpus=3, cpus=6, mem_bytes=30, arch="x86_64"),
    )
    assert units_of(check(_spec(parts=PARTS[:1], nodes=1))) == (Unit(index=0, gpus=1, cpus=2, mem_bytes=10),)


@pytest.mark.parametrize("fields", [{"nodes": 3}, {"nodelist": ["a", "b", "c"]}])
def test_a_part_for_each_node_with_the_choosiest_first(fields: dict[str, object]) -> None:
    assert units_of(check(_spec(parts=PARTS, **fields))) == (
        Unit(index=0, gpus=2, cpus=3, mem_bytes=20, arch="x86_64"),
        Unit(index=1, gpus=1, cpus=2, mem_bytes=10),
        Unit(index=2, gpus=0, cpus=1),
    )


# --- refusals --------------------------------------------------------------------------------------

MAP_ALONE = "--node-gpu-ids already says which GPUs: leave the other GPU flags out."
MAP_COUNTS = "--node-gpu-ids names 3 GPUs on 2 nodes: leave --gpus and --nodes out."
IDS_COUNT = "--gpu-ids names 2 GPUs on each node: leave --gpus and --gpus-per-node out."
PARTS_ALONE = "The parts say what is asked for: leave gpus, cpus, memory and arch of the whole out."
MAP = {"a": [0, 1], "b": [2]}


@pytest.mark.parametrize(
    ("fields", "code", "message"),
    [
        ({"node_gpu_ids": MAP, "gpu_ids": [0]}, "gpu-contradiction", MAP_ALONE),
        ({"node_gpu_ids": MAP, "gpus_per_node": 1}, "gpu-contradiction", MAP_ALONE),
        ({"node_gpu_ids": MAP, "parts": [{"gpus": 1}]}, "gpu-contradiction", MAP_ALONE),
        ({"node_gpu_ids": MAP, "gpus": 2}, "gpu-contradiction", MAP_COUNTS),
        ({"node_gpu_ids": MAP, "nodes": 3}, "gpu-contradiction", MAP_COUNTS),
        (
            {"node_gpu_ids": {"a": [0, 0]}},
            "gpu-contradiction",
            "--node-gpu-ids names a GPU twice: name each once.",
        ),
        (
            {"node_gpu_ids": MAP, "nodelist": ["a"]},
            "node-contradiction",
            "b is in only one of --node-gpu-ids and --nodelist: leave --nodelist out.",
        ),
        (
            {"node_gpu_ids": MAP, "nodelist": ["a", "b", "c"]},
            "node-contradiction",
            "c is in only one of --node-gpu-ids and --nodelist: leave --nodelist out.",
        ),
        ({"gpu_ids": [0, 1], "gpus": 3}, "gpu-contradiction", IDS_COUNT),
        ({"gpu_ids": [0, 1], "gpus_per_node": 1}, "gpu-contradiction", IDS_COUNT),
        ({"parts": PARTS, "gpus": 3}, "part-contradiction", PARTS_ALONE),
        ({"parts": PARTS, "gpus_per_node": 3}, "part-contradiction", PARTS_ALONE),
        ({"parts": PARTS, "gpu_ids": [0]}, "part-contradiction", PARTS_ALONE),
        ({"parts": PARTS, "cpus": 1}, "part-contradiction", PARTS_ALONE),
        ({"parts": PARTS, "mem_per_node_bytes": 1}, "part-contradiction", PARTS_ALONE),
        ({"parts": PARTS, "arch": "x86_64"}, "part-contradiction", PARTS_ALONE),
        (
            {"parts": PARTS, "nodes": 2},
            "part-contradiction",
            "2 nodes need 2 parts, one for each; there are 3.",
        ),
        (
            {"parts": [{"arch": "x86_64"}, {"arch": "aarch64"}, {"arch": "x86_64"}]},
            "arch-contradiction",
            "Its parts ask for aarch64 and x86_64 on one node: give them one architecture, or --nodes 3.",
        ),
    ],
)
def test_refusals(fields: dict[str, object], code: str, message: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        units_of(_spec(**fields))
    assert (caught.value.code, caught.value.message) == (code, message)


# --- groups ----------------------------------------------------------------------------------------


def test_units_that_need_the_same_are_one_group() -> None:
    units = units_of(
        _spec(nodes=4, parts=[{"gpus": 1}, {"gpus": 2, "cpus": 1, "mem_bytes": 5}, {"gpus": 1}, {"gpus": 1}])
    )
    assert groups_of(units) == (Group(Need(2, 1, 5), 0, 1), Group(Need(1), 1, 3))
    assert groups_of(()) == ()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"nodes": 3, "gpus_per_node": 2, "cpus": 1},
        {"gpu_ids": [1, 0]},
        {"node_gpu_ids": {"a": [0], "b": [1]}},
    ],
)
def test_groups_of_a_request_are_those_of_its_units(fields: dict[str, object]) -> None:
    assert groups_of_request(_spec(**fields)) == groups_of(units_of(_spec(**fields)))


def test_gpus_in_all() -> None:
    assert gpus_of(_spec(nodes=3, gpus_per_node=2)) == 6
    assert gpus_of(_spec(node_gpu_ids=MAP)) == 3


@given(
    st.lists(
        st.builds(dict, gpus=st.integers(0, 3), cpus=st.integers(0, 2), arch=st.sampled_from(["", "x", "y"])),
        min_size=2,
        max_size=8,
    )
)
def test_groups_are_the_units_again(parts: list[dict[str, object]]) -> None:
    units = units_of(_spec(parts=parts, nodes=len(parts)))
    again = [
        (group.need, index)
        for group in groups_of(units)
        for index in range(group.first, group.first + group.count)
    ]
    assert again == [(unit.need, unit.index) for unit in units]
    assert sorted((unit.gpus, unit.cpus, unit.arch) for unit in units) == sorted(
        (part["gpus"], part["cpus"], part["arch"]) for part in parts
    )
