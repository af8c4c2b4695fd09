"""Acceptance, row 3: real `mgpu_master` and `mgpu_node` on a stand-in for NVIDIA's library, found by the
loader as the real one is.
"""

from __future__ import annotations

import getpass
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_jupyter.api.models import Gpu
from tests.e2e.cluster import BIN, Cluster, bash
from tests.nvml.stand_in import GIB, LOST, NOT_SUPPORTED, UNKNOWN, Card, StandIn, cards

PACE = "--MgpuApp.heartbeat_interval=0.2"
WAIT = "while [ ! -e {go} ]; do sleep 0.05; done; echo $CUDA_VISIBLE_DEVICES"


class Lab:
    """One node with GPUs of the stand-in."""

    def __init__(self, cluster: Cluster, stand_in: StandIn) -> None:
        self.cluster = cluster
        self.stand_in = stand_in
        self.client = cluster.client

    def gpu(self, index: int = 0, node: str = "n1") -> Gpu:
        """Return a GPU as REST shows it."""
        (found,) = [one for one in self.client.nodes() if one.id == node]
        return found.gpus[index]

    def wait_state(self, state: str, index: int = 0, node: str = "n1") -> Gpu:
        """Wait until a GPU is shown in this state."""
        what = f"GPU {index} is {state}"
        return self.cluster.wait_until(
            lambda: gpu if (gpu := self.gpu(index, node)).state == state else None, what
        )

    def change(self, index: int = 0, **changes: object) -> None:
        """Change one card while all runs."""
        for name, value in changes.items():
            setattr(self.stand_in.cards[index], name, value)
        self.stand_in.write()


@pytest.fixture(scope="module")
def module_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    directory = tmp_path_factory.mktemp("nvml")
    stand_in = StandIn(directory)
    with Cluster(directory / "cluster") as cluster:
        cluster.start_master(PACE, "--MgpuApp.kill_grace=1")
        yield Lab(cluster, stand_in)


@pytest.fixture
def lab(module_lab: Lab) -> Iterator[Lab]:
    """A node with two GPUs, and nothing in the queue."""
    first, second = cards(2)
    first.links, second.links = (second.bus,) * 4, (first.bus,) * 4
    start(module_lab, first, second)
    yield module_lab
    for job in module_lab.client.jobs(state="active"):
        job.cancel()
    module_lab.cluster.wait_until(
        lambda: not list(module_lab.client.jobs(state="active")), "nothing runs any more"
    )
    module_lab.cluster.stop("n1")


def start(
    lab: Lab, *given: Card, states: tuple[str, ...] = ("free", "free"), denied: tuple[str, ...] = ()
) -> None:
    lab.stand_in.cards = list(given)
    lab.stand_in.down = 0
    lab.stand_in.denied = dict.fromkeys(denied, NOT_SUPPORTED)
    lab.stand_in.write()
    lab.cluster.start_real_node("n1", lab.stand_in.env)
    lab.cluster.wait_until(
        lambda: (
            [[gpu.state for gpu in node.gpus] for node in lab.client.nodes() if node.id == "n1"]
            == [list(states)]
        ),
        f"the GPUs are {states}",
    )


def test_inventory_readings_and_a_job_that_uses_a_gpu(lab: Lab, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = lab.client.submit(bash(WAIT, go=go), gpus=1)
    pid = lab.cluster.wait_until(lambda: job.info.placements and job.info.placements[0].pid, "it runs")
    lab.change(compute={pid: 3 * GIB}, used=4 * GIB, utilisation=93, temperature=70, milliwatts=250_000)
    gpu = lab.cluster.wait_until(lambda: one if (one := lab.gpu()).processes else None, "its process is seen")

    assert (
        gpu.index,
        gpu.uuid,
        gpu.name,
        gpu.memory_bytes,
        gpu.simulated,
        gpu.job_id,
        gpu.user,
        gpu.state,
    ) == ((0, "GPU-00000000", "Stand-in A100", 40 * GIB, False, job.id, getpass.getuser(), "held"))
    assert (gpu.utilisation_percent, gpu.memory_used_bytes, gpu.temperature_c, gpu.power_w) == (
        93.0,
        4 * GIB,
        70.0,
        250.0,
    )
    assert [(one.pid, one.user, one.memory_bytes, one.outside) for one in gpu.processes] == [
        (pid, getpass.getuser(), 3 * GIB, False)
    ]
    assert (gpu.nvlinks, lab.gpu(1).nvlinks) == ({"GPU-00000001": 4}, {"GPU-00000000": 4})
    lab.change(compute={}, used=GIB, utilisation=0)
    go.touch()
    job.wait(60)
    assert (str(job.state), job.output()) == ("completed", "0\n")


def test_a_gpu_that_someone_uses_outside_mgpu_is_not_handed_out(lab: Lab) -> None:
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        lab.change(0, compute={stranger.pid: 2 * GIB}, used=3 * GIB)
        lab.change(1, compute={stranger.pid: 2 * GIB}, used=3 * GIB)
        lab.wait_state("outside", 0)
        gpu = lab.wait_state("outside", 1)
        words = f"In use outside mgpu by pid {stranger.pid} of {getpass.getuser()}."
        assert gpu.reason == words
        assert [(one.pid, one.user, one.memory_bytes, one.outside) for one in gpu.processes] == [
            (stranger.pid, getpass.getuser(), 2 * GIB, True)
        ]
        shown = subprocess.run(
            [str(BIN / "mgpu"), "nodes"], env=lab.cluster.env, capture_output=True, text=True, check=True
        ).stdout
        assert f"| outside: {words}" in shown
        document = subprocess.run(
            [str(BIN / "mgpu"), "nodes", "--json"], env=lab.cluster.env, capture_output=True, check=True
        ).stdout
        assert [one["reason"] for one in json.loads(document)["nodes"][0]["gpus"]] == [words, words]

        job = lab.client.submit(bash("echo $CUDA_VISIBLE_DEVICES"), gpus=1)
        reason = f"Waits for 1 GPU free on one node: n1 has 0. GPU 0 of n1: {words} GPU 1 of n1: {words}"
        lab.cluster.wait_until(lambda: job.info.reason == reason, reason)
        assert lab.client.cluster().gpus_free == 0
    finally:
        stranger.kill()
        stranger.wait()
    lab.change(1, compute={}, used=GIB)
    job.wait(60)
    assert (str(job.state), job.output()) == ("completed", "1\n")
    assert lab.gpu(0).state == "outside"


def test_the_job_of_a_lost_gpu_fails_with_that_reason(lab: Lab, tmp_path: Path) -> None:
    job = lab.client.submit(bash("sleep 600 & wait", go=tmp_path), gpus=1)
    pid = lab.cluster.wait_until(lambda: job.info.placements and job.info.placements[0].pid, "it runs")
    lab.change(0, fault=LOST)
    job.wait(60)

    reason = "GPU 0 of n1 was lost: NVIDIA's driver says: GPU is lost."
    assert (str(job.state), job.info.reason, job.info.reason_code) == ("failed", reason, "gpu-lost")
    assert not Path(f"/proc/{pid}").exists()
    gpu = lab.gpu(0)
    assert (gpu.state, gpu.reason, gpu.job_id) == ("unhealthy", "NVIDIA's driver says: GPU is lost.", None)
    run = subprocess.run(
        [str(BIN / "mgpu_srun"), "--gpus", "1", "--", "bash", "-c", "echo $CUDA_VISIBLE_DEVICES"],
        env=lab.cluster.env,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout == "GPU-00000001\n"  # numbers cannot be relied on while one is lost
    lab.change(0, fault=0)
    lab.wait_state("free", 0)


def test_memory_that_is_not_back_keeps_the_next_job_off(lab: Lab, tmp_path: Path) -> None:
    lab.change(1, fault=LOST)
    lab.wait_state("unhealthy", 1)
    go = tmp_path / "go"
    first = lab.client.submit(bash(WAIT, go=go), gpus=1)
    lab.cluster.wait_until(lambda: str(first.state) == "running", "it runs")
    second = lab.client.submit(["true"], gpus=1)  # waits already when the first one ends
    lab.change(0, used=9 * GIB)
    go.touch()
    first.wait(60)
    gpu = lab.cluster.wait_until(
        lambda: one if "not back" in (one := lab.gpu(0)).reason else None, "the memory is missed"
    )
    reason = "8 GiB of its last job's memory is not back: end what holds it, or restart mgpu_node."

    assert (str(first.state), gpu.state, gpu.reason, gpu.job_id) == ("completed", "settling", reason, None)
    lab.cluster.wait_until(
        lambda: f"GPU 0 of n1: {reason}" in second.info.reason, "the job that waits says so"
    )
    assert (str(second.state), second.info.attempt) == ("queued", 0)
    lab.change(0, used=GIB)
    second.wait(60)
    assert str(second.state) == "completed"


def test_a_driver_that_restarts_is_found_again_and_jobs_go_on(lab: Lab, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = lab.client.submit(bash(WAIT, go=go), gpus=1)
    lab.cluster.wait_until(lambda: str(job.state) == "running", "it runs")
    lab.stand_in.down = UNKNOWN
    lab.stand_in.write()
    assert lab.wait_state("unhealthy", 1).reason == "The NVIDIA driver does not answer (Unknown Error)."
    lab.stand_in.down = 0
    gone = lab.stand_in.cards.pop()
    lab.stand_in.restart_driver()
    lab.wait_state("held", 0)
    lab.cluster.wait_until(
        lambda: lab.gpu(1).reason == "The NVIDIA driver does not find it any more.", "the second is lost"
    )
    assert "nvml_initialised_anew gpus=1 of=2" in lab.cluster.log("n1")
    lab.stand_in.cards.append(gone)
    lab.stand_in.restart_driver()
    lab.wait_state("free", 1)
    go.touch()
    job.wait(60)
    assert (str(job.state), job.output()) == ("completed", "0\n")


def test_mig_instances_and_what_is_not_supported(module_lab: Lab) -> None:
    lab = module_lab
    (parent,) = cards(1)
    parent.is_mig = True
    small = Card(uuid="MIG-1", name="A100 MIG 1g.5gb", total=5 * GIB, used=0, parent=0)
    try:
        start(
            lab,
            parent,
            small,
            states=("free",),
            denied=("nvmlDeviceGetPowerUsage", "nvmlDeviceGetTemperature"),
        )
        job = lab.client.submit(bash("echo $CUDA_VISIBLE_DEVICES $MGPU_GPUS"), gpus=1)
        job.wait(60)
        gpu = lab.gpu()

        assert (str(job.state), job.output()) == ("completed", "MIG-1 MIG-1\n")
        assert (gpu.uuid, gpu.mig_parent, gpu.memory_bytes, gpu.temperature_c, gpu.power_w) == (
            "MIG-1",
            parent.uuid,
            5 * GIB,
            None,
            None,
        )
    finally:
        lab.cluster.stop("n1")


def test_a_node_without_the_library_says_so(module_lab: Lab, tmp_path: Path) -> None:
    lab = module_lab
    lab.cluster.start_real_node("bare", {"LD_LIBRARY_PATH": str(tmp_path)})
    (bare,) = [node for node in lab.client.nodes() if node.id == "bare"]
    lab.cluster.stop("bare")
    if bare.gpus:
        pytest.skip("this machine has an NVIDIA driver")

    assert (
        bare.gpu_note
        == "No NVIDIA driver is installed: this node has no GPUs (mgpu_node --fake-gpus N simulates some)."
    )


def test_busy_gpus_are_shared_where_the_site_says_so(cluster: Cluster, tmp_path: Path) -> None:
    (card,) = cards(1)
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        card.compute = {stranger.pid: GIB}
        lab = Lab(cluster, StandIn(tmp_path, card))
        cluster.start_master(PACE, "--MgpuApp.share_busy_gpus=True")
        cluster.start_real_node("n1", lab.stand_in.env)
        job = lab.client.submit(["true"], gpus=1)
        job.wait(60)
        gpu = lab.wait_state("free")
    finally:
        stranger.kill()
        stranger.wait()

    assert (str(job.state), [one.pid for one in gpu.processes]) == ("completed", [stranger.pid])
