"""What ran otherwise than was assigned: told once, kept with the job, and no job ends for it."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.commands import ReportMismatch, SaveJob, SaveNode
from mgpu_jupyter.scheduler.events import NodeMisnamed, TaskReported
from mgpu_jupyter.scheduler.mismatches import KEPT
from tests.builders import Cluster, ended, status


def report(cluster, told):
    return cluster.tell(TaskReported(at=20.0, status=told))


def test_another_host_or_address_than_the_nodes_own_is_told_once_and_kept_to_the_end():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    host, address, save = report(cluster, status(job, host="elsewhere", address="192.0.2.9"))
    over = report(cluster, ended(job, host="elsewhere", address="192.0.2.9"))

    who = f"Rank 0 of job {job.id} (attempt 1)"
    texts = (
        f"{who} ran on host elsewhere, but was assigned to n1, which said that it is host host-n1.",
        f"{who} ran at 192.0.2.9, but was assigned to n1, which said that it is at 127.0.0.1.",
    )
    assert (host.text, address.text) == texts
    assert (save.job.state, save.job.mismatches) == (JobState.RUNNING, texts)
    assert [(type(one), one.job.state, one.job.mismatches) for one in over] == [
        (SaveJob, JobState.COMPLETED, texts)
    ]


def test_other_gpus_than_assigned_are_named():
    cluster = Cluster(("n1", 2))
    job = cluster.started()

    mismatch, _ = report(cluster, status(job, gpus=()))

    text = f"Rank 0 of job {job.id} (attempt 1) ran with no GPU on n1, but was assigned GPU-n1-0."
    assert mismatch.text == text


def test_a_job_keeps_the_first_few_sentences_alone():
    cluster = Cluster(("n1", 1))
    job = cluster.started()

    told = [report(cluster, replace(ended(job), node_id=NodeId(f"m{number}"))) for number in range(KEPT + 2)]

    assert [len(commands) for commands in told] == [2] * KEPT + [0] * 2
    assert len(cluster.job(job.id).mismatches) == KEPT


def test_an_agent_that_calls_itself_something_else_is_told_of_with_what_it_runs():
    cluster = Cluster(("n1", 2))
    first, second, queued = cluster.started(), cluster.started(), cluster.submit(gpus=9, wait_for_nodes=True)
    text = "The agent with the key of n1 said that it is n2."

    one = cluster.tell(NodeMisnamed(at=20.0, node_id=NodeId("n1"), said="n2", key=first.attempt_key))
    all_ = cluster.tell(NodeMisnamed(at=20.0, node_id=NodeId("n1"), said="n2"))

    about = [f"Job {job.id} (attempt 1): {text}" for job in (first, second)]
    assert [command for command in one if not isinstance(command, SaveJob)] == [
        SaveNode(NodeId("n1")),
        ReportMismatch(replace(first, mismatches=(about[0],)), about[0]),
    ]
    assert [command.text for command in all_ if isinstance(command, ReportMismatch)] == [about[1]]
    assert cluster.state.nodes[NodeId("n1")].mismatch == text
    assert cluster.job(queued).mismatches == ()
    assert cluster.tell(NodeMisnamed(at=20.0, node_id=NodeId("n9"), said="n2")) == []
    cluster.join("n1", 2)
    assert cluster.state.nodes[NodeId("n1")].mismatch == text
