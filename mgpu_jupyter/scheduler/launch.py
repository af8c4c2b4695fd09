"""What a node is told to run: a job and one of its placements as a `LaunchSpec`. Pure."""

from __future__ import annotations

from mgpu_agent.protocol.model import (
    STDERR,
    STDOUT,
    HookSpec,
    LaunchSpec,
    OutputFile,
    PythonWish,
    TaskSpec,
)
from mgpu_jupyter.model.image import in_container
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.model.launchers import Launcher, launcher_of, with_flags, workers_on
from mgpu_jupyter.model.output_files import is_shared, name_of, values_of
from mgpu_jupyter.model.sweep import variables_of, words_of
from mgpu_jupyter.scheduler.model import Job, Placement, Policy
from mgpu_jupyter.scheduler.ranks import (
    default_environment,
    node_environment,
    own_environment,
    task_environment,
)

KINDS_OF_LAUNCH = (
    "--multi_gpu",
    "--cpu",
    "--tpu",
    "--use_deepspeed",
    "--use_fsdp",
    "--use_megatron_lm",
    "--config_file",
)
"""With one of these the user chooses what accelerate does; it accepts only one of them."""


def launch_spec(
    job: Job, placement: Placement, kill_grace_s: float, hooks: tuple[HookSpec, ...] = ()
) -> LaunchSpec:
    """Return the launch of what one node runs of the job's current attempt."""
    spec = job.spec
    words = _words(job, placement)
    return LaunchSpec(
        key=job.attempt_key,
        node_id=placement.node_id,
        incarnation=placement.incarnation,
        user=job.user,
        tasks=tuple(
            TaskSpec(
                rank=rank,
                env=task_environment(job, placement, rank),
                files=_files(job, placement, rank) if spec.stdout_file or spec.stderr_file else (),
            )
            for rank in placement.ranks
        ),
        gpus=placement.gpus,
        argv=in_container(spec, words) if spec.image else words,
        script=None if spec.image else spec.script,
        python=PythonWish(
            path=spec.python, kernel_path=spec.kernel_python, kernel_version=spec.kernel_python_version
        ),
        env={
            **node_environment(job, placement),
            **spec.env,
            **own_environment(job, placement),
            **_array_environment(job),
        },
        cwd=spec.cwd,
        kill_grace_s=kill_grace_s,
        lease_s=job.lease_s,
        stdin=spec.stdin,
        pty=spec.pty,
        rows=spec.terminal[0],
        columns=spec.terminal[1],
        setup=spec.env_setup_cmd,
        defaults=default_environment(job, placement),
        debug=spec.debug,
        folder=spec.sync,
        results=spec.results,
        hooks=hooks,
        mpi=spec.mpi,
        inputs=spec.inputs,
        outputs=spec.outputs,
        outputs_limit_bytes=spec.outputs_limit_bytes if spec.outputs else 0,
        container=bool(spec.image),
        cpus=placement.cpus,
        mem_bytes=placement.mem_bytes,
    )


def _words(job: Job, placement: Placement) -> tuple[str, ...]:
    """Return the command; accelerate takes by flags alone what torchrun reads from variables."""
    spec, met = job.spec, job.rendezvous
    words = words_of(spec, job.array.index if job.array else None)
    if met is None or launcher_of(spec) is not Launcher.ACCELERATE:
        return words
    workers = sum(workers_on(spec, len(one.gpus)) for one in job.placements)
    flags = [
        "--num_machines",
        str(len(job.placements)),
        "--machine_rank",
        str(job.placements.index(placement)),
    ]
    flags += [
        "--num_processes",
        str(workers),
        "--main_process_ip",
        met.address,
        "--main_process_port",
        str(met.port),
    ]
    flags += ["--mixed_precision", "no", "--dynamo_backend", "no"]  # its own defaults, without the warning
    if workers > 1 and not any(name in word for word in words for name in KINDS_OF_LAUNCH):
        flags.append("--multi_gpu")
    return with_flags(words, flags)


def _files(job: Job, placement: Placement, rank: int) -> tuple[OutputFile, ...]:
    """Return the files that one process writes to; of a job with `--mpi` the first one has all output."""
    spec, part = job.spec, job.array
    if spec.mpi and rank:
        return ()
    node = (placement.node_id, job.placements.index(placement))
    array = None if part is None else (part.id, part.index)
    values = values_of(job.id, spec.name, job.user, array=array, node=node, rank=rank)

    def file(stream: int, pattern: str) -> OutputFile:
        tasks, nodes = (1, 1) if spec.mpi else (job.world_size, len(job.placements))
        shared = is_shared(pattern, tasks=tasks, nodes=nodes, in_array=part is not None)
        return OutputFile(stream, name_of(pattern, values), append=spec.open_mode == "append" or shared)

    wanted = ((STDOUT, spec.stdout_file), (STDERR, spec.stderr_file or spec.stdout_file))
    return tuple(file(stream, pattern) for stream, pattern in wanted if pattern)


def hooks_of(spec: JobSpec, policy: Policy) -> tuple[HookSpec, ...]:
    """Return the hooks in order: the site's prolog first, its epilog last."""
    wanted = (
        HookSpec("prolog", policy.prolog, site=True, limit_s=policy.hook_s),
        HookSpec("prolog", spec.prolog, limit_s=policy.hook_s),
        HookSpec("epilog", spec.epilog, limit_s=policy.hook_s),
        HookSpec("epilog", policy.epilog, site=True, limit_s=policy.hook_s),
    )
    return tuple(hook for hook in wanted if hook.command)


def _array_environment(job: Job) -> dict[str, str]:
    """Return the variables that tell a job of an array which one it is; also by the names that scripts for
    Slurm know.
    """
    part = job.array
    if part is None:
        return {}
    values = {
        "JOB_ID": part.id,
        "TASK_ID": part.index,
        "TASK_COUNT": part.count,
        "TASK_MIN": part.first,
        "TASK_MAX": part.last,
    }
    named = {
        f"{family}_ARRAY_{name}": str(value) for family in ("MGPU", "SLURM") for name, value in values.items()
    }
    return named | variables_of(job.spec, part.index)
