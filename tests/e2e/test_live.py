"""Live figures on a real cluster: the mirror of a kernel, readings on the right GPUs, usage, histories, and a
master that was away.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from mgpu_jupyter.api.histories import ClusterHistory, JobUsage
from mgpu_jupyter.client.job import Job
from mgpu_jupyter.client.live import Changes, LiveState, Mirror, Reader, View, mirror_of
from tests.e2e.cluster import Cluster

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("live")) as cluster:
        cluster.start_master()
        cluster.start_node("n1", 4)
        cluster.start_node("n2", 4)
        yield cluster


@pytest.fixture
def reader(cluster: Cluster) -> Iterator[Reader]:
    with mirror_of(cluster.client).reader(per_second=20.0) as reader:
        cluster.wait_until(lambda: reader.view.state is LiveState.LIVE, "the mirror is live")
        yield reader


def busy_of(view: View, node: str) -> list[int]:
    return [round(gpu.utilisation_percent or 0) for gpu in view.gpus(node)]


def half_idle(cluster: Cluster) -> Job:
    """Start a job that leaves two of its four GPUs idle."""
    return cluster.client.submit(SLEEP, gpus=4, nodelist="n1", env={"MGPU_SIMULATED_BUSY": "90,40,0"})


def said_idle(cluster: Cluster, job: Job) -> JobUsage:
    """Wait until that is said."""
    told = "GPUs 2 and 3 are idle so far. --gpus 2 would do."
    return cluster.wait_until(
        lambda: usage if (usage := job.usage()).hint == told and (usage.used or 0.0) > 0.5 else None,
        f"it is said: {told}",
    )


def test_readings_rise_on_the_gpus_of_the_job_as_its_processes_want(cluster: Cluster, reader: Reader) -> None:
    ended = sum(history_of(cluster).ended["cancelled"])
    job = half_idle(cluster)
    cluster.wait_until(
        lambda: (busy := busy_of(reader.view, "n1"))[0] > 70 and busy[1] > 25, "two GPUs are busy", 60
    )
    view = reader.view
    pid = view.jobs[job.id].placements[0].pid
    first = view.gpus("n1")[0]
    running = said_idle(cluster, job)
    job.cancel()
    over = cluster.wait_until(
        lambda: (seen := reader.view.jobs[job.id]).state.is_final and seen, "the mirror shows the end"
    )
    kept = job.usage()
    history = cluster.client.node_history("n1")
    past = history_of(cluster)

    assert busy_of(view, "n1")[2:] == [0, 0]
    assert busy_of(view, "n2") == [0, 0, 0, 0]
    assert (first.job_id, first.rank, first.simulated, [process.pid for process in first.processes]) == (
        job.id,
        0,
        True,
        [pid],
    )
    assert first.processes[0].name.startswith("python")
    assert [(usage.asked, 0.5 < (usage.used or 0.0) < 1.4) for usage in (running, kept)] == [(4, True)] * 2
    assert over.state == "cancelled"
    assert (kept.hint, [gpu.idle for gpu in kept.gpus]) == (
        "GPUs 2 and 3 were idle. --gpus 2 would have done.",
        [False, False, True, True],
    )
    assert max(value or 0 for value in history.gpus[0].busy) > 70
    assert max(value or 0 for value in history.gpus[3].busy) == 0
    assert sum(past.ended["cancelled"]) == ended + 1
    assert max(past.in_use) > 0
    assert job.summary().gpu_utilisation_percent is not None


def test_each_rank_has_its_own_gpus(cluster: Cluster, reader: Reader) -> None:
    job = cluster.client.submit(SLEEP, nodes=2, gpus_per_node=4, ntasks_per_node=2, distributed=True)

    def all_of_it() -> View | None:
        """Return a view in which each GPU has a process of this job, and none of a job before it."""
        view, pids = reader.view, {placement.pid for placement in job.info.placements}
        seen = [[one.pid for one in gpu.processes] for node in ("n1", "n2") for gpu in view.gpus(node)]
        return view if all(len(one) == 1 and one[0] in pids for one in seen) else None

    view = cluster.wait_until(all_of_it, "all GPUs have a process of the job", 60)
    info = job.info
    job.cancel()
    job.wait(60)
    pids = {placement.rank: placement.pid for placement in info.placements}
    first = {placement.node: placement.rank for placement in reversed(info.placements)}

    for node in ("n1", "n2"):
        ranks = [first[node], first[node], first[node] + 1, first[node] + 1]
        assert [gpu.rank for gpu in view.gpus(node)] == ranks
        assert [gpu.processes[0].pid for gpu in view.gpus(node)] == [pids[rank] for rank in ranks]


def test_the_queue_as_everybody_sees_it(cluster: Cluster, reader: Reader) -> None:
    holder = cluster.client.submit(SLEEP, nodes=2, gpus_per_node=4, time_limit=600)
    waiting = [cluster.client.submit(SLEEP, gpus=1, name=f"w{number}").id for number in range(20)]
    cluster.wait_until(lambda: list(reader.view.queue) == waiting, "all stand in the queue")

    def all_know() -> View | None:
        view = reader.view
        return (
            view
            if all((told := view.waiting(job_id)) and told.code == "busy" for job_id in waiting)
            else None
        )

    view = cluster.wait_until(all_know, "each knows why")
    told = view.waiting(waiting[4])
    cluster.client.job(waiting[19]).update(priority=1_000)
    cluster.wait_until(lambda: reader.view.queue[0] == waiting[19], "the last is the first")
    holder.cancel()
    cluster.wait_until(lambda: len(reader.view.queue) == 12, "eight have started")
    after = reader.view
    for job_id in waiting:
        cluster.client.job(job_id).cancel()
    cluster.wait_until(lambda: not reader.view.queue, "nobody waits")

    assert told is not None
    assert (told.place, told.of, told.code) == (5, 20, "busy")
    assert told.reason.startswith("Waits for 1 GPU free on one node")
    assert view.waiting(holder.id) is None
    assert list(after.queue) == waiting[7:19]
    assert after.waiting(waiting[0]) is None


def test_one_mirror_for_all_that_stops_with_its_last_reader(cluster: Cluster) -> None:
    mirror = mirror_of(cluster.client)
    heard: list[tuple[LiveState, Changes]] = []
    with mirror.reader(lambda view, changes: heard.append((view.state, changes)), per_second=20.0) as one:
        cluster.wait_until(
            lambda: heard and heard[-1][0] is LiveState.LIVE and one.view.state,
            "the mirror is live, and its reader knows",
        )
        with mirror_of(cluster.client).reader() as other:
            first = other.wait(60.0)
        threads = _threads()
    cluster.wait_until(lambda: not _threads() or None, "the thread ends")

    assert first is not None
    assert (first.state, first.nodes) == (True, {"n1", "n2"})
    assert threads == 1
    assert mirror.view.state is LiveState.STOPPED


def test_a_master_that_was_away_is_found_again(cluster: Cluster) -> None:
    ended = half_idle(cluster)
    said_idle(cluster, ended)
    ended.cancel()
    ended.wait(60)
    kept_at = (cluster.state / "logs").glob
    cluster.wait_until(
        lambda: any(path.stat().st_size for path in kept_at(f"*/{ended.id}.*.usage")), "what it used is kept"
    )
    known = cluster.wait_until(lambda: history_of(cluster).ended_total, "its end is in the past")
    mirror: Mirror = mirror_of(cluster.client)
    with mirror.reader(per_second=20.0) as reader:
        cluster.wait_until(lambda: reader.view.state is LiveState.LIVE, "the mirror is live")
        before = cluster.client.submit(SLEEP, gpus=1, name="before")
        cluster.wait_until(lambda: before.id in reader.view.jobs, "the job is seen")
        cluster.kill("master")
        cluster.wait_until(lambda: reader.view.state is LiveState.STALE, "the mirror knows that it is old")
        stale = reader.view
        cluster.start_master()
        mirror.retry()
        cluster.wait_until(lambda: reader.view.state is LiveState.LIVE, "the mirror is live again", 60)
        cluster.wait_until(
            lambda: reader.view.jobs[before.id].state == "running", "the job is seen to run", 60
        )
        before.cancel()
        cluster.wait_until(lambda: reader.view.jobs[before.id].state == "cancelled", "its end is seen")
    past = cluster.wait_until(
        lambda: found if (found := history_of(cluster)).ended_total > known else None,
        "the past is read from the store",
    )
    kept = ended.usage()

    assert stale.stale_since is not None
    assert stale.problem
    assert before.id in stale.jobs
    assert set(stale.nodes) == {"n1", "n2"}
    assert sum(past.ended["cancelled"]) == past.ended_total
    assert kept.hint == "GPUs 2 and 3 were idle. --gpus 2 would have done."


def history_of(cluster: Cluster) -> ClusterHistory:
    return cluster.client.cluster_history(span=3600, points=10)


def _threads() -> int:
    """Return how many mirrors run in this process."""
    return sum(thread.name == "mgpu-live" for thread in threading.enumerate())
