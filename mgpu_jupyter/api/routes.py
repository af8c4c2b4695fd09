"""Every route of the API, once: server, tests and the OpenAPI document read this table."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from mgpu_jupyter.api import administration, folders, lines, live, models, results, traces, variables
from mgpu_jupyter.api.input import WRITER_PATTERN
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import PLAIN_PATTERN, JobSpec, JobState

PREFIX = "mgpu/api/v1"
IDEMPOTENCY_HEADER = "Idempotency-Key"
NDJSON = "application/x-ndjson"


class Kind(StrEnum):
    """How a route speaks."""

    JSON = "json"
    BYTES = "bytes"
    WEBSOCKET = "websocket"


class Parameter(msgspec.Struct, frozen=True, kw_only=True):
    """A query parameter; `schema` is JSON Schema and says exactly what the server takes."""

    name: str
    schema: dict[str, object] = msgspec.field(default_factory=lambda: {"type": "string", "pattern": PLAIN_PATTERN})
    help: str


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One method on one path. `path` names its variables in braces."""

    method: str
    path: str
    operation: str
    """Name of the operation; unique."""
    summary: str
    status: int = 200
    kind: Kind = Kind.JSON
    request: object = None
    response: object = None
    example: object = None
    """A request body that works; every route that takes one has it."""
    query: tuple[Parameter, ...] = ()

    @property
    def is_write(self) -> bool:
        """Tell whether it changes something (and so needs more than the right to look)."""
        return self.method != "GET"


def _whole(least: int, most: int) -> dict[str, object]:
    return {"type": "integer", "minimum": least, "maximum": most}


_STATE = f"(active|{'|'.join(JobState)})"
_CURSOR: dict[str, object] = {"type": "string", "pattern": models.CURSOR_PATTERN}
_RANK = Parameter(name="rank", schema=_whole(0, models.MAX_RANK), help="Only this rank; all of them if it is left out (0 for plain bytes).")
_OFFSET = Parameter(name="offset", schema=_whole(0, models.MAX_OFFSET), help="Byte to start from; each rank has its own count.")
_OFFSETS = Parameter(
    name="offsets",
    schema={"type": "string", "pattern": "^([0-9]{1,18}:[0-9]{1,18}(,[0-9]{1,18}:[0-9]{1,18})*)?$"},
    help="With frames: start of each rank as `rank:offset`, with commas between.",
)
_ATTEMPT = Parameter(
    name="attempt",
    schema=_whole(0, models.MAX_OFFSET),
    help="The attempt that the offsets belong to; a newer one is sent from its start.",
)
_FLAG: dict[str, object] = {"type": "string", "enum": ["0", "1", "false", "true"]}
_SPAN = Parameter(
    name="span", schema=_whole(live.LEAST_SPAN_S, live.MAX_SPAN_S), help="How far to look back, in seconds; the older, the coarser."
)
_POINTS = Parameter(name="points", schema=_whole(1, live.MAX_POINTS), help="At most this many points; 300 if left out.")
_SINCE = Parameter(name="since", schema=_whole(-1, models.MAX_OFFSET), help="Send all that changed after this sequence number first.")

ROUTES: tuple[Route, ...] = (
    Route(method="GET", path="health", operation="getHealth", summary="State of the master", response=models.Health),
    Route(method="GET", path="cluster", operation="getCluster", summary="The pool in numbers", response=models.Cluster),
    Route(
        method="GET",
        path="cluster/history",
        operation="getClusterHistory",
        summary="GPUs in use and busy, waiting jobs, wait times and ends over a time; a day if no span is given",
        response=live.ClusterHistory,
        query=(_SPAN, _POINTS),
    ),
    Route(method="GET", path="openapi.json", operation="getOpenApi", summary="This document"),
    Route(method="GET", path="nodes", operation="listNodes", summary="All nodes and their GPUs", response=models.NodeList),
    Route(method="GET", path="nodes/{node_id}", operation="getNode", summary="One node", response=models.Node),
    Route(
        method="GET",
        path="nodes/{node_id}/history",
        operation="getNodeHistory",
        summary="Readings of one node and its GPUs over a time; ten minutes if no span is given",
        response=live.NodeHistory,
        query=(_SPAN, _POINTS),
    ),
    Route(
        method="GET",
        path="nodes/{node_id}/outlook",
        operation="getNodeOutlook",
        summary="Who waits and is expected on one node",
        response=explanations.NodeOutlook,
    ),
    Route(
        method="PATCH",
        path="nodes/{node_id}",
        operation="changeNode",
        summary="Administer a node; for administrators",
        request=administration.NodeAction,
        example={"action": "drain", "reason": "new memory on Friday"},
        response=administration.NodeActionAnswer,
    ),
    Route(
        method="POST",
        path="nodes/{node_id}/ping",
        operation="pingNode",
        summary="Ask a node's agent who it is, through its link, with times and versions",
        response=traces.NodePing,
    ),
    Route(
        method="DELETE",
        path="nodes/{node_id}",
        operation="removeNode",
        summary="Forget a node that is offline and holds nothing; for administrators",
        response=administration.NodeActionAnswer,
    ),
    Route(
        method="POST",
        path="join-tokens",
        operation="addJoinToken",
        summary="A line that lets one machine join once; for administrators",
        status=201,
        request=models.JoinTokenRequest,
        example={"node_id": "gpu-07", "ttl_s": 3600},
        response=models.JoinToken,
    ),
    Route(
        method="GET",
        path="jobs",
        operation="listJobs",
        summary="Jobs, newest first",
        response=models.JobList,
        query=(
            Parameter(
                name="state",
                schema={"type": "string", "pattern": f"^({_STATE}(,{_STATE})*)?$"},
                help="One or several states, with commas between; `active` for all that are not final.",
            ),
            Parameter(name="user", help="Only jobs of this user."),
            Parameter(name="name", help="Only jobs of this name."),
            Parameter(name="array", help="Only jobs of the array of this id."),
            Parameter(name="notebook", help="Only your own jobs that came from this notebook (`origin.notebook`)."),
            Parameter(
                name="since",
                schema={"type": "number", "minimum": 0, "maximum": models.MAX_TIME_S},
                help="Only jobs submitted at or after this time (seconds since 1970).",
            ),
            Parameter(
                name="limit", schema=_whole(1, models.MAX_PAGE), help=f"Size of the page, at most {models.MAX_PAGE}; 100 if left out."
            ),
            Parameter(name="cursor", schema=_CURSOR, help="`next_cursor` of the page before."),
        ),
    ),
    Route(
        method="POST",
        path="jobs",
        operation="submitJob",
        summary="Submit a job; with the same Idempotency-Key it is the same job",
        status=201,
        request=JobSpec,
        example={"command": ["python", "train.py"], "gpus": 2, "name": "train"},
        response=models.Submitted,
    ),
    Route(
        method="POST",
        path="jobs/bulk",
        operation="submitJobs",
        summary="Submit many jobs, all or none",
        status=201,
        request=models.BulkSubmit,
        example={"jobs": [{"spec": {"command": ["true"], "gpus": 0}, "key": "one"}, {"spec": {"script": "print(1)"}}]},
        response=models.BulkSubmitted,
    ),
    Route(
        method="POST",
        path="jobs/dry-run",
        operation="explainRequest",
        summary="Where and when a request would start, why not now, and what would; nothing is submitted",
        request=JobSpec,
        example={"command": ["python", "train.py"], "gpus": 4, "exclude": ["n3"]},
        response=explanations.Explanation,
    ),
    Route(
        method="POST",
        path="jobs/parse",
        operation="parseLine",
        summary="The request that a line of flags and a command means, or one sentence; nothing is submitted",
        request=lines.LineRequest,
        example={"line": "--gpus 2 -- python prepare.py && python train.py"},
        response=lines.LineAnswer,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/explain",
        operation="explainJob",
        summary="Why a job waits, what would start it now, and what it was told before",
        response=explanations.Explanation,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/trace",
        operation="traceJob",
        summary="The whole way of a job: when, where, by which process, what it waited for, and whether that is what was assigned",
        response=traces.Trace,
        query=(
            Parameter(
                name="verify",
                schema=_FLAG,
                help="Ask its nodes what is there now, and compare.",
            ),
        ),
    ),
    Route(method="GET", path="jobs/{job_id}", operation="getJob", summary="One job", response=models.Job),
    Route(
        method="PATCH",
        path="jobs/{job_id}",
        operation="changeJob",
        summary="Another priority or time limit, hold, release; the id of an array means all its jobs",
        request=models.JobChange,
        example={"priority": 5, "time_limit_s": 7200},
        response=models.OrderAnswer,
    ),
    Route(
        method="POST",
        path="jobs/{job_id}/cancel",
        operation="cancelJob",
        summary="Cancel a job or an array; a second time is no error",
        status=202,
        response=models.CancelAnswer,
    ),
    Route(
        method="POST",
        path="jobs/{job_id}/requeue",
        operation="requeueJob",
        summary="End what runs of a job or an array, and let it wait again in its old place",
        status=202,
        response=models.OrderAnswer,
    ),
    Route(
        method="POST",
        path="jobs/{job_id}/rerun",
        operation="rerunJob",
        summary="Submit a job once more as it was asked for; with the same Idempotency-Key it is the same job",
        status=201,
        response=models.Submitted,
    ),
    Route(
        method="POST",
        path="jobs/{job_id}/replace",
        operation="replaceJob",
        summary="Submit a job that waits with changes, and cancel the old one; a refusal leaves it as it is",
        status=201,
        request=administration.ReplaceRequest,
        example={"patch": {"gpus_per_node": 2}},
        response=models.Submitted,
    ),
    Route(
        method="POST",
        path="jobs/purge",
        operation="purgeJobs",
        summary="Forget jobs that ended long ago, with their output",
        request=administration.PurgeRequest,
        example={"older_than_s": 2_592_000, "dry_run": True},
        response=administration.PurgeAnswer,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/output",
        operation="getOutput",
        summary=f"Output as plain bytes of one rank, or as frames with `Accept: {NDJSON}`",
        kind=Kind.BYTES,
        response=models.JobStreamFrame,
        query=(
            _RANK,
            _OFFSET,
            Parameter(
                name="limit",
                schema=_whole(1, models.MAX_OUTPUT_LIMIT),
                help="At most this many bytes; 1 MiB if left out (no limit with follow).",
            ),
            Parameter(name="tail", schema=_whole(0, models.MAX_OFFSET), help="Plain bytes: start so many before what is the end now."),
            Parameter(
                name="follow",
                schema=_FLAG,
                help="Stay until the job is over and all its output was sent.",
            ),
            _OFFSETS,
            _ATTEMPT,
        ),
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/results",
        operation="listResults",
        summary="Files that a job left for its user, as far as they were collected",
        response=results.ResultList,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/result",
        operation="getResult",
        summary="One of these files, as bytes",
        kind=Kind.BYTES,
        query=(
            Parameter(name="node", help="The node that it came from."),
            Parameter(name="number", schema=_whole(0, models.MAX_RANK), help="Its number there."),
            _OFFSET,
            Parameter(name="limit", schema=_whole(1, models.MAX_OUTPUT_LIMIT), help="At most this many bytes; 16 MiB if left out."),
        ),
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/values",
        operation="listValues",
        summary="Variables that a cell left, as files, as far as they were collected",
        query=(
            Parameter(
                name="wait",
                schema=_whole(0, variables.MAX_WAIT_S),
                help="Answer when nothing more is to come, or after so many seconds; at once if left out.",
            ),
        ),
        response=variables.ValueList,
    ),
    Route(
        method="POST",
        path="pythons",
        operation="findPythons",
        summary="Which interpreter a cell would get on each node",
        request=variables.PythonQuestion,
        example={"kernel_python": "/usr/bin/python3", "kernel_python_version": "3.11"},
        response=variables.PythonAnswers,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/summary",
        operation="getSummary",
        summary="What a job asked for, had and used",
        response=results.Summary,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/usage",
        operation="getUsage",
        summary="How busy each GPU of a job was while it ran: asked for 4, used 1.3",
        response=live.JobUsage,
        query=(_POINTS,),
    ),
    Route(
        method="POST",
        path="folders/missing",
        operation="findMissingPieces",
        summary="Which pieces of a folder you have not sent yet",
        request=folders.Digests,
        example={"digests": ["0" * 64]},
        response=folders.Missing,
    ),
    Route(
        method="POST",
        path="folders/pieces",
        operation="addPieces",
        summary="Send pieces of a folder that jobs of yours may have as their working directory",
        status=201,
        request=folders.Pieces,
        example={"pieces": ["aGVsbG8="]},
        response=folders.Digests,
    ),
    Route(method="GET", path="users", operation="listUsers", summary="Users, for administrators", response=administration.UserList),
    Route(
        method="POST",
        path="users",
        operation="addUser",
        summary="Add a user, for administrators; the login line is shown only here",
        status=201,
        request=administration.NewUser,
        example={"name": "ann", "role": "user", "ttl_s": 2592000},
        response=administration.NewLogin,
    ),
    Route(
        method="DELETE",
        path="users/{user_name}",
        operation="removeUser",
        summary="Remove a user and all their logins, for administrators",
        response=administration.User,
    ),
    Route(
        method="GET",
        path="jobs/{job_id}/stream",
        operation="streamJob",
        summary="Output and state of one job, live; with `input` also its stdin and the size of its terminal",
        kind=Kind.WEBSOCKET,
        response=models.JobSocketFrame,
        query=(
            _RANK,
            _OFFSETS,
            _ATTEMPT,
            Parameter(
                name="input",
                schema={"type": "string", "pattern": WRITER_PATTERN},
                help="A name of your own making: send frames `stdin` and `resize`, and hear `stdin_ack`.",
            ),
        ),
    ),
    Route(
        method="GET",
        path="events",
        operation="streamEvents",
        summary="Changes of jobs and nodes, resumable; on request readings and the order of the queue, as differences",
        kind=Kind.WEBSOCKET,
        response=live.EventFrame,
        query=(
            _SINCE,
            Parameter(
                name="samples", schema=_FLAG, help="Send readings as frames `samples`, and `node` only when more than these changed."
            ),
            Parameter(
                name="queue",
                schema=_whole(0, models.MAX_OFFSET),
                help="Send the queue as frames `queue`: 1 for all of it first, or the `version` that you have.",
            ),
        ),
    ),
)
