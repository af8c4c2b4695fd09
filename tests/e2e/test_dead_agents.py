"""What the death of an agent must not cost: jobs that come afterwards start elsewhere at once, and those that
it had been given start within seconds.
"""

from __future__ import annotations

from pathlib import Path

from tests.e2e.cluster import Cluster, bash


def places(cluster: Cluster) -> list[tuple[str, tuple[str, ...], int | None]]:
    """Return where each job ran and how it ended, in the order of submission."""
    jobs = sorted(cluster.client.jobs(), key=lambda job: job.info.submitted_at)
    return [(job.state, tuple(job.info.nodes), job.info.exit_code) for job in jobs]


def test_jobs_go_to_living_nodes_as_soon_as_an_agent_is_killed(cluster: Cluster) -> None:
    cluster.start_master()
    cluster.start_node("n1", 1)
    cluster.start_node("n2", 1)
    cluster.kill("n1")
    cluster.wait_until(lambda: cluster.node_states()["n1"] == "suspect", "the master sees that it is gone")
    jobs = [cluster.client.submit(["true"], gpus=1) for _ in range(4)]
    for job in jobs:
        job.wait()

    assert places(cluster) == [("completed", ("n2",), 0)] * 4


def test_a_job_that_a_killed_agent_was_given_runs_once_when_the_agent_is_back(
    cluster: Cluster, tmp_path: Path
) -> None:
    cluster.start_master()
    cluster.start_node("n1", 2, restart=True)
    ran = tmp_path / "ran"
    for number in range(5):
        job = cluster.client.submit(bash("echo {number} >> {ran}", number=number, ran=ran), gpus=1)
        cluster.kill_agent("n1")
        job.wait()

    assert (ran.read_text(), places(cluster)) == ("0\n1\n2\n3\n4\n", [("completed", ("n1",), 0)] * 5)
