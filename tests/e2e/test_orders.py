"""Arrays, chains, holds, quotas, requeue and preemption with a real master and agents with simulated GPUs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import Conflict
from mgpu_jupyter.client.array import JobArray
from mgpu_jupyter.model.job import JobState
from tests.e2e.cluster import BIN, Cluster, bash

SETTINGS = (
    "--MgpuApp.kill_grace=5",
    (
        "--MgpuApp.qos={'spare': {'priority': -10, 'preemptible': True, 'grace_s': 20}, 'urgent': "
        "{'priority': "
        "1000}}"
    ),
    "--MgpuApp.accounts={'small': {'quota': {'gpus': 2}}}",
    "--MgpuApp.scheduling={'preemption': True, 'quota': {'queued': 50}}",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("site") / "cluster") as cluster:
        cluster.start_master(*SETTINGS)
        cluster.start_node("n1")
        yield cluster


@pytest.fixture
def cluster(site: Cluster) -> Iterator[Cluster]:
    yield site
    for job in site.client.jobs(state="active"):
        job.cancel()
    site.wait_until(lambda: not list(site.client.jobs(state="active")), "nothing runs any more")


def run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [BIN / "mgpu", *words], env=cluster.env, capture_output=True, text=True, timeout=120, check=False
    )


def test_an_array_runs_at_most_its_throttle_at_once_and_all_of_it(cluster: Cluster, tmp_path: Path) -> None:
    """Each job notes how many of them were under way when it started; the first one waits until it was
    two.
    """
    script = bash(
        "mkdir {here}/$MGPU_ARRAY_TASK_ID && ls {here} | wc -l >> {seen}; until [ $(sort -n {seen} | tail "
        "-1) -ge 2 ]; do sleep 0.05; done"
        "; sleep 0.3 && rmdir {here}/$SLURM_ARRAY_TASK_ID"
        " && echo $MGPU_ARRAY_JOB_ID $MGPU_ARRAY_TASK_ID of $MGPU_ARRAY_TASK_COUNT from "
        "$SLURM_ARRAY_TASK_MIN to $SLURM_ARRAY_TASK_MAX",
        here=tmp_path / "here",
        seen=tmp_path / "seen",
    )
    (tmp_path / "here").mkdir()
    array = cluster.client.submit(script, gpus=1, array="2-7%2")
    assert isinstance(array, JobArray)
    array.wait(60)

    assert [job.state for job in array.jobs] == [JobState.COMPLETED] * 6
    assert array.output().splitlines() == [f"{array.id} {index} of 6 from 2 to 7" for index in range(2, 8)]
    assert max(map(int, (tmp_path / "seen").read_text().split())) == 2


def test_an_array_from_the_command_line_is_shown_and_cancelled_as_one(cluster: Cluster) -> None:
    said = run(cluster, "srun", "--array", "1-20%1", "--", "sleep", "3600")
    array_id = said.stdout.split()[3]
    assert said.stdout.startswith(f"Job submitted. ID: {array_id} (array of 20 jobs, priority=0)")
    cluster.wait_until(
        lambda: f"ID: {array_id}[2-20]" in run(cluster, "queue").stdout, "nineteen wait as one"
    )
    assert run(cluster, "cancel", array_id).stdout == f"Array {array_id} (20 jobs) cancelled successfully.\n"
    cluster.wait_until(
        lambda: all(job.state.is_final for job in cluster.client.jobs(array=array_id)), "all of it is over"
    )
    assert {job.state for job in cluster.client.jobs(array=array_id)} == {JobState.CANCELLED}


def test_a_chain_goes_on_after_success_and_falls_after_failure(cluster: Cluster, tmp_path: Path) -> None:
    go = tmp_path / "go"
    first = cluster.client.submit(bash("while [ ! -e {go} ]; do sleep 0.05; done", go=go))
    second = cluster.client.submit(["false"], dependency=f"afterok:{first.id}")
    third = cluster.client.submit(["true"], dependency=f"afterok:{second.id}")
    cleanup = cluster.client.submit(["true"], dependency=f"afternotok:{second.id}:{third.id}")
    waits = f"It waits for other jobs: afterok:{first.id}."
    cluster.wait_until(lambda: second.info.reason == waits, waits)

    go.touch()
    cleanup.wait(60)

    assert [job.state for job in (first, second, third, cleanup)] == [
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.COMPLETED,
    ]
    assert third.info.reason == f"It waited for job {second.id} to succeed, and that one failed."
    with pytest.raises(Conflict, match="can never hold"):
        cluster.client.submit(["true"], dependency=f"afterok:{second.id}")


def test_hold_release_update_and_requeue_from_the_command_line(cluster: Cluster) -> None:
    job = cluster.client.submit(["sleep", "3600"], hold=True)
    assert (
        run(cluster, "update", job.id, "--priority", "7", "--time", "00:01:00").stdout
        == f"Job {job.id} changed.\n"
    )
    assert (job.info.reason_code, job.info.priority, job.info.time_limit_s) == ("held", 7, 60.0)
    assert run(cluster, "release", job.id).stdout == f"Job {job.id} released.\n"
    cluster.wait_until(lambda: job.state is JobState.RUNNING, "it runs")
    refused = run(cluster, "hold", job.id)
    assert (refused.returncode, refused.stderr.split(":")[0]) == (1, f"Job {job.id} has started")

    assert run(cluster, "requeue", job.id).stdout == f"Job {job.id} queued again.\n"
    cluster.wait_until(lambda: job.info.attempt == 2 and job.state is JobState.RUNNING, "it runs again")
    # A shorter limit of a running job ends it.
    assert run(cluster, "update", job.id, "--time-limit", "0.5").returncode == 0
    assert job.wait(60).state is JobState.TIMEOUT


def test_a_quota_makes_a_job_wait_or_refuses_it(cluster: Cluster) -> None:
    with pytest.raises(Conflict, match="account small may have 2 at once"):
        cluster.client.submit(["true"], gpus=3, account="small")
    first = cluster.client.submit(["sleep", "3600"], gpus=2, account="small")
    second = cluster.client.submit(["true"], gpus=1, account="small")
    cluster.wait_until(lambda: first.state is JobState.RUNNING, "the first runs")
    cluster.wait_until(lambda: second.info.reason_code == "quota", "the second waits")
    assert second.info.reason == "Account small may have 2 GPUs at once and has 2; this asks for 1."
    with pytest.raises(Conflict, match="may have 50 jobs waiting"):
        cluster.client.submit(["true"], array="1-60")
    first.cancel()
    assert second.wait(60).state is JobState.COMPLETED


def test_a_running_job_is_preempted_waits_and_runs_again(cluster: Cluster, tmp_path: Path) -> None:
    """It has its grace to save its work, and finishes from there."""
    saved = tmp_path / "saved"
    script = (
        "if [ -e {saved} ]; then exit 0; fi; trap 'touch {saved}; exit 0' TERM; echo ready; while :; "
        "do sleep 0.05; done"
    )
    victim = cluster.client.submit(bash(script, saved=saved), gpus=4, qos="spare")
    cluster.wait_until(lambda: "ready" in victim.output(), "the victim runs")

    urgent = cluster.client.submit(["sleep", "0.2"], gpus=4, qos="urgent")

    assert urgent.wait(60).state is JobState.COMPLETED
    assert saved.exists()
    assert victim.wait(60).state is JobState.COMPLETED
    assert (victim.info.attempt, victim.info.preempted) == (2, 1)
    assert urgent.info.ended_at is not None
    assert victim.info.started_at is not None
    assert victim.info.started_at >= urgent.info.ended_at - 0.5


def test_held_jobs_waits_and_throttles_survive_the_end_of_the_master(cluster: Cluster) -> None:
    blocker = cluster.client.submit(["sleep", "3600"], gpus=4)
    cluster.wait_until(lambda: blocker.state is JobState.RUNNING, "it runs")
    held = cluster.client.submit(["true"], hold=True)
    array = cluster.client.submit(["true"], array="1-3%1", dependency=f"after:{held.id}")
    assert isinstance(array, JobArray)
    cluster.kill("master")
    cluster.start_master(*SETTINGS)
    cluster.wait_until(lambda: cluster.node_states() == {"n1": "online"}, "the node is back")

    cluster.wait_until(lambda: held.info.reason_code == "held", "the one is still held")
    cluster.wait_until(lambda: array.jobs[0].info.reason_code == "dependency", "the others still wait for it")
    held.release()
    blocker.cancel()
    array.wait(60)
    assert [job.state for job in (held, *array.jobs)] == [JobState.COMPLETED] * 4
