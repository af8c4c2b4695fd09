"""The routes about jobs. A part of the table in `routes.py`."""

from __future__ import annotations

from mgpu_jupyter.api import administration, files, frames, histories, models, requests, traces
from mgpu_jupyter.api.route import (
    ATTEMPT,
    CURSOR,
    FLAG,
    NDJSON,
    OFFSET,
    OFFSETS,
    POINTS,
    RANK,
    STATE,
    Kind,
    Parameter,
    Route,
    whole,
)
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec

JOB_ROUTES: tuple[Route, ...] = (
    Route(
        "GET",
        "jobs",
        "listJobs",
        "Jobs, newest first",
        response=models.JobList,
        query=(
            Parameter(
                "state",
                schema={"type": "string", "pattern": f"^({STATE}(,{STATE})*)?$"},
                help="One or several states, with commas between; `active` for all that are not final.",
            ),
            Parameter("user", help="Only jobs of this user."),
            Parameter("name", help="Only jobs of this name."),
            Parameter("array", help="Only jobs of the array of this id."),
            Parameter(
                "ids",
                schema={"type": "string", "pattern": models.IDS_PATTERN},
                help=f"Only these jobs, with commas between, at most {models.MAX_IDS}.",
            ),
            Parameter(
                "notebook", help="Only your own jobs that came from this notebook (`origin.notebook`)."
            ),
            Parameter(
                "since",
                schema={"type": "number", "minimum": 0, "maximum": models.MAX_TIME_S},
                help="Only jobs submitted at or after this time (seconds since 1970).",
            ),
            Parameter(
                "limit",
                schema=whole(1, models.MAX_PAGE),
                help=f"Size of the page, at most {models.MAX_PAGE}; 100 if left out.",
            ),
            Parameter("cursor", schema=CURSOR, help="`next_cursor` of the page before."),
        ),
    ),
    Route(
        "POST",
        "jobs",
        "submitJob",
        "Submit a job, which `Location` names; with the same Idempotency-Key it is the same job",
        status=201,
        request=JobSpec,
        example={"command": ["python", "train.py"], "gpus": 2, "name": "train"},
        response=requests.Submitted,
    ),
    Route(
        "POST",
        "jobs/bulk",
        "submitJobs",
        "Submit many jobs, all or none",
        status=201,
        request=requests.BulkSubmit,
        example={
            "jobs": [
                {"spec": {"command": ["true"], "gpus": 0}, "key": "one"},
                {"spec": {"script": "print(1)"}},
            ]
        },
        response=requests.BulkSubmitted,
    ),
    Route(
        "POST",
        "jobs/wait",
        "waitForJobs",
        "Stay until all of these jobs are over: a frame for all that changed, as lines of JSON; the stream "
        "ends with the last of them",
        kind=Kind.BYTES,
        request=requests.WaitRequest,
        example={"job_ids": ["K7QX2M4A", "K7QX2M4B"]},
        response=frames.WaitFrame,
    ),
    Route(
        "POST",
        "jobs/dry-run",
        "explainRequest",
        "Where and when a request would start, why not now, and what would; one that would be refused is "
        "explained too; nothing is submitted",
        request=JobSpec,
        example={"command": ["python", "train.py"], "gpus": 4, "exclude": ["n3"]},
        response=explanations.Explanation,
    ),
    Route(
        "POST",
        "jobs/parse",
        "parseLine",
        "The request that a line of flags and a command means, or one sentence; nothing of the server's own "
        "process (variables, directory) enters it, and nothing is submitted",
        request=requests.LineRequest,
        example={"line": "--gpus 2 -- python prepare.py && python train.py"},
        response=requests.LineAnswer,
    ),
    Route(
        "GET",
        "jobs/{job_id}/explain",
        "explainJob",
        "Why a job waits, per unit and node, when it is expected to start, what would start it now, and the "
        "last 50 changes of what it was told",
        response=explanations.Explanation,
    ),
    Route(
        "GET",
        "jobs/{job_id}/trace",
        "traceJob",
        "The whole way of a job: when, where, by which process, what it waited for, and whether "
        "that is what was assigned",
        response=traces.Trace,
        query=(Parameter("verify", schema=FLAG, help="Ask its nodes what is there now, and compare."),),
    ),
    Route("GET", "jobs/{job_id}", "getJob", "One job", response=models.Job),
    Route(
        "PATCH",
        "jobs/{job_id}",
        "changeJob",
        "Another priority or time limit, hold, release, for its owner and administrators; the id of an "
        "array means all its jobs",
        request=requests.JobChange,
        example={"priority": 5, "time_limit_s": 7200},
        response=requests.OrderAnswer,
    ),
    Route(
        "POST",
        "jobs/{job_id}/cancel",
        "cancelJob",
        "Cancel a job or an array; a second time is no error",
        status=202,
        response=requests.CancelAnswer,
    ),
    Route(
        "POST",
        "jobs/{job_id}/requeue",
        "requeueJob",
        "End what runs of a job or an array, and let it wait again in its old place",
        status=202,
        response=requests.OrderAnswer,
    ),
    Route(
        "POST",
        "jobs/{job_id}/rerun",
        "rerunJob",
        "Submit a job once more as it was asked for, without old waits, for its owner and administrators; "
        "with the same Idempotency-Key it is the same job",
        status=201,
        response=requests.Submitted,
    ),
    Route(
        "POST",
        "jobs/{job_id}/replace",
        "replaceJob",
        "Submit a job that waits with changes, and cancel the old one; a refusal leaves it as it is",
        status=201,
        request=requests.ReplaceRequest,
        example={"patch": {"gpus_per_node": 2}},
        response=requests.Submitted,
    ),
    Route(
        "POST",
        "jobs/purge",
        "purgeJobs",
        "Forget jobs that ended long ago, with their output; those of others are for administrators",
        request=administration.PurgeRequest,
        example={"older_than_s": 2_592_000, "dry_run": True},
        response=administration.PurgeAnswer,
    ),
    Route(
        "GET",
        "jobs/{job_id}/output",
        "getOutput",
        f"Output as plain bytes of one rank, or as frames with `Accept: {NDJSON}`",
        kind=Kind.BYTES,
        response=frames.JobStreamFrame,
        query=(
            RANK,
            OFFSET,
            Parameter(
                "limit",
                schema=whole(1, models.MAX_OUTPUT_LIMIT),
                help="At most this many bytes; 1 MiB if left out (no limit with follow).",
            ),
            Parameter(
                "tail",
                schema=whole(0, models.MAX_OFFSET),
                help="Plain bytes: start so many before what is the end now.",
            ),
            Parameter("follow", schema=FLAG, help="Stay until the job is over and all its output was sent."),
            OFFSETS,
            ATTEMPT,
        ),
    ),
    Route(
        "GET",
        "jobs/{job_id}/results",
        "listResults",
        "Files that a job left for its user, as far as they were collected",
        response=files.ResultList,
    ),
    Route(
        "GET",
        "jobs/{job_id}/result",
        "getResult",
        "One of these files, as bytes",
        kind=Kind.BYTES,
        query=(
            Parameter("node", help="The node that it came from."),
            Parameter("number", schema=whole(0, models.MAX_RANK), help="Its number there."),
            OFFSET,
            Parameter(
                "limit",
                schema=whole(1, models.MAX_OUTPUT_LIMIT),
                help="At most this many bytes; 16 MiB if left out.",
            ),
        ),
    ),
    Route(
        "GET",
        "jobs/{job_id}/values",
        "listValues",
        "Variables that a cell left, as files by rank, as far as they were collected; `getResult` brings "
        "each",
        query=(
            Parameter(
                "wait",
                schema=whole(0, files.MAX_WAIT_S),
                help="Answer when nothing more is to come, or after so many seconds; at once if left out.",
            ),
        ),
        response=files.ValueList,
    ),
    Route(
        "POST",
        "pythons",
        "findPythons",
        "Which interpreter a cell would get on each node",
        request=files.PythonQuestion,
        example={"kernel_python": "/usr/bin/python3", "kernel_python_version": "3.11"},
        response=files.PythonAnswers,
    ),
    Route(
        "GET",
        "jobs/{job_id}/summary",
        "getSummary",
        "What a job asked for, had and used",
        response=traces.Summary,
    ),
    Route(
        "GET",
        "jobs/{job_id}/usage",
        "getUsage",
        "How busy each GPU of a job was while it ran: asked for 4, used 1.3, and a hint",
        response=histories.JobUsage,
        query=(POINTS,),
    ),
)
