"""Nodes that are cut off and gangs that break between the two steps of their start, with real masters,
agents, keepers and jobs.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from mgpu_jupyter.client.job import Job
from tests.e2e import network
from tests.e2e.cluster import Cluster, bash
from tests.e2e.test_join import Hosts, hosts, join_line

__all__ = ["hosts"]

LEASE_S, GRACE_S, MARGIN_S = (
    8.0,
    1.0,
    1.0,
)  # an agent that is only slow, on a machine that is busy, must not lose it
FENCE = (
    f"--MgpuApp.lease={LEASE_S}",
    f"--MgpuApp.kill_grace={GRACE_S}",
    f"--MgpuApp.lease_margin={MARGIN_S}",
    "--MgpuApp.heartbeat_interval=0.5",
    "--MgpuApp.timeout=4",
)
# A line with attempt, rank and pid when it begins, and when it is asked to end; the clock is one for all of
# them.
JOB = """
say() {{ echo "$1 $MGPU_ATTEMPT ${{MGPU_NODE_RANK:-0}} $$ $(cut -d' ' -f1 /proc/uptime)" >> {log}; }}
say begin; trap 'say end; exit 0' TERM; while [ ! -e {go} ]; do sleep 0.05; done; say done
"""


def _lines(log: Path) -> list[tuple[str, int, int, int, float]]:
    if not log.exists():
        return []
    words = [line.split() for line in log.read_text().splitlines()]
    return [(what, int(attempt), int(rank), int(pid), float(at)) for what, attempt, rank, pid, at in words]


def _running(cluster: Cluster, job: Job, nodes: int = 1) -> list[int]:
    """Wait until all ranks run, and return their pids."""

    def pids() -> list[int] | None:
        found = [placement.pid for placement in job.info.placements]
        return [pid for pid in found if pid] if str(job.state) == "running" and len(found) == nodes else None

    return cluster.wait_until(pids, f"{job.id} runs")


def test_fence_ends_the_job_of_a_lost_agent_before_it_starts_elsewhere(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The agent is killed and its keeper lives: the keeper ends the job by itself, and the master waits for
    that.
    """
    cluster.start_master(*FENCE)
    cluster.start_node("n1", 1)
    log, go = tmp_path / "log", tmp_path / "go"
    job = cluster.client.submit(bash(JOB, log=log, go=go), gpus=1)
    _running(cluster, job)
    cluster.start_node("n2", 1)
    cluster.kill("n1")
    cluster.wait_until(lambda: len(_lines(log)) >= 3, "it began elsewhere")
    go.touch()
    job.wait(60)

    lines = _lines(log)
    assert [(what, attempt) for what, attempt, *_ in lines] == [
        ("begin", 1),
        ("end", 1),
        ("begin", 2),
        ("done", 2),
    ]
    assert (str(job.state), job.info.attempt, [placement.node for placement in job.info.placements]) == (
        "completed",
        2,
        ["n2"],
    )
    assert lines[1][4] < lines[2][4]


def test_keep_lets_jobs_go_on_while_agent_and_master_are_away_longer_than_a_lease(
    cluster: Cluster, tmp_path: Path
) -> None:
    """And a job that asks to be fenced is ended by its keeper, and runs again when the master is back."""
    traits = (*FENCE, "--MgpuApp.on_disconnect=keep")
    cluster.start_master(*traits)
    cluster.start_node("n1", 1)
    cluster.start_node("n2", 2)
    logs, go = [tmp_path / name for name in ("without-agent", "with-agent", "fenced")], tmp_path / "go"
    places = [{"nodelist": "n1"}, {"nodelist": "n2"}, {"nodelist": "n2", "on_disconnect": "fence"}]
    jobs = [
        cluster.client.submit(bash(JOB, log=log, go=go), gpus=1, **place)
        for log, place in zip(logs, places, strict=True)
    ]
    pids = [_running(cluster, job) for job in jobs]
    cluster.kill("n1")
    cluster.kill("master")
    away_since = time.monotonic()
    cluster.wait_until(lambda: len(_lines(logs[2])) == 2, "the fenced one was ended")
    cluster.wait_until(
        lambda: time.monotonic() - away_since > LEASE_S + GRACE_S + MARGIN_S, "longer than a lease"
    )
    cluster.start_master(*traits)
    cluster.start_node("n1", 1)
    assert [_running(cluster, job) for job in jobs[:2]] == pids[:2]
    cluster.wait_until(lambda: len(_lines(logs[2])) == 3, "the fenced one runs again")
    go.touch()
    for job in jobs:
        job.wait(60)

    assert [(str(job.state), job.info.attempt) for job in jobs] == [
        ("completed", 1),
        ("completed", 1),
        ("completed", 2),
    ]
    kept = [("begin", 1), ("done", 1)]
    assert [[(what, attempt) for what, attempt, *_ in _lines(log)] for log in logs] == [
        kept,
        kept,
        [("begin", 1), ("end", 1), ("begin", 2), ("done", 2)],
    ]


@network.NEEDS
def test_a_machine_that_is_cut_off_keeps_its_job_for_a_lease_and_no_longer(
    hosts: Hosts, tmp_path: Path
) -> None:
    """Agent, keeper and job are well: only the network is gone, first for a moment, then for longer than a
    lease.
    """
    cluster, net = hosts.cluster, hosts.net
    cluster.start_master(*FENCE)
    log, go = tmp_path / "log", tmp_path / "go"
    hosts.start("east", join_line(cluster, "--listen", net.master), "--node-id", "east", "--fake-gpus", "1")
    job = cluster.client.submit(bash(JOB, log=log, go=go), gpus=1)
    pids = _running(cluster, job)
    hosts.start("west", join_line(cluster, "--listen", net.master), "--node-id", "west", "--fake-gpus", "1")

    net.cut("east")
    cut_at = time.monotonic()
    cluster.wait_until(lambda: time.monotonic() - cut_at > LEASE_S / 4, "a moment passed")
    net.heal("east")
    cluster.wait_until(lambda: time.monotonic() - cut_at > LEASE_S * 2, "a lease passed")
    assert (_running(cluster, job), [what for what, *_ in _lines(log)]) == (pids, ["begin"])

    net.cut("east")
    cut_at = time.monotonic()
    cluster.wait_until(lambda: len(_lines(log)) >= 3, "it began elsewhere")
    took_s = time.monotonic() - cut_at
    net.heal("east")
    cluster.wait_until(lambda: cluster.node_states() == {"east": "online", "west": "online"}, "east is back")
    go.touch()
    job.wait(60)

    lines = _lines(log)
    assert [(what, attempt) for what, attempt, *_ in lines] == [
        ("begin", 1),
        ("end", 1),
        ("begin", 2),
        ("done", 2),
    ]
    assert lines[1][4] < lines[2][4]
    assert (str(job.state), job.info.attempt, [placement.node for placement in job.info.placements]) == (
        "completed",
        2,
        ["west"],
    )
    assert took_s >= LEASE_S


def test_a_gang_starts_nowhere_while_a_node_has_no_place_for_its_output(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A command in a directory of its own needs nothing of the spool but the files of its output."""
    cluster.start_master("--MgpuApp.node_failures=1000", "--MgpuApp.max_failed_starts=1000")
    cluster.start_node("n1", 1)
    cluster.start_node("n2", 1)
    log = tmp_path / "log"
    spool = cluster.state / "nodes" / "n2" / "spool"
    aside = spool.with_name("aside")
    spool.rename(aside)
    command = bash("echo $MGPU_RANK >> {log}", log=log)
    job = cluster.client.submit(command, nodes=2, gpus_per_node=1, chdir=str(tmp_path))
    cluster.wait_until(lambda: job.info.attempt >= 3, "two attempts were given up")

    assert not log.exists()
    aside.rename(spool)
    job.wait(60)
    assert (str(job.state), sorted(log.read_text().split())) == ("completed", ["0", "1"])


def test_a_gang_of_four_starts_whole_or_not_at_all(cluster: Cluster, tmp_path: Path) -> None:
    """One node cannot start it, one agent hangs when it is asked; each time nothing of the gang may run."""
    names = ("n1", "n2", "n3", "n4")
    cluster.start_master(
        *FENCE,
        "--MgpuApp.prepare_timeout=1",
        "--MgpuApp.node_failures=1000",
        "--MgpuApp.max_failed_starts=1000",
    )
    for name in names:
        cluster.start_node(name, 1)
    log, go = tmp_path / "log", tmp_path / "go"

    # The spool of one node takes no script: it refuses to prepare.
    spool = cluster.state / "nodes" / "n3" / "spool"
    aside = spool.with_name("aside")
    spool.rename(aside)
    script = "#!/bin/bash\n" + JOB.format(log=log, go=go)
    job = cluster.client.submit(script=script, nodes=4, gpus_per_node=1)
    cluster.wait_until(lambda: job.info.attempt >= 2, "a first attempt was given up")
    assert _lines(log) == []
    aside.rename(spool)
    pids = _running(cluster, job, nodes=4)
    attempt = job.info.attempt
    cluster.wait_until(lambda: len(_lines(log)) >= 4, "each rank has said so")
    assert sorted((what, number, rank) for what, number, rank, *_ in _lines(log)) == [
        ("begin", attempt, rank) for rank in range(4)
    ]

    # A rank that is killed takes the others along.
    os.kill(pids[2], signal.SIGKILL)
    job.wait(60)
    assert str(job.state) == "failed"
    cluster.wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "no rank is left")

    # An agent that hangs when the second job is asked for, and is then killed.
    log.unlink()
    cluster.freeze("n2")
    job = cluster.client.submit(script=script, nodes=4, gpus_per_node=1)
    cluster.wait_until(lambda: job.info.attempt >= 1 and str(job.state) == "queued", "it was given up")
    assert _lines(log) == []
    cluster.kill("n2")
    cluster.start_node("n2", 1)
    _running(cluster, job, nodes=4)
    go.touch()
    job.wait(60)
    attempt = job.info.attempt
    assert str(job.state) == "completed"
    assert {number for _, number, *_ in _lines(log)} == {attempt}
