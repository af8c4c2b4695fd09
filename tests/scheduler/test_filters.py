"""Which check keeps a node out, in which order, and what it says."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.model import GpuTrouble
from mgpu_jupyter.model.settings import Lists
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import GpusChanged, NodeSilent
from mgpu_jupyter.scheduler.placement.filters import Exclusion, never, not_now, room
from mgpu_jupyter.scheduler.placement.shape import Shape, shape_of
from mgpu_jupyter.scheduler.standing import NodeOrders
from tests.builders import Cluster, a_gpu, a_spec

BIG = replace(a_gpu("n1", 2), name="NVIDIA H100 80GB", memory_bytes=80 << 30)


def a_cluster() -> Cluster:
    cluster = Cluster()
    gpus = (a_gpu("n1", 0), a_gpu("n1", 1), BIG)
    cluster.join("n1", cpus=8, labels={"fast": "", "rack": "r1"}, gpus=gpus)
    return cluster


def shape(**spec: object) -> Shape:
    return shape_of(a_spec(**spec), partition=str(spec.get("partition", "")), user="bob", account="lab")


NEVER = [
    ({"exclude": ("n1",)}, "named", "It is excluded by --exclude."),
    ({"nodelist": ("n2",)}, "named", "It is not in --nodelist."),
    ({"node_gpu_ids": {"n2": (0,)}}, "named", "This part is for n2 only."),
    ({"partition": "gold"}, "partition", "It is not in the partition gold."),
    ({"arch": "aarch64"}, "arch", "It is x86_64, not aarch64."),
    ({"constraint": "slow"}, "constraint", "Its labels (fast, rack=r1) do not satisfy --constraint."),
    ({"gpu_type": "A100"}, "gpu-kind", "It has 0 A100 GPUs, 1 is needed."),
    ({"gpu_type": "h100", "gpus": 2}, "gpu-kind", "It has 1 H100 GPU, 2 are needed."),
    ({"gpu_mem_bytes": 40 << 30, "gpus": 2}, "gpu-kind", "It has 1 GPU with 40 GiB, 2 are needed."),
    ({"gpus": 4, "gpu_type": "h100"}, "size", "It has 3 GPUs, 4 are needed."),
    ({"gpu_ids": (0, 7)}, "size", "It has no GPU 7."),
    ({"cpus": 9}, "size", "It has 8 CPUs, 9 are needed."),
    ({"mem_per_node_bytes": 65 << 30}, "size", "It has 64 GiB of memory, 65 GiB are needed."),
]


@pytest.mark.parametrize(("spec", "code", "text"), NEVER)
def test_what_no_change_of_load_can_help(spec, code, text):
    cluster = a_cluster()
    asked = shape(**spec)

    answer = never(
        cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules, cluster.state.pool.homes
    )

    assert answer == Exclusion(code, text)
    assert cluster.state.pool.capable(asked.rules, asked.groups[0].need) == frozenset()


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"gpus": 3},
        {"gpu_type": "h100", "gpu_mem_bytes": 80 << 30},
        {"gpus": 0, "gpu_type": "a100"},
        {"constraint": "fast&rack=r1"},
        {"arch": "x86_64"},
        {"gpu_ids": (2, 0)},
        {"nodelist": ("n1",)},
        {"cpus": 8, "mem_per_node_bytes": 64 << 30},
    ],
)
def test_what_it_could_serve(spec):
    cluster = a_cluster()
    asked = shape(**spec)

    assert (
        never(cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules, cluster.state.pool.homes)
        is None
    )
    assert not_now(cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules) is None
    assert cluster.state.pool.capable(asked.rules, asked.groups[0].need) == frozenset({"n1"})


def test_gpu_ids_without_a_node_mean_the_submitting_machine_when_it_is_one():
    cluster = Cluster(("n1", 2), ("n2", 2))
    asked, elsewhere = shape(gpu_ids=(0,), home="host-n2"), shape(gpu_ids=(0,), home="laptop")

    answer = never(
        cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules, cluster.state.pool.homes
    )

    assert answer == Exclusion(
        "named", "--gpu-ids without a node means GPUs of host-n2, where this was submitted."
    )
    assert cluster.state.pool.capable(asked.rules, asked.groups[0].need) == frozenset({"n2"})
    assert cluster.state.pool.capable(elsewhere.rules, elsewhere.groups[0].need) == frozenset({"n1", "n2"})


@pytest.mark.parametrize(
    ("lists", "let_in"),
    [
        (Lists(), True),
        (Lists(allow_users=("ann",)), False),
        (Lists(allow_users=("ann", "bob")), True),
        (Lists(allow_accounts=("lab",)), True),
        (Lists(deny_users=("bob",), allow_accounts=("lab",)), False),
        (Lists(deny_accounts=("lab",)), False),
    ],
)
def test_who_may_not_use_a_node_is_told_so(lists, let_in):
    cluster = a_cluster()
    node = cluster.state.nodes["n1"]
    set_lists(node, lists)
    books.refresh(cluster.state, node)
    asked = shape()

    answer = never(
        cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules, cluster.state.pool.homes
    )

    text = "bob under the account lab may not use it: ask an administrator to allow it."
    assert answer == (None if let_in else Exclusion("permission", text))
    assert cluster.state.pool.is_restricted == bool(lists)


def set_lists(node, lists):
    node.orders = NodeOrders(lists=lists)


def test_a_user_without_an_account_is_named_alone():
    cluster = a_cluster()
    set_lists(cluster.state.nodes["n1"], Lists(allow_users=("ann",)))
    books.refresh(cluster.state, cluster.state.nodes["n1"])
    asked = shape_of(a_spec(), user="bob")

    answer = never(cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules, ())

    assert answer == Exclusion("permission", "bob may not use it: ask an administrator to allow it.")


NOT_NOW = [
    ({"gpus": 3}, "gpus", "1 GPU free, 3 needed. GPU 1: In use by pid 8."),
    ({"gpu_type": "test", "gpus": 2}, "gpus", "0 GPUs free, 2 needed. GPU 1: In use by pid 8."),
    ({"gpu_ids": (0, 2)}, "exact-gpus", "GPU 0 is held by job JOB00001."),
    ({"gpu_ids": (1,)}, "exact-gpus", "GPU 1: In use by pid 8."),
    ({"gpus": 0, "cpus": 7}, "cpus", "6 CPUs free, 7 needed."),
    ({"gpus": 0, "mem_per_node_bytes": 60 << 30}, "memory", "54 GiB of memory free, 60 GiB needed."),
]


@pytest.mark.parametrize(("spec", "code", "text"), NOT_NOW)
def test_what_must_be_waited_for(spec, code, text):
    cluster = a_cluster()
    cluster.started(gpu_ids=(0,), cpus=2, mem_per_node_bytes=10 << 30)
    cluster.tell(
        GpusChanged(at=3.0, node_id="n1", troubles={"GPU-n1-1": GpuTrouble("outside", "In use by pid 8.")})
    )
    asked = shape(**spec)
    slot, need = cluster.state.pool.slots["n1"], asked.groups[0].need

    assert not_now(slot, need, asked.rules) == Exclusion(code, text)
    assert room(slot, need, asked.rules) == -1


def test_a_node_that_is_away_is_said_first():
    cluster = a_cluster()
    cluster.tell(NodeSilent(at=3.0, node_id="n1", reason="Nothing heard."))
    asked = shape(gpus=3)

    assert not_now(cluster.state.pool.slots["n1"], asked.groups[0].need, asked.rules) == Exclusion(
        "state", "It is suspect."
    )


def test_room_is_the_bits_that_would_do():
    cluster = a_cluster()
    slot = cluster.state.pool.slots["n1"]
    masks = [
        room(slot, asked.groups[0].need, asked.rules)
        for asked in (shape(), shape(gpu_type="h100"), shape(gpu_ids=(0, 2)))
    ]

    assert masks == [0b111, 0b100, 0b101]


def test_rack_and_switch_count_as_labels_unless_a_label_says_otherwise():
    cluster = Cluster()
    cluster.join("n1", rack="r2", switch="s1", labels={"switch": "s9"})

    assert cluster.state.nodes["n1"].labels == {"rack": "r2", "switch": "s9"}
    assert cluster.state.pool.slots["n1"].labels == {"rack": "r2", "switch": "s9"}
