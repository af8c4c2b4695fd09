"""Prologs and epilogs on real nodes: a prolog that fails puts the job back, an epilog runs once, however the
job ended.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from mgpu_jupyter.client.job import Job
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import Cluster, bash
from tests.processes import processes_of


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose site has an epilog of its own, which notes every end."""
    with Cluster(tmp_path_factory.mktemp("hooks") / "cluster") as cluster:
        notes = cluster.directory / "site-notes"
        retries = "--MgpuApp.scheduling={'retries': {'backoff_base_s': 0.2, 'backoff_cap_s': 0.5}}"
        epilog = f"--MgpuApp.epilog=echo $MGPU_JOB_ID.$MGPU_ATTEMPT $MGPU_STATE $MGPU_EXIT_CODE >> {notes}"
        cluster.start_master("--MgpuApp.kill_grace=2", retries, epilog)
        cluster.start_node("n1", 1)
        yield cluster


def notes_of(cluster: Cluster, job: Job) -> list[str]:
    path = cluster.directory / "site-notes"
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines if line.startswith(f"{job.id}.")]


def wait_for_notes(cluster: Cluster, job: Job, count: int = 1) -> list[str]:
    cluster.wait_until(lambda: len(notes_of(cluster, job)) >= count, "the epilog ran", 60)
    return notes_of(cluster, job)


def test_a_prolog_that_fails_twice_puts_the_job_back_twice_and_then_it_runs(
    site: Cluster, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    prolog = f"echo x >> {count}; test $(wc -l < {count}) -ge 3"
    epilog = f"echo $MGPU_STATE >> {tmp_path}/own"
    job = site.client.submit(bash("echo ran"), gpus=1, prolog=prolog, epilog=epilog).wait(90)
    assert (job.state, job.output()) == (JobState.COMPLETED, "ran\n"), job.info
    assert job.info.attempt == 3
    assert count.read_text() == "x\n" * 3
    assert wait_for_notes(site, job, 3) == ["prolog-failed 1", "prolog-failed 1", "completed 0"]
    assert (tmp_path / "own").read_text().split() == ["prolog-failed", "prolog-failed", "completed"]
    assert site.node_states() == {"n1": "online"}


def test_an_epilog_runs_once_after_success_failure_timeout_and_cancel(site: Cluster) -> None:
    ends = {
        "completed 0": site.client.submit(["true"], gpus=0),
        "failed 7": site.client.submit(bash("exit 7"), gpus=0),
        "timeout 143": site.client.submit(["sleep", "60"], gpus=0, time_limit=1),
        "cancelled 143": (cancelled := site.client.submit(["sleep", "60"], gpus=0)),
    }
    site.wait_until(lambda: cancelled.refresh().state == JobState.RUNNING, "it runs")
    cancelled.cancel()
    for job in ends.values():
        job.wait(60)
    assert {end: notes_of(site, job) for end, job in ends.items()} == {end: [end] for end in ends}


def test_gpus_are_handed_on_only_after_the_epilog_and_an_agent_that_restarts_knows_of_it(
    site: Cluster, tmp_path: Path
) -> None:
    go, begun = tmp_path / "go", tmp_path / "begun"
    first = site.client.submit(
        ["true"], gpus=1, epilog=f"touch {begun}; until test -e {go}; do sleep 0.05; done; echo tidied"
    )
    second = site.client.submit(bash("test -e {go}", go=go), gpus=1)
    site.wait_until(begun.exists, "the epilog runs")
    site.kill("n1")
    site.start_node("n1", 1)
    assert not first.refresh().state.is_final
    assert second.refresh().state == JobState.QUEUED
    go.touch()
    assert first.wait(60).state == JobState.COMPLETED
    assert second.wait(60).state == JobState.COMPLETED
    assert first.output() == "tidied\n"


def test_an_epilog_that_takes_too_long_is_ended_and_the_gpu_handed_on(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_master("--MgpuApp.hook_limit=5")
    cluster.start_node("n1", 1)
    pid = tmp_path / "pid"
    first = cluster.client.submit(
        ["true"], gpus=1, epilog=f"echo $$ > {pid}; echo begun; sleep 3600; echo never"
    )
    second = cluster.client.submit(["true"], gpus=1)
    assert first.wait(60).state == JobState.COMPLETED, first.info
    assert first.output() == "begun\n"
    assert not Path(f"/proc/{pid.read_text().strip()}").exists()
    assert second.wait(60).state == JobState.COMPLETED, second.info


def test_a_cancel_in_a_prolog_starts_nothing(site: Cluster, tmp_path: Path) -> None:
    begun, ran = tmp_path / "begun", tmp_path / "ran"
    job = site.client.submit(["touch", str(ran)], gpus=0, prolog=f"touch {begun}; sleep 60")
    site.wait_until(begun.exists, "the prolog runs")
    job.cancel()
    assert job.wait(60).state == JobState.CANCELLED
    assert wait_for_notes(site, job) == ["cancelled 1"]
    assert not ran.exists()


def test_after_a_lost_node_the_epilog_runs_at_its_return(site: Cluster) -> None:
    """Agent, keeper and what watches over them are killed at once, as when the machine is reset."""
    job = site.client.submit(["sleep", "300"], gpus=1, requeue=False)
    site.wait_until(lambda: job.refresh().state == JobState.RUNNING, "it runs")
    mine = [
        process
        for process in processes_of(site.state)
        if str(site.state / "nodes") in " ".join(process.cmdline())
    ]
    for process in [psutil.Process(site.pid("n1")), *mine]:
        process.send_signal(signal.SIGSTOP)
    for process in mine:
        process.send_signal(signal.SIGKILL)
    site.kill("n1")
    site.start_node("n1", 1)
    assert wait_for_notes(site, job) == ["lost 137"]
    assert job.wait(60).state == JobState.FAILED
    assert notes_of(site, job) == ["lost 137"]
