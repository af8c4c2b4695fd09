"""What others see of GPUs: one state for each, its reason, and who uses it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.model import GpuProcess, GpuSample, GpuTrouble, Trouble
from mgpu_jupyter.api import models
from mgpu_jupyter.master.node_views import view_of
from mgpu_jupyter.master.views import free_gpus, node_view
from mgpu_jupyter.scheduler.events import GpusChanged
from tests.builders import Cluster


@pytest.mark.parametrize(
    ("kind", "is_held", "state", "reason"),
    [
        (None, False, "free", ""),
        (None, True, "held", ""),
        (Trouble.OUTSIDE, False, "outside", "Told."),
        (Trouble.OUTSIDE, True, "held", ""),
        (Trouble.MEMORY, False, "settling", "Told."),
        (Trouble.UNREAD, False, "settling", "Told."),
        (Trouble.SILENT, False, "unhealthy", "Told."),
        (Trouble.SILENT, True, "unhealthy", "Told."),
        (Trouble.LOST, True, "unhealthy", "Told."),
        ("of a newer agent", False, "unhealthy", "Told."),
    ],
)
def test_the_state_of_a_gpu(kind, is_held, state, reason):
    cluster = Cluster(("n1", 1))
    job = cluster.started() if is_held else None
    troubles = {} if kind is None else {"GPU-n1-0": GpuTrouble(kind, "Told.")}
    cluster.tell(GpusChanged(at=1.0, node_id=NodeId("n1"), troubles=troubles))
    process = GpuProcess(pid=3, user="bob", memory_bytes=9, outside=True, name="python")
    sample = GpuSample(uuid="GPU-n1-0", power_w=7.0, processes=(process,))
    node = cluster.state.nodes[NodeId("n1")]
    node.facts = replace(node.facts, gpus=(replace(node.facts.gpus[0], nvlinks={"GPU-n1-1": 2}, mig_parent="GPU-p"),))
    view = view_of(cluster.state, node, (sample,), 1, None)

    assert node_view(view).gpus == (
        models.Gpu(
            index=0,
            uuid="GPU-n1-0",
            name="Test GPU",
            memory_bytes=24 << 30,
            simulated=True,
            job_id=job.id if job else None,
            user="ann" if job else None,
            rank=0 if job else None,
            power_w=7.0,
            state=state,
            reason=reason,
            processes=(models.GpuProcess(pid=3, user="bob", memory_bytes=9, outside=True, name="python"),),
            mig_parent="GPU-p",
            nvlinks={"GPU-n1-1": 2},
        ),
    )
    assert free_gpus(view) == (state == "free")
