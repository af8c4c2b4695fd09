"""Several processes of an attempt on one node: each with its rank, its end and its environment."""

from __future__ import annotations

from msgspec.structs import replace

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.scheduler.commands import LaunchTask, StopTask
from mgpu_jupyter.scheduler.events import (
    CancelRequested,
    LaunchWasRefused,
    NodeDeclaredLost,
    NodeJoined,
    TaskReported,
)
from mgpu_jupyter.scheduler.launch import launch_spec
from mgpu_jupyter.scheduler.model import ArrayPart, Policy, StopCause
from tests.builders import Cluster, ended, facts, status

POLICY = Policy(kill_grace_s=5.0)


def two_by_two(**spec):
    """Return a cluster of two nodes and a job with two ranks on each."""
    cluster = Cluster(("n1", 4), ("n2", 4), policy=POLICY)
    return cluster, cluster.started(**{"nodes": 2, "gpus_per_node": 2, "ntasks_per_node": 2, **spec})


def report(cluster, *statuses, at=20.0):
    return [command for one in statuses for command in cluster.tell(TaskReported(at=at, status=one))]


def running(**spec):
    cluster, job = two_by_two(**spec)
    report(cluster, *(status(job, rank) for rank in range(4)))
    return cluster, cluster.job(job.id)


def test_each_node_has_its_own_ranks():
    _, job = two_by_two()
    assert [(one.node_id, list(one.ranks)) for one in job.placements] == [("n1", [0, 1]), ("n2", [2, 3])]
    assert job.world_size == 4


def files_of(job):
    """Return the files of each rank, as stream, path and whether it is added to."""
    launches = (launch_spec(job, placement, 5.0) for placement in job.placements)
    return [
        [(file.stream, file.path, file.append) for file in task.files]
        for launch in launches
        for task in launch.tasks
    ]


def test_each_rank_writes_to_its_files_and_what_they_share_is_never_emptied():
    _, job = two_by_two(stdout_file="%j-%t.out", stderr_file="%N.err")
    assert files_of(job) == [
        [(1, f"{job.id}-{rank}.out", False), (2, f"{node}.err", True)]
        for rank, node in enumerate(("n1", "n1", "n2", "n2"))
    ]


def test_errors_go_where_output_goes_unless_they_have_a_file_of_their_own():
    _, job = two_by_two(nodes=1, ntasks_per_node=1, stdout_file="o", open_mode="append")
    assert files_of(job) == [[(1, "o", True), (2, "o", True)]]
    _, job = two_by_two(nodes=1, ntasks_per_node=1, stderr_file="e")
    assert files_of(job) == [[(2, "e", False)]]
    _, job = two_by_two()
    assert files_of(job) == [[], [], [], []]


def test_of_mpi_the_first_rank_has_all_output():
    _, job = two_by_two(ntasks_per_node=None, mpi=True, stdout_file="o")
    assert files_of(job) == [[(1, "o", False), (2, "o", False)], []]


def test_a_job_of_an_array_writes_to_files_of_its_own_number():
    cluster = Cluster(("n1", 4), policy=POLICY)
    job = replace(cluster.started(stdout_file="%A_%2a", stderr_file="all"), array=ArrayPart("ARRAY123", 3))
    assert files_of(job) == [[(1, "ARRAY123_03", False), (2, "all", True)]]


def test_a_job_runs_when_all_its_ranks_do_and_is_over_when_all_ended():
    cluster, job = two_by_two()
    report(cluster, *(status(job, rank) for rank in (0, 1, 2)))
    assert cluster.job(job.id).state is JobState.STARTING
    report(cluster, status(job, 3))
    assert cluster.job(job.id).state is JobState.RUNNING

    report(cluster, *(ended(job, rank) for rank in (3, 0, 1)))
    assert cluster.job(job.id).open_ranks == {2}
    (save,) = report(cluster, ended(job, 2))
    assert (save.job.state, save.job.exit_code) == (JobState.COMPLETED, 0)


def test_a_rank_that_fails_ends_the_others_and_is_the_one_that_is_named():
    cluster, job = running()

    _, *stops = report(cluster, ended(job, 3, exit_code=7, at=21.0), at=21.5)
    assert stops == [
        StopTask(
            NodeId(node), job.attempt_key, 5.0, "Rank 3 ended with exit code 7 on n2.", StopCause.RANK_FAILED
        )
        for node in ("n1", "n2")
    ]
    others = [ended(job, rank, exit_code=None, signal=15, at=22.0, reason=stops[0].reason) for rank in (0, 1)]
    report(cluster, *others)
    (save,) = report(cluster, ended(job, 2, exit_code=1, at=21.7))

    assert (save.job.state, save.job.exit_code, save.job.reason.text) == (
        JobState.FAILED,
        7,
        "Rank 3 ended with exit code 7 on n2.",
    )


def test_a_report_of_a_rank_that_another_node_has_changes_nothing():
    cluster, job = two_by_two()
    _, mismatch, stop = report(cluster, replace(status(job, 1), node_id=NodeId("n2")))
    assert ("Rank 1" in mismatch.text, stop.node_id) == (True, "n2")


def test_a_refusal_is_for_all_ranks_of_its_node():
    cluster, job = two_by_two()
    report(cluster, status(job, 0), status(job, 1))
    refusal = LaunchWasRefused(
        at=20.0, node_id=NodeId("n2"), key=job.attempt_key, code="no-directory", message="No.", fault="node"
    )
    cluster.tell(refusal)

    after = cluster.job(job.id)
    assert (after.refused, after.open_ranks, after.state) == ((2, 3), {0, 1}, JobState.STOPPING)


def test_a_node_that_is_given_up_takes_its_ranks_with_it():
    cluster, job = running()
    report(cluster, ended(job, 2))
    cluster.tell(NodeDeclaredLost(at=30.0, node_id=NodeId("n2"), reason="gone"))

    after = cluster.job(job.id)
    assert (after.refused, [one.node_id for one in after.live_placements]) == ((3,), ["n1"])


def test_a_node_that_tells_of_one_rank_is_asked_for_no_other():
    cluster, job = two_by_two()

    def rejoin(*tasks, incarnation="boot-1/ledger-1"):
        event = NodeJoined(
            at=30.0, node_id=NodeId("n1"), facts=facts("n1", 4, incarnation=incarnation), tasks=tasks
        )
        return cluster.tell(event)[1:]

    assert rejoin() == [LaunchTask(launch_spec(job, job.placements[0], 5.0))]
    assert not [command for command in rejoin(status(job, 0)) if isinstance(command, LaunchTask)]
    rejoin(incarnation="boot-2/ledger-1")
    assert cluster.job(job.id).refused == (0, 1)


def test_ranks_that_a_ledger_lost_with_the_power_are_lost_too():
    """A ledger that was cut off within one launch knows of some of its ranks; in a new boot nothing of the
    others can run.
    """
    cluster = Cluster(("n1", 4))
    job = cluster.started(gpus=1, ntasks_per_node=2)
    report(cluster, status(job, 0), status(job, 1))
    told = ended(job, 0, lost=True, reason="The node was started anew.", exit_code=None, signal=9)

    record, save = cluster.join("n1", 4, at=30.0, incarnation="boot-2/ledger-1", tasks=(told,))[-2:]

    assert (record.job.refused, save.job.state, save.job.placements) == ((1,), JobState.QUEUED, ())


def test_ranks_that_a_cancelled_job_lost_with_the_power_do_not_keep_it():
    cluster = Cluster(("n1", 4))
    job = cluster.started(gpus=1, ntasks_per_node=2)
    report(cluster, status(job, 0), status(job, 1))
    cluster.tell(CancelRequested(at=25.0, job_id=job.id, by="ann"))

    *_, save = cluster.join(
        "n1", 4, at=30.0, incarnation="boot-2/ledger-1", tasks=(ended(job, 0, lost=True, signal=9),)
    )

    assert save.job.state is JobState.CANCELLED


# --- what processes are told -----------------------------------------------------------------------


def environments(job):
    """Return what each rank would find, by rank."""
    found = {}
    for placement in job.placements:
        spec = launch_spec(job, placement, 5.0)
        found |= {task.rank: {**spec.defaults, **spec.env, **task.env} for task in spec.tasks}
    return found


def test_ranks_of_a_distributed_job():
    _, job = two_by_two(
        distributed=True,
        ntasks_per_node=None,
        cpus=6,
        env={"RANK": "9", "OMP_NUM_THREADS": "7", "MGPU_NNODES": "9"},
    )
    told = environments(job)
    assert [told[rank]["RANK"] for rank in range(4)] == ["0", "1", "2", "3"]
    names = (
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "GROUP_RANK",
        "OMP_NUM_THREADS",
        "MGPU_NODE_RANK",
        "MGPU_NNODES",
    )
    assert [told[3][name] for name in names] == ["1", "4", "2", "1", "1", "7", "1", "2"]
    assert told[3]["MGPU_NPROC_PER_NODE"] == "2"
    meeting = ("MASTER_ADDR", "MASTER_PORT", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME")
    assert [told[3][name] for name in meeting] == ["n1.a", "20001", "eth0", "eth0"]
    assert not [name for name in told[3] if name.startswith("PET_")]


def test_threads_are_shared_by_the_ranks_of_a_node():
    assert [
        environments(two_by_two(distributed=True, cpus=cpus)[1])[0]["OMP_NUM_THREADS"] for cpus in (6, 0)
    ] == ["3", "1"]
    assert "OMP_NUM_THREADS" not in environments(two_by_two(distributed=True, ntasks_per_node=1)[1])[0]


def test_a_launcher_on_each_node():
    _, job = two_by_two(distributed=True, command=("torchrun", "train.py"), ntasks_per_node=None)
    told = environments(job)
    assert job.world_size == 2
    assert {name: value for name, value in told[1].items() if name.startswith("PET_")} == {
        "PET_NODE_RANK": "1",
        "PET_NNODES": "2",
        "PET_NPROC_PER_NODE": "2",
        "PET_RDZV_ID": f"{job.id}.1",
        "PET_MASTER_ADDR": "n1.a",
        "PET_MASTER_PORT": "20001",
        "PET_RDZV_ENDPOINT": "n1.a:20001",
    }
    assert ("RANK" in told[1], told[1]["MGPU_NPROC_PER_NODE"]) == (False, "2")


def test_names_that_scripts_for_slurm_know():
    _, job = two_by_two(name="train", cpus=4, cwd="/data")
    told = environments(job)[3]
    slurm = {name.removeprefix("SLURM_"): value for name, value in told.items() if name.startswith("SLURM")}
    assert slurm == {
        "JOB_ID": "1",
        "JOBID": "1",
        "JOB_NAME": "train",
        "JOB_USER": "ann",
        "SUBMIT_DIR": "/data",
        **dict.fromkeys(("JOB_NUM_NODES", "NNODES", "STEP_NUM_NODES"), "2"),
        **dict.fromkeys(("JOB_NODELIST", "NODELIST", "STEP_NODELIST"), "n1,n2"),
        **dict.fromkeys(("NTASKS", "NPROCS", "STEP_NUM_TASKS"), "4"),
        **dict.fromkeys(("TASKS_PER_NODE", "STEP_TASKS_PER_NODE"), "2(x2)"),
        "STEP_ID": "0",
        "STEPID": "0",
        "NODEID": "1",
        "RESTART_COUNT": "0",
        "NTASKS_PER_NODE": "2",
        "PROCID": "3",
        "LOCALID": "1",
        "GPUS_ON_NODE": "2",
        "JOB_GPUS": "0,1",
        "STEP_GPUS": "0,1",
        "CPUS_ON_NODE": "4",
        "CPUS_PER_TASK": "2",
        "SLURMD_NODENAME": "n2",
    }


def test_unlike_nodes():
    cluster = Cluster(("n1", 4), ("n2", 4))
    job = cluster.started(node_gpu_ids={"n1": (0, 1), "n2": (2,)}, distributed=True)
    told = environments(job)
    assert [(told[rank]["LOCAL_WORLD_SIZE"], told[rank]["SLURM_TASKS_PER_NODE"]) for rank in range(3)] == [
        ("2", "2,1")
    ] * 2 + [("1", "2,1")]
    assert "SLURM_NTASKS_PER_NODE" not in told[0]


def test_a_job_of_one_process_is_not_taken_for_one_of_slurm():
    cluster = Cluster(("n1", 4))
    assert not [name for name in environments(cluster.started(gpus=2))[0] if name.startswith("SLURM")]


def test_accelerate_takes_flags_for_what_torchrun_takes_from_variables():
    _, job = two_by_two(distributed=True, command=("accelerate", "launch", "train.py"), ntasks_per_node=None)
    flags = (
        "--num_machines 2 --machine_rank 1 --num_processes 4 --main_process_ip n1.a --main_process_port 20001"
    )
    words = f"accelerate launch {flags} --mixed_precision no --dynamo_backend no --multi_gpu train.py"
    assert launch_spec(job, job.placements[1], 5.0).argv == tuple(words.split())
    _, job = two_by_two(
        distributed=True, command=("accelerate", "launch", "--cpu", "train.py"), ntasks_per_node=None
    )
    assert "--multi_gpu" not in launch_spec(job, job.placements[1], 5.0).argv


def test_a_job_with_an_image_is_words_around_its_command():
    cluster = Cluster(("n1", 1))
    job = cluster.started(image="me/img:1")
    spec = launch_spec(job, job.placements[0], 15.0)
    assert (spec.argv[0], spec.argv[3:], spec.script) == (
        "bash",
        ("mgpu-image", "me/img:1", *job.spec.command),
        None,
    )
