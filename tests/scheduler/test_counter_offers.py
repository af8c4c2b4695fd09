"""Which small changes are offered, how they are said, and in which order: each case by hand."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuTrouble, Trouble
from mgpu_jupyter.model.explanations import Offer
from mgpu_jupyter.model.job import JobSpec, Part
from mgpu_jupyter.model.settings import Partition, Planning, Scheduling, Weights
from mgpu_jupyter.scheduler.events import GpusChanged, NodeJoined
from mgpu_jupyter.scheduler.explain import offers as offering
from mgpu_jupyter.scheduler.explain.changes import applied, changes_of, clock
from mgpu_jupyter.scheduler.explain.offers import AskedOffer, offers_for
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot
from mgpu_jupyter.scheduler.model import Policy
from tests.builders import Cluster, a_spec, facts

GIB = 1 << 30


def a_cluster(*nodes: tuple[str, int], **settings: object) -> Cluster:
    planning = Planning(weights=Weights(duration=0.0, fair_share=0.0), learn=False)
    return Cluster(*nodes, policy=Policy(scheduling=Scheduling(planning=planning, **settings)))


def offered(cluster: Cluster, **spec: object) -> tuple[Offer, ...]:
    return offers_for(StateSnapshot(cluster.state, 2.0), AskedOffer(user="ann", spec=a_spec(**spec)))


def texts(cluster: Cluster, **spec: object) -> list[str]:
    return [offer.text for offer in offered(cluster, **spec)]


def join(cluster: Cluster, name: str, gpus: int = 4, **changes: object) -> None:
    gpu = {key: changes.pop(key) for key in ("name", "memory_bytes") if key in changes}
    plain = facts(name, gpus)
    plain = replace(plain, gpus=tuple(replace(one, **gpu) for one in plain.gpus), **changes)
    cluster.tell(NodeJoined(at=0.0, node_id=NodeId(name), facts=plain))


def block(cluster: Cluster, node: str, *indices: int) -> None:
    troubles = {f"GPU-{node}-{index}": GpuTrouble(Trouble.OUTSIDE, "Busy.") for index in indices}
    cluster.tell(GpusChanged(at=1.0, node_id=NodeId(node), troubles=troubles))


def test_fewer_gpus_another_split_and_fewer_nodes():
    cluster = a_cluster(("n1", 3), ("n2", 2))
    assert texts(cluster, gpus=4) == ["2 nodes × 2 GPUs instead of 1 × 4", "3 GPUs instead of 4"]
    assert texts(cluster, nodes=2, gpus_per_node=3) == [
        "2 nodes × 2 GPUs instead of 2 × 3",
        "1 node × 3 GPUs instead of 2 × 3",
    ]
    assert texts(cluster, nodes=3, gpus_per_node=1) == [
        "1 node × 3 GPUs instead of 3 × 1",
        "2 nodes × 1 GPU instead of 3 × 1",
    ]


def test_fewer_nodes_with_fewer_gpus_when_neither_is_enough():
    cluster = a_cluster(("n1", 2), ("n2", 1), ("n3", 0))
    assert texts(cluster, nodes=3, gpus_per_node=4) == ["2 nodes × 1 GPU instead of 3 × 4"]
    assert texts(cluster, nodes=10_000, gpus_per_node=2) == ["1 node × 2 GPUs instead of 10000 × 2"]
    wide = a_cluster(*((f"n{number:02}", 1) for number in range(20)))
    fewer = [
        change.patch["nodes"]
        for change in changes_of(wide.state, a_spec(nodes=30), 60.0)
        if change.family == "nodes"
    ]
    assert fewer == [20, 19, 18, 17, 16, 15, 14, 13, 6, 3, 1]


def test_nobody_is_offered_no_gpu_at_all():
    cluster = a_cluster(("n1", 0), ("n2", 0))
    assert texts(cluster, gpus=2) == []
    assert texts(cluster, gpus=0, nodes=3) == ["2 nodes × 0 GPUs instead of 3 × 0"]


def test_excluded_nodes_one_by_one_then_all():
    cluster = a_cluster(("n1", 1), ("n2", 1))
    assert texts(cluster, exclude=("n1", "n2")) == ["without --exclude n1"]
    assert texts(cluster, nodes=2, exclude=("n1", "n2"))[0] == "without --exclude"
    (offer,) = offered(cluster, exclude=("n1", "n2"))
    assert (offer.flags, offer.patch) == (("without --exclude n1",), {"exclude": ("n2",)})


def test_named_nodes_become_preferred_ones():
    cluster = a_cluster(("n1", 1), ("n2", 2))
    (offer,) = offered(cluster, gpus=2, nodelist=("n1",), nodes=1)[:1]
    assert offer.text == "--prefer n1 instead of --nodelist n1"
    assert offer.patch == {"nodelist": (), "prefer": ("n1",), "nodes": 1}
    assert [place.node for place in offer.where] == ["n2"]


def test_what_a_gpu_or_a_node_must_be():
    cluster = a_cluster()
    join(cluster, "n1", memory_bytes=24 * GIB, labels={"old": ""})
    assert texts(cluster, gpu_type="h100") == ["without --gpu-type"]
    assert texts(cluster, gpu_mem_bytes=40 * GIB) == ["--gpu-mem 24G instead of 40G"]
    assert texts(cluster, constraint="fast") == ["without --constraint"]
    assert texts(cluster, arch="aarch64") == ["without --arch"]
    assert texts(cluster, constraint="fast", gpu_type="h100") == [
        "without --gpu-type and without --constraint"
    ]
    assert texts(cluster, constraint="fast", gpu_type="h100", arch="aarch64") == []


def test_partitions():
    partitions = {
        "small": Partition(nodes=("n1",), default=True),
        "large": Partition(nodes=("n2",)),
        "all": Partition(max_gpus=1),
    }
    cluster = a_cluster(("n1", 1), ("n2", 4), partitions=partitions)
    assert texts(cluster, gpus=4)[:1] == ["-p large"]
    assert texts(cluster, gpus=4, partition="small")[:1] == ["-p large instead of small"]
    assert texts(cluster, gpus=1, nodelist=("n1",), partition="large") == [
        "--prefer n1 instead of --nodelist n1",
        "-p small instead of large",
    ]


def test_what_the_site_refuses_is_not_offered():
    partitions = {"small": Partition(nodes=("n1",), default=True), "all": Partition(max_gpus=3)}
    cluster = a_cluster(("n1", 1), ("n2", 4), partitions=partitions)
    assert texts(cluster, gpus=4) == ["1 GPU instead of 4"]


def test_other_gpus_than_exactly_these():
    cluster = a_cluster(("n1", 4))
    block(cluster, "n1", 0)
    assert offered(cluster, gpu_ids=(0, 1)) == (
        Offer(
            text="--gpu-ids 1,2 instead of 0,1",
            flags=("--gpu-ids 1,2",),
            patch={"gpu_ids": (1, 2)},
            where=offered(cluster, gpu_ids=(0, 1))[0].where,
        ),
    )
    assert texts(cluster, gpu_ids=(0, 9), nodelist=("n1", "n9"), nodes=1) == ["--gpu-ids 1,2 instead of 0,9"]
    assert texts(cluster, gpu_ids=(9,), home="elsewhere") == ["--gpu-ids 1 instead of 9"]
    block(cluster, "n1", 0, 1, 2, 3)
    cluster.join("n2", 1)
    assert texts(cluster, gpu_ids=(0,), home="host-n1") == ["any 1 GPU instead of --gpu-ids 0"]


def test_other_gpus_of_the_same_nodes_or_any():
    cluster = a_cluster(("n1", 2), ("n2", 2))
    block(cluster, "n1", 0)
    assert texts(cluster, node_gpu_ids={"n1": (0,), "n2": (0,)}) == ['--node-gpu-ids "n1:1;n2:0" instead']
    block(cluster, "n1", 0, 1)
    cluster.join("n3", 1)
    assert texts(cluster, node_gpu_ids={"n1": (0,), "n9": (0,)}) == [
        "--nodes 2 --gpus-per-node 1 --prefer n1,n9 instead of --node-gpu-ids"
    ]
    assert texts(cluster, node_gpu_ids={"n1": (0,), "n2": (0, 1)}) == []


def test_cores_and_memory():
    cluster = a_cluster(("n1", 4), ("n2", 4))
    cluster.started(gpus=1, cpus=3, mem_per_node_bytes=10 * GIB + 5, nodelist=("n1",))
    cluster.started(gpus=1, cpus=8, mem_per_node_bytes=64 * GIB - (5 << 20), nodelist=("n2",))
    assert texts(cluster, gpus=3, cpus=6) == ["5 CPUs instead of 6"]
    assert texts(cluster, nodes=2, gpus_per_node=3, cpus=6) == ["without --cpus"]
    assert texts(cluster, gpus=3, mem_per_node_bytes=60 * GIB) == ["53G of memory instead of 60G"]
    assert texts(cluster, nodes=2, gpus_per_node=3, mem_per_node_bytes=60 * GIB) == [
        "5M of memory instead of 60G"
    ]
    small = replace(facts("n1", 4), cpus=0, memory_bytes=100)
    other = a_cluster()
    other.tell(NodeJoined(at=0.0, node_id=NodeId("n1"), facts=small))
    assert texts(other, cpus=2) == ["without --cpus"]
    assert texts(other, mem_per_node_bytes=1000) == ["without --mem-per-node"]


def test_parts_together_or_apart():
    cluster = a_cluster(("n1", 2), ("n2", 2))
    two = (Part(gpus=2), Part(gpus=2))
    assert texts(cluster, parts=two) == ["its 2 parts on 2 nodes instead of 1"]
    assert texts(a_cluster(("n1", 4)), parts=two, nodes=2) == ["its 2 parts on 1 node instead of 2"]
    assert texts(cluster, parts=(Part(gpus=1, arch="aarch64"),)) == ["without the architecture"]


def test_a_shorter_limit_ends_before_what_is_promised():
    cluster = a_cluster(("n1", 4))
    cluster.started(gpus=3, time_limit_s=7200.0)
    cluster.submit(gpus=4, user="bob")
    cluster.schedule()
    (offer,) = offered(cluster, gpus=1, time_limit_s=90_000.0)
    assert (offer.text, offer.patch) == ("a time limit of 01:59:00 (-t 01:59:00)", {"time_limit_s": 7140.0})
    assert clock(90_061) == "1-01:01:01"


def test_a_limit_that_the_site_allows():
    cluster = a_cluster(("n1", 4), partitions={"short": Partition(max_time_s=60.0, default=True)})
    assert texts(cluster, time_limit_s=100.0) == ["a time limit of 00:01:00 (-t 00:01:00)"]


def test_without_hold_and_begin():
    cluster = a_cluster(("n1", 4))
    assert texts(cluster, hold=True) == ["without --hold"]
    assert texts(cluster, begin_at=100.0) == ["without --begin"]
    assert texts(cluster, begin_at=100.0, hold=True) == ["without --hold and without --begin"]


def test_a_job_that_runs_without_end_loses_half_by_a_limit():
    cluster = a_cluster(("n1", 4))
    cluster.started(gpus=3, time_limit_s=7200.0)
    cluster.submit(gpus=4, user="bob")
    cluster.schedule()
    (change,) = [one for one in changes_of(cluster.state, a_spec(), float("inf")) if one.family == "time"]
    assert change.loss == 0.5


def test_at_most_five_offers_the_least_loss_first():
    partitions = {"a": Partition(nodes=("n1",)), "b": Partition(nodes=("n2",))}
    cluster = a_cluster(("n1", 4), partitions=partitions)
    spec = {"exclude": ("n1",), "nodelist": ("n2",), "nodes": 1, "wait_for_nodes": True}
    changes = changes_of(cluster.state, a_spec(**spec), 60.0)
    assert [change.loss for change in changes] == sorted(change.loss for change in changes)
    assert texts(cluster, **spec) == ["without --exclude n1 and --prefer n2 instead of --nodelist n2"]
    many = a_cluster(("n1", 2), ("n2", 4), ("n3", 3))
    block(many, "n2", 0)
    many.started(gpus=1, nodelist=("n1",))
    wide = {"gpus": 4, "gpu_mem_bytes": 24 * GIB, "cpus": 1, "exclude": ("n9",), "wait_for_nodes": True}
    assert texts(many, **wide) == ["2 nodes × 2 GPUs instead of 1 × 4", "3 GPUs instead of 4"]


def test_the_effort_is_bounded(monkeypatch: pytest.MonkeyPatch):
    cluster = a_cluster(*((f"n{number}", 1) for number in range(4)))
    monkeypatch.setattr(offering, "MAX_OFFERS", 1)
    assert len(offered(cluster, gpus=4)) == 1
    monkeypatch.setattr(offering._Search, "_try", lambda search, asked: setattr(search, "_looks", 0))
    assert offered(cluster, gpus=4) == ()


def test_an_offer_can_be_sent_as_json():
    cluster = a_cluster(("n1", 3))
    (offer,) = offered(cluster, gpus=4, gpus_per_node=4)
    spec = a_spec(gpus=4, gpus_per_node=4)
    changed = msgspec.convert({**msgspec.to_builtins(spec), **msgspec.to_builtins(offer.patch)}, JobSpec)
    (change,) = [one for one in changes_of(cluster.state, spec, 60.0) if one.text == offer.text]
    assert changed == applied(spec, (change,)) == a_spec(gpus=3)
