"""Explain is right: on random small clusters an offer is made where a search by brute force finds one, each
offer starts at once when it is submitted, and what is called impossible stays so on the same cluster with
nobody on it.

Nothing here uses the code that makes offers: changes are made field by field, and tried by the machine on a
deep copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from itertools import combinations
from typing import Any

import msgspec
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_agent.protocol.model import GpuTrouble, NodeFacts, Trouble
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.explanations import Explanation, Where
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.units import units_of
from mgpu_jupyter.scheduler.admission import Admission
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    GpusChanged,
    JobSubmitted,
    NodeJoined,
    NodeSilent,
    PassDue,
)
from mgpu_jupyter.scheduler.explain.questions import explain_job, explain_request
from mgpu_jupyter.scheduler.explain.snapshot import StateSnapshot
from mgpu_jupyter.scheduler.machine import handle
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.state import ClusterState
from tests.builders import a_spec, facts, job_id

GIB = 1 << 30
NOW = 50.0
NEW = JobId("NEWNEWNE")
NAMES = ("n1", "n2", "n3", "n4")
MAX_PAIRS = 80
MANY = 5
"""So many examples of each kind there must be at least."""

_KINDS = (("Tesla A100", 40 * GIB), ("Tesla T4", 16 * GIB))
_some_names = st.lists(st.sampled_from(NAMES), unique=True, max_size=2).map(tuple)


@st.composite
def clusters(draw: st.DrawFn) -> ClusterState:
    state = ClusterState()
    names = NAMES[: draw(st.integers(2, 4))]
    for name in names:
        handle(state, NodeJoined(at=0.0, node_id=NodeId(name), facts=draw(_machines(name))))
    for number, name in enumerate(draw(st.lists(st.sampled_from(names), max_size=4))):
        gpus = draw(st.integers(0, 3))
        cpus = draw(st.integers(0, 4))
        limit = draw(st.sampled_from((None, 100.0, 7200.0)))
        spec = a_spec(
            nodelist=(name,),
            gpus=gpus,
            cpus=cpus,
            mem_per_node_bytes=draw(st.integers(0, 24)) * GIB,
            time_limit_s=limit,
        )
        handle(
            state,
            JobSubmitted(
                at=1.0, job_id=job_id(number), user=draw(st.sampled_from(("ann", "bob"))), spec=spec
            ),
        )
        handle(state, PassDue(at=2.0))
    for name in names:
        slot = state.pool.slots[NodeId(name)]
        blocked = [gpu.uuid for gpu in slot.gpus if draw(st.integers(0, 5)) == 0]
        trouble = GpuTrouble(Trouble.OUTSIDE, "Somebody computes on it.")
        handle(
            state,
            GpusChanged(at=3.0, node_id=NodeId(name), troubles=dict.fromkeys(map(GpuUuid, blocked), trouble)),
        )
        if draw(st.integers(0, 4)) == 0:
            handle(state, NodeSilent(at=3.0, node_id=NodeId(name), reason="Silent."))
    if draw(st.booleans()):
        spec = a_spec(gpus=draw(st.integers(1, 4)), time_limit_s=draw(st.sampled_from((None, 500.0))))
        handle(state, JobSubmitted(at=4.0, job_id=job_id(90), user="bob", spec=spec))
    handle(state, PassDue(at=5.0))
    return state


@st.composite
def _machines(draw: st.DrawFn, name: str) -> NodeFacts:
    plain = facts(name, draw(st.integers(0, 4)), draw(st.integers(2, 8)))
    kind, memory = draw(st.sampled_from(_KINDS))
    gpus = tuple(msgspec.structs.replace(gpu, name=kind, memory_bytes=memory) for gpu in plain.gpus)
    labels = dict.fromkeys(draw(st.lists(st.sampled_from(("fast", "old")), unique=True)), "")
    return msgspec.structs.replace(
        plain,
        gpus=gpus,
        labels=labels,
        memory_bytes=32 * GIB,
        arch=draw(st.sampled_from(("x86_64", "aarch64"))),
    )


@st.composite
def requests(draw: st.DrawFn) -> JobSpec:
    fields: dict[str, Any] = {}
    match draw(st.integers(0, 4)):
        case 0:
            fields["gpus"] = draw(st.integers(0, 6))
        case 1:
            fields |= {"nodes": draw(st.integers(1, 4)), "gpus_per_node": draw(st.integers(0, 4))}
        case 2:
            fields["gpu_ids"] = tuple(draw(st.lists(st.integers(0, 3), min_size=1, max_size=2, unique=True)))
        case 3:
            fields["node_gpu_ids"] = {name: (draw(st.integers(0, 3)),) for name in draw(_some_names)}
        case 4:
            archs = st.sampled_from(("", "x86_64", "aarch64"))
            parts = draw(st.lists(st.tuples(st.integers(0, 3), archs), min_size=1, max_size=3))
            fields["parts"] = tuple({"gpus": gpus, "cpus": 1, "arch": arch} for gpus, arch in parts)
            fields["nodes"] = draw(st.sampled_from((1, len(parts))))
    optional: dict[str, st.SearchStrategy[object]] = {
        "nodelist": _some_names,
        "exclude": _some_names,
        "gpu_type": st.just("a100"),
        "gpu_mem_bytes": st.sampled_from((16 * GIB, 20 * GIB, 60 * GIB)),
        "constraint": st.sampled_from(("fast", "!old", "fast&old")),
        "arch": st.just("aarch64"),
        "cpus": st.integers(1, 10),
        "mem_per_node_bytes": st.integers(1, 40).map(lambda number: number * GIB),
        "time_limit_s": st.sampled_from((60.0, 1000.0, 90_000.0)),
        "hold": st.just(value=True),
        "exclusive": st.just(value=True),
        "begin_at": st.just(10_000.0),
    }
    for name in draw(st.lists(st.sampled_from(sorted(optional)), unique=True, max_size=3)):
        fields[name] = draw(optional[name])
    try:
        return check(msgspec.convert({"command": ("true",), **fields}, JobSpec))
    except MgpuError:
        assume(condition=False)
        raise


# --- by brute force ------------------------------------------------------------------------------


def small_changes(spec: JobSpec) -> Iterator[dict[str, Any]]:
    units = units_of(spec)
    nodes, each = len(units), units[0].gpus
    if not (spec.parts or spec.gpu_ids or spec.node_gpu_ids):
        for fewer in range(1, each):
            yield {"gpus": None, "gpus_per_node": fewer, "nodes": spec.nodes}
        for fewer in range(1, nodes):
            yield {"gpus": None, "gpus_per_node": each, "nodes": fewer}
        for less, fewer in [(less, fewer) for less in range(1, nodes) for fewer in range(1, each)]:
            yield {"gpus": None, "gpus_per_node": fewer, "nodes": less}
        for other in range(1, 5):
            if (nodes * each) % other == 0 and each:
                yield {"gpus": nodes * each, "gpus_per_node": None, "nodes": other}
    if spec.gpu_ids:
        yield from ({"gpu_ids": (index,)} for index in range(4) if len(spec.gpu_ids) == 1)
        yield {"gpu_ids": (), "gpus_per_node": len(spec.gpu_ids), "gpus": None, "nodes": nodes}
    for name in spec.exclude:
        yield {"exclude": tuple(one for one in spec.exclude if one != name)}
    if not spec.node_gpu_ids:
        yield {"nodelist": (), "nodes": nodes}
    for field, nothing in (
        ("gpu_type", ""),
        ("gpu_mem_bytes", 0),
        ("constraint", ""),
        ("arch", ""),
        ("hold", False),
        ("begin_at", 0.0),
        ("exclusive", False),
    ):
        yield {field: nothing}
    yield from ({"cpus": cpus} for cpus in range(spec.cpus))
    yield from ({"mem_per_node_bytes": size * GIB} for size in range(0, spec.mem_per_node_bytes // GIB, 4))


def starts(
    state: ClusterState, spec: JobSpec, *, instead_of: JobId | None = None, admit: bool = True
) -> Job | None:
    """Submit to a deep copy, and return the job if the next pass starts it."""
    state = deepcopy(state)
    if instead_of is not None:
        handle(state, CancelRequested(at=NOW, job_id=instead_of, by="ann"))
    try:
        check(spec)
        if admit:
            Admission(state).check("ann", spec)
    except MgpuError:
        return None
    handle(state, JobSubmitted(at=NOW, job_id=NEW, user="ann", spec=spec))
    handle(state, PassDue(at=NOW))
    job = state.jobs[NEW]
    return job if job.state is JobState.STARTING else None


def some_small_change_starts(state: ClusterState, spec: JobSpec, instead_of: JobId | None) -> bool:
    def works(*changes: dict[str, Any]) -> bool:
        merged = {field: value for change in changes for field, value in change.items()}
        return starts(state, msgspec.structs.replace(spec, **merged), instead_of=instead_of) is not None

    singles = [
        change
        for change in small_changes(spec)
        if any(getattr(spec, field) != value for field, value in change.items())
    ]
    if any(works(change) for change in singles):
        return True
    one_flag = [
        change
        for change in singles
        if not (change.get("nodes", spec.nodes) != spec.nodes and "gpus_per_node" in change)
    ]
    pairs = [pair for pair in combinations(one_flag, 2) if not pair[0].keys() & pair[1].keys()]
    return any(works(*pair) for pair in pairs[:MAX_PAIRS])


def emptied(state: ClusterState) -> ClusterState:
    empty = ClusterState()
    for node in state.nodes.values():
        handle(empty, NodeJoined(at=0.0, node_id=node.id, facts=node.facts))
    return empty


def check_answer(
    state: ClusterState, spec: JobSpec, told: Explanation, instead_of: JobId | None = None
) -> None:
    for offer in told.offers:
        changed = msgspec.convert({**msgspec.to_builtins(spec), **msgspec.to_builtins(offer.patch)}, JobSpec)
        job = starts(state, changed, instead_of=instead_of)
        assert job is not None, offer
        assert tuple(Where(node=one.node_id, gpus=one.gpu_indices) for one in job.placements) == offer.where
    assert len({offer.text for offer in told.offers}) == len(told.offers) <= 5
    if not told.offers:
        assert not some_small_change_starts(state, spec, instead_of), msgspec.json.encode(spec)
    if told.verdict == "never":
        assert starts(emptied(state), spec, admit=False) is None


def assert_many(seen: Counter[str], *kinds: str) -> None:
    """A property that hardly ever meets what it is about says nothing."""
    assert {kind: seen[kind] for kind in kinds if seen[kind] < MANY} == {}, seen


# --- the properties ------------------------------------------------------------------------------

_quick = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
    print_blob=True,
)


def kind_of(told: Explanation) -> str:
    return f"{told.verdict} with offers" if told.offers else str(told.verdict)


def test_a_request_that_is_not_submitted_is_explained_rightly() -> None:
    seen: Counter[str] = Counter()

    @_quick
    @given(clusters(), requests())
    def check(state: ClusterState, spec: JobSpec) -> None:
        told = explain_request(StateSnapshot(state, NOW), "ann", spec)
        job = starts(state, spec)
        event(f"{told.verdict} {told.code}, {len(told.offers)} offers")
        seen[kind_of(told)] += 1
        assert (told.verdict == "now") == (job is not None)
        if job is not None:
            assert told.where == tuple(
                Where(node=one.node_id, gpus=one.gpu_indices) for one in job.placements
            )
            return
        check_answer(state, spec, told)

    check()
    assert_many(seen, "now", "not_now with offers", "never with offers", "never")


def test_a_job_that_waits_is_explained_rightly() -> None:
    seen: Counter[str] = Counter()

    @_quick
    @given(clusters(), requests())
    def check(state: ClusterState, spec: JobSpec) -> None:
        waiting = job_id(99)
        handle(state, JobSubmitted(at=6.0, job_id=waiting, user="ann", spec=spec))
        handle(state, PassDue(at=7.0))
        job = state.jobs[waiting]
        if job.state is not JobState.QUEUED:
            return
        told = explain_job(StateSnapshot(state, NOW), job)
        seen[kind_of(told)] += 1
        assert told.verdict in ("not_now", "never")
        check_answer(state, spec, told, instead_of=waiting)

    check()
    assert_many(seen, "not_now with offers", "never with offers", "never")
