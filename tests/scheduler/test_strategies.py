"""Which nodes are taken, of those that would do: each strategy drawn as a small cluster; and which GPUs of a
node.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import Part
from mgpu_jupyter.model.settings import Scheduling
from mgpu_jupyter.scheduler import books
from mgpu_jupyter.scheduler.events import StateRecovered
from mgpu_jupyter.scheduler.model import Load, Policy
from mgpu_jupyter.scheduler.placement import fit
from mgpu_jupyter.scheduler.placement.shape import shape_of
from mgpu_jupyter.scheduler.placement.slots import Promised, Slot
from mgpu_jupyter.scheduler.placement.strategies import Candidate, Wanted, by_topology
from mgpu_jupyter.scheduler.standing import NodeHealth
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import Cluster, a_gpu, a_spec, facts


def nodes_of(job) -> list[str]:
    return [placement.node_id for placement in job.placements]


def test_fill_first_takes_the_tightest_node():
    cluster = Cluster(("n1", 4), ("n2", 2), ("n3", 1))

    assert [nodes_of(cluster.started(gpus=gpus)) for gpus in (1, 2, 1)] == [["n3"], ["n2"], ["n1"]]


def test_spread_takes_the_emptiest_and_among_equals_the_least_measured_load():
    cluster = Cluster(("n1", 4), ("n2", 4), ("n3", 4))
    for name, load in (
        ("n1", Load(gpu_percent=90.0)),
        ("n2", Load(cpu_percent=10.0)),
        ("n3", Load(gpu_percent=50.0)),
    ):
        node = cluster.state.nodes[NodeId(name)]
        node.load = load
        books.refresh(cluster.state, node)

    assert [nodes_of(cluster.started(policy="spread")) for _ in range(4)] == [["n2"], ["n3"], ["n1"], ["n2"]]


def test_recent_failures_count_as_load():
    cluster = Cluster(("n1", 4), ("n2", 4))
    cluster.state.nodes[NodeId("n1")].health = NodeHealth(failures=1)
    books.refresh(cluster.state, cluster.state.nodes[NodeId("n1")])

    assert nodes_of(cluster.started(policy="spread")) == ["n2"]


def test_round_robin_goes_on_where_it_was_also_after_a_restart():
    cluster = Cluster(
        ("n1", 4), ("n2", 4), ("n3", 4), policy=Policy(scheduling=Scheduling(strategy="round_robin"))
    )

    assert [nodes_of(cluster.started()) for _ in range(2)] == [["n1"], ["n2"]]

    after = Cluster(policy=Policy(scheduling=Scheduling(strategy="round_robin")))
    after.tell(StateRecovered(at=5.0, memos=cluster.memos))
    for name in ("n1", "n2", "n3"):
        after.join(name)
    assert [nodes_of(after.started()) for _ in range(2)] == [["n3"], ["n1"]]
    assert nodes_of(after.started(nodes=2, gpus_per_node=1)) == ["n2", "n3"]


def test_jobs_without_gpus_keep_off_gpu_nodes_when_they_can():
    cluster = Cluster(("gpu1", 4), ("cpu1", 0), ("gpu2", 1))

    assert nodes_of(cluster.started(gpus=0, cpus=4)) == ["cpu1"]
    assert nodes_of(cluster.started(gpus=0, cpus=4, policy="spread")) == ["cpu1"]
    # The node that has the fewest GPUs to lose comes next.
    assert nodes_of(cluster.started(gpus=0, cpus=4)) == ["gpu2"]


def test_preferred_nodes_come_first_and_are_replaced_when_they_cannot():
    cluster = Cluster(("n1", 1), ("n2", 4))

    assert [nodes_of(cluster.started(prefer=("n2",), gpus=4)), nodes_of(cluster.started(prefer=("n2",)))] == [
        ["n2"],
        ["n1"],
    ]


def test_a_strategy_of_ones_own_sees_values_and_orders_names():
    seen: list[object] = []

    def last_first(wanted, candidates):
        seen.append((wanted, [one.node_id for one in candidates]))
        assert all(isinstance(one, Candidate) for one in candidates)
        return ["nowhere", *reversed([one.node_id for one in candidates])]

    cluster = Cluster(("n1", 4), ("n2", 4), ("n3", 4))
    own = {"last_first": last_first, "broken": lambda wanted, candidates: 1 / 0}
    cluster.state.site.own.update(own)

    assert nodes_of(cluster.started(policy="last_first", nodes=2, gpus_per_node=2, cpus=1)) == ["n3", "n2"]
    assert seen == [(Wanted(2, 2, 1, 0), ["n1", "n2", "n3"])]
    assert nodes_of(cluster.started(policy="broken")) == ["n2"]
    assert ClusterState(strategies=own).site.own == own


# --- topology: two racks, two switches each, three nodes on each switch -------------------------------

MAP = {
    f"r{rack}s{switch}n{node}": (f"r{rack}", f"s{switch}")
    for rack in (1, 2)
    for switch in (1, 2)
    for node in (1, 2, 3)
}

CASES = [
    # The picture shows free nodes as o and busy ones as #, switch by switch: rack 1 | rack 2.
    ("ooo ooo | ooo ooo", 3, ["r1s1", "r1s1", "r1s1"]),
    ("oo# ooo | ooo ooo", 3, ["r1s2", "r1s2", "r1s2"]),
    ("ooo ooo | ooo oo#", 2, ["r2s2", "r2s2"]),
    ("oo# ##o | oo# o##", 2, ["r1s1", "r1s1"]),
    ("oo# o## | oo# oo#", 3, ["r1s1", "r1s1", "r1s2"]),
    ("oo# o## | oo# oo#", 4, ["r2s1", "r2s1", "r2s2", "r2s2"]),
    ("ooo oo# | ooo oo#", 4, ["r1s1", "r1s1", "r1s1", "r1s2"]),
    ("ooo o## | ooo oo#", 5, ["r2s1", "r2s1", "r2s1", "r2s2", "r2s2"]),
    ("ooo o## | oo# o##", 6, ["r1s1", "r1s1", "r1s1", "r1s2", "r2s1", "r2s1"]),
]


@pytest.mark.parametrize("rules", [{}, {"constraint": "rack"}, {"prefer": ("r9",)}, {"cpus": 1}])
@pytest.mark.parametrize("strategy", ["topology", "fill_first"])
@pytest.mark.parametrize(("picture", "wanted", "switches"), CASES)
def test_nodes_that_are_equal_are_of_one_switch_else_one_rack_else_few(
    picture, wanted, switches, strategy, rules
):
    """The default strategy does so, too, however it looks for them."""
    cluster = Cluster(policy=Policy(scheduling=Scheduling(strategy=strategy)))
    for (name, (rack, switch)), sign in zip(
        MAP.items(), (sign for sign in picture if sign in "o#"), strict=True
    ):
        cluster.join(name, 8, rack=rack, switch=switch)
        if sign == "#":
            cluster.started(nodelist=(name,), gpus=8)

    job = cluster.started(nodes=wanted, gpus_per_node=8, **rules)

    assert sorted(node[:4] for node in nodes_of(job)) == switches


def test_four_nodes_land_on_one_switch_when_one_has_room():
    """The case of the acceptance list, with four nodes on each of four switches."""
    cluster = Cluster(policy=Policy(scheduling=Scheduling(strategy="topology")))
    for number in range(16):
        cluster.join(f"n{number:02d}", 8, rack=f"r{number // 8}", switch=f"s{number // 4}")
    for busy in ("n00", "n05", "n09"):
        cluster.started(nodelist=(busy,), gpus=1)

    on_one_switch = cluster.started(nodes=4, gpus_per_node=8)
    on_one_rack = cluster.started(nodes=4, gpus_per_node=8)

    assert nodes_of(on_one_switch) == ["n12", "n13", "n14", "n15"]
    assert sorted(nodes_of(on_one_rack)) == ["n01", "n02", "n03", "n04"]


def on_switches(**nodes: tuple[int, str, str]) -> Cluster:
    """Return a cluster of nodes with so many GPUs each, in a rack and on a switch."""
    cluster = Cluster()
    for name, (gpus, rack, switch) in nodes.items():
        cluster.join(name, gpus, rack=rack, switch=switch)
    return cluster


@pytest.mark.parametrize("rules", [{}, {"prefer": ("n9",)}])
def test_by_default_tight_nodes_come_first_and_place_decides_among_equals(rules):
    cluster = on_switches(
        a=(4, "r1", "s1"), b=(2, "r2", "s2"), c=(4, "r1", "s1"), d=(4, "r2", "s3"), e=(4, "r2", "s2")
    )
    assert nodes_of(cluster.started(nodes=2, gpus_per_node=2, **rules)) == ["b", "e"]
    cluster = on_switches(a=(4, "r1", "s1"), b=(2, "r2", "s2"), c=(4, "", ""), d=(4, "r2", "s3"))
    assert nodes_of(cluster.started(nodes=2, gpus_per_node=2, **rules)) == ["b", "d"]
    assert nodes_of(cluster.started(nodes=3, gpus_per_node=2, **rules)) == ["d", "a", "c"]


def test_unlike_parts_are_placed_near_each_other():
    cluster = on_switches(a=(2, "r1", "s1"), b=(2, "r2", "s2"), c=(8, "r2", "s2"))
    job = cluster.started(nodes=2, parts=(Part(gpus=8), Part(gpus=2)))
    assert sorted(nodes_of(job)) == ["b", "c"]


def test_who_ends_in_time_goes_to_promised_nodes_before_those_that_are_near():
    cluster = on_switches(a=(2, "r1", "s1"), b=(2, "r1", "s1"), c=(2, "r2", "s2"), d=(2, "r2", "s3"))
    pool = cluster.state.pool
    for name in ("c", "d"):
        need = shape_of(a_spec(gpus=2)).groups[0].need
        pool.promise(pool.slots[NodeId(name)], Promised(need, 100.0, 200.0, (0, 0, 0, 0), exact=False))
    shape = shape_of(a_spec(nodes=2, gpus_per_node=1), strategy="fill_first")
    finder = fit.Finder(pool, {})
    assert [slot.id for slot, _ in finder.find(shape, 50.0) or ()] == ["c", "d"]
    assert [slot.id for slot, _ in finder.find(shape, 150.0) or ()] == ["a", "b"]


def test_nodes_of_unknown_place_are_taken_like_any_other():
    cluster = Cluster(("n1", 2), ("n2", 1))
    slots = list(cluster.state.pool.slots.values())

    assert [slot.id for slot in by_topology(slots, 1)] == ["n2", "n1"]
    assert [slot.id for slot in by_topology(slots, 2)] == ["n2", "n1"]


# --- GPUs within a node -------------------------------------------------------------------------------


def linked(*pairs: tuple[int, int], count: int = 8) -> Slot:
    links: dict[int, dict[str, int]] = {index: {} for index in range(count)}
    for one, other in pairs:
        links[one][f"GPU-n1-{other}"] = links[other][f"GPU-n1-{one}"] = 4
    cluster = Cluster()
    cluster.join(
        "n1", gpus=tuple(replace(a_gpu("n1", index), nvlinks=links[index]) for index in range(count))
    )
    return cluster.state.pool.slots[NodeId("n1")]


def bits(mask: int) -> list[int]:
    return [bit for bit in range(mask.bit_length()) if mask >> bit & 1]


def test_without_nvlink_the_lowest_gpus_are_taken():
    cluster = Cluster(("n1", 4))
    slot = cluster.state.pool.slots[NodeId("n1")]

    assert [bits(fit.pick(slot, 0b1110, wanted)) for wanted in (0, 1, 2, 3)] == [[], [1], [1, 2], [1, 2, 3]]


def test_gpus_that_nvlink_joins_are_taken_together_and_whole_islands_are_left():
    slot = linked((0, 1), (2, 3), (3, 4), (2, 4), (5, 6))

    assert bits(fit.pick(slot, 0b11111111, 2)) == [0, 1]
    assert bits(fit.pick(slot, 0b11111111, 3)) == [2, 3, 4]
    assert bits(fit.pick(slot, 0b11100101, 2)) == [5, 6]
    assert bits(fit.pick(slot, 0b11111111, 1)) == [0]


def test_many_gpus_are_grown_into_a_group():
    ring = linked(*((index, index + 1) for index in range(8, 15)), count=16)

    assert bits(fit.pick(ring, (1 << 16) - 1, 8)) == list(range(8, 16))


@pytest.mark.parametrize(("count", "wanted", "ways"), [(8, 4, 70), (14, 7, 3432), (16, 8, 0), (15, 7, 0)])
def test_all_ways_are_tried_only_where_they_are_not_too_many(monkeypatch, count, wanted, ways):
    tried = 0

    def counted(found, size):
        nonlocal tried
        for group in combinations(found, size):
            tried += size == wanted
            yield group

    slot = linked(*((index, index + 1) for index in range(count - 1)), count=count)
    monkeypatch.setattr(fit, "combinations", counted)
    picked = bits(fit.pick(slot, (1 << count) - 1, wanted))

    assert (picked, tried) == (list(range(wanted)), ways)


def test_links_to_gpus_that_are_not_there_count_nothing():
    cluster = Cluster()
    cluster.join(
        "n1", gpus=(replace(a_gpu("n1", 0), nvlinks={"GPU-gone": 4}), a_gpu("n1", 1), a_gpu("n1", 2))
    )

    assert bits(fit.pick(cluster.state.pool.slots[NodeId("n1")], 0b111, 2)) == [0, 1]
    assert facts("n1", 1).gpus == (a_gpu("n1", 0),)
