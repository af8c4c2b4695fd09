"""A node on which starts fail goes out and comes back by a trial; a drained one lets its job finish; orders
outlive a master.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from mgpu_jupyter.api.models import Node
from tests.e2e.cluster import BIN, Cluster, bash

QUICK = ("--MgpuApp.probe_after=0.5", "--MgpuApp.probe_cap=1.0", "--MgpuApp.heartbeat_interval=0.5")
WAITS = "echo runs; while [ ! -e {go} ]; do sleep 0.05; done"


def the_node(cluster: Cluster) -> Node:
    (node,) = cluster.client.nodes()
    return node


def mgpu_node(cluster: Cluster, *words: str) -> tuple[int, str]:
    """Run `mgpu node …`; return its exit code and all that it said."""
    done = subprocess.run(
        [str(BIN / "mgpu"), "node", *words],
        env=cluster.env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_three_failed_starts_put_a_node_out_and_a_trial_brings_it_back_once_it_is_mended(
    cluster: Cluster,
) -> None:
    cluster.start_master(*QUICK)
    cluster.start_node("n1")
    scratch = cluster.state / "nodes" / "n1" / "scratch"
    away = scratch.rename(scratch.with_name("away"))
    scratch.write_text("in the way")
    jobs = cluster.client.submit_many(
        [{"command": ["echo", "ran"], "gpus": 1, "chdir": "/no/such/directory"}] * 3
    )

    node = cluster.wait_until(
        lambda: node if (node := the_node(cluster)).state == "unhealthy" else None, "the node is unhealthy"
    )
    assert node.reason.startswith(
        "3 starts in a row failed on it, the last: The node could not prepare the job's files:"
    )
    assert node.failures_total >= 3
    cluster.wait_until(lambda: "A trial at" in the_node(cluster).reason, "a trial failed too")
    assert {str(job.state) for job in jobs} == {"queued"}
    cluster.stop("master")
    cluster.start_master(*QUICK)
    cluster.wait_until(lambda: the_node(cluster).state == "unhealthy", "it is still known to be unhealthy")

    scratch.unlink()
    away.rename(scratch)
    cluster.wait_until(lambda: the_node(cluster).state == "online", "a trial worked")
    for job in jobs:
        job.wait(60)
    assert {(str(job.state), job.output().rpartition("\n")[0].rpartition("\n")[2]) for job in jobs} == {
        ("completed", "ran")
    }
    assert the_node(cluster).failures == 0


def test_a_drained_node_lets_its_job_finish_takes_no_other_and_stays_drained(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_master(*QUICK)
    cluster.start_node("n1")
    go = tmp_path / "go"
    running = cluster.client.submit(bash(WAITS, go=go), gpus=1)
    cluster.wait_until(lambda: running.output() == "runs\n", "the job runs")

    code, said = mgpu_node(cluster, "drain", "n1", "--reason", "new memory")
    assert (code, said) == (0, "n1: It takes no new jobs; the job on it goes on to its end.\n")
    waiting = cluster.client.submit(["true"], gpus=1)
    go.touch()
    running.wait(60)
    assert (str(running.state), running.exit_code) == ("completed", 0)
    cluster.stop("master")
    cluster.start_master(*QUICK)
    node = cluster.wait_until(
        lambda: node if (node := the_node(cluster)).state == "draining" else None, "the node is back, drained"
    )
    assert (node.orders.reason, str(waiting.state)) == ("new memory", "queued")
    assert mgpu_node(cluster, "remove", "n1")[0] == 1
    assert mgpu_node(cluster, "resume", "n1") == (0, "n1: It takes jobs again.\n")
    waiting.wait(60)

    assert str(waiting.state) == "completed"
    cluster.wait_until(lambda: the_node(cluster).cpu_percent is not None, "the machine's load is shown")
    cluster.stop("n1")
    cluster.wait_until(lambda: the_node(cluster).state == "offline", "the node is away")
    assert mgpu_node(cluster, "remove", "n1")[0] == 0
    assert cluster.client.nodes() == ()
    cluster.start_node("n1")
    assert the_node(cluster).orders.by == ""


def test_a_program_of_the_site_takes_a_gpu_or_the_node_out_and_brings_it_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    verdict, look = tmp_path / "verdict", tmp_path / "look"
    verdict.write_text("")
    look.write_text(f'said=$(cat {verdict}); [ -z "$said" ] || {{ echo "$said"; exit 1; }}\n')

    def say(text: str) -> None:
        """Change the verdict at once: it is read all the time."""
        (tmp_path / "next").write_text(text)
        (tmp_path / "next").replace(verdict)

    cluster.start_master(
        "--MgpuApp.heartbeat_interval=0.5",
        f"--MgpuApp.health_checks={{'every_s': 0.2, 'program': ['sh', '{look}']}}",
    )
    cluster.start_node("n1", 2)

    say("GPU 1: its fan does not turn\n")
    gpu = cluster.wait_until(
        lambda: one if (one := the_node(cluster).gpus[1]).state != "free" else None, "the GPU is out"
    )
    assert (the_node(cluster).state, gpu.reason) == (
        "online",
        "The site's health check sh says: its fan does not turn.",
    )
    waiting = cluster.client.submit(["true"], gpus=2)
    assert str(waiting.state) == "queued"

    say("the coolant is low\n")
    cluster.wait_until(lambda: the_node(cluster).state == "unhealthy", "the node is out")
    assert the_node(cluster).reason == "The site's health check sh says: the coolant is low."
    say("")
    waiting.wait(60)

    assert (str(waiting.state), the_node(cluster).state, the_node(cluster).reason) == (
        "completed",
        "online",
        "",
    )
