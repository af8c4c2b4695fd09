"""What is taken at submit, given the nodes that are known: refused is only what none of them could ever
run.
"""

from __future__ import annotations

from typing import Any

import pytest

from mgpu_agent.protocol.errors import Conflict
from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import request_bytes
from mgpu_jupyter.model.settings import Account, Partition, Scheduling
from mgpu_jupyter.scheduler.admission import NAME_EARLY, WAIT, Admission, usable_nodes
from mgpu_jupyter.scheduler.events import NodeLeft
from mgpu_jupyter.scheduler.model import Policy
from tests.builders import Cluster, a_spec


def test_with_no_node_known_everything_waits() -> None:
    Admission(Cluster().state).check("ann", a_spec(gpus=9, nodelist=("n1",)))


def test_what_a_node_could_run_if_it_were_free_or_there_is_taken() -> None:
    cluster = Cluster(("n1", 4))
    cluster.started(gpus=4)
    cluster.tell(NodeLeft(at=3.0, node_id=NodeId("n1"), reason="gone"))
    Admission(cluster.state).check("ann", a_spec(gpus=4, nodelist=("n1",)))


def test_whoever_says_so_waits() -> None:
    Admission(Cluster(("n1", 4)).state).check("ann", a_spec(exclude=("n9",), wait_for_nodes=True))
    Admission(Cluster(("n1", 4)).state).check("ann", a_spec(prefer=("n9",)))
    Admission(Cluster(("n1", 4)).state).check("ann", a_spec(gpus=9, wait_for_nodes=True))


def test_requests_of_one_user_that_wait_have_a_bound_together() -> None:
    spec = a_spec(gpus=1)
    size = request_bytes(spec)
    cluster = Cluster(("n1", 4), policy=Policy(scheduling=Scheduling(queued_bytes=3 * size)))
    admission = Admission(cluster.state)
    admission.check("ann", spec, 2)
    admission.check("ann", spec)
    with pytest.raises(Conflict) as refused:
        admission.check("ann", spec)
    has = f"Your requests that wait may have {3 * size} bytes together and have 0; this would add {4 * size}"
    what = "wait until some have started, cancel some, or put scripts into files (limits.user_queued_bytes)."
    assert (refused.value.code, refused.value.message) == ("share-used", f"{has}: {what}")
    Admission(cluster.state).check("bob", spec, 3)


def test_which_nodes_somebody_may_use_is_what_partitions_and_lists_say() -> None:
    scheduling = Scheduling(
        partitions={
            "open": Partition(nodes=("n1", "n2"), default=True),
            "own": Partition(nodes=("n3",), allow_users=("bob",)),
            "lab": Partition(nodes=("n4",), allow_accounts=("lab",)),
        },
        accounts={"all": Account(), "lab": Account(users=("ann",))},
    )
    cluster = Cluster(("n1", 4), ("n2", 0), ("n3", 4), ("n4", 4), policy=Policy(scheduling=scheduling))

    assert {user: sorted(usable_nodes(cluster.state, user)) for user in ("ann", "bob", "eve")} == {
        "ann": ["n1", "n2", "n4"],
        "bob": ["n1", "n2", "n3"],
        "eve": ["n1", "n2"],
    }
    assert sorted(usable_nodes(Cluster(("n1", 4), ("n2", 4)).state, "eve")) == ["n1", "n2"]


REFUSED: dict[str, tuple[dict[str, Any], Conflict]] = {
    "too many GPUs": (
        {"gpus": 9},
        Conflict(
            "too-large",
            f"Needs 9 GPUs on one node, but the largest, gpu02, has 4 GPUs and 8 CPUs: ask for less, or use "
            f"--nodes; or {WAIT}.",
        ),
    ),
    "too many nodes": (
        {"nodes": 3},
        Conflict(
            "too-few-nodes", f"Needs 3 nodes, but only 2 may be used: ask for fewer --nodes; or {WAIT}."
        ),
    ),
    "a misspelt node": (
        {"nodelist": ("gpu1",)},
        Conflict(
            "unknown-node",
            f"There is no node gpu1: name gpu01 if you mean that one, see `mgpu nodes`, or {WAIT}.",
            {"unknown": ["gpu1"], "nearest": "gpu01"},
        ),
    ),
    "a misspelt node to exclude": (
        {"exclude": ("gpu01", "gpu1")},
        Conflict(
            "unknown-node",
            f"There is no node gpu1, which --exclude names: name gpu01 if you mean that one, see `mgpu "
            f"nodes`, or {NAME_EARLY}.",
            {"unknown": ["gpu1"], "nearest": "gpu01"},
        ),
    ),
    "a strange node": (
        {"nodelist": ("zzz", "gpu01")},
        Conflict(
            "unknown-node",
            f"There is no node zzz: see `mgpu nodes`, or {WAIT}.",
            {"unknown": ["zzz"], "nearest": None},
        ),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_no_node_could_ever_run_is_refused(case: str) -> None:
    spec, expected = REFUSED[case]
    admission = Admission(Cluster(("gpu01", 2), ("gpu02", 4)).state)
    for _ in range(2):
        with pytest.raises(Conflict) as caught:
            admission.check("ann", a_spec(**spec))
        assert (caught.value.code, caught.value.message, caught.value.details) == (
            expected.code,
            expected.message,
            expected.details,
        )
