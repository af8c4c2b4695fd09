"""Every route of the API, once: server, tests and the OpenAPI document read this table."""

from __future__ import annotations

from mgpu_jupyter.api import administration, files, frames, histories, models, traces
from mgpu_jupyter.api.frames import WRITER_PATTERN
from mgpu_jupyter.api.job_routes import JOB_ROUTES
from mgpu_jupyter.api.route import (
    ATTEMPT,
    FLAG,
    OFFSETS,
    POINTS,
    RANK,
    SINCE,
    SPAN,
    Kind,
    Parameter,
    Route,
    whole,
)
from mgpu_jupyter.model import explanations

ROUTES: tuple[Route, ...] = (
    Route(
        "GET", "health", "getHealth", "State of the master, and what is wrong with it", response=models.Health
    ),
    Route(
        "GET", "cluster", "getCluster", "The pool in numbers, and who you are in it", response=models.Cluster
    ),
    Route(
        "GET",
        "cluster/history",
        "getClusterHistory",
        "GPUs in use and busy, waiting jobs, wait times and ends over a time; a day if no span is given",
        response=histories.ClusterHistory,
        query=(SPAN, POINTS),
    ),
    Route(
        "GET", "openapi.json", "getOpenApi", "The OpenAPI document, made from the types that check requests"
    ),
    Route("GET", "nodes", "listNodes", "All nodes and their GPUs", response=models.NodeList),
    Route("GET", "nodes/{node_id}", "getNode", "One node", response=models.Node),
    Route(
        "GET",
        "nodes/{node_id}/history",
        "getNodeHistory",
        "Readings of one node and its GPUs over a time; ten minutes if no span is given",
        response=histories.NodeHistory,
        query=(SPAN, POINTS),
    ),
    Route(
        "GET",
        "nodes/{node_id}/outlook",
        "getNodeOutlook",
        "Who waits and is expected on one node, the next one first",
        response=explanations.NodeOutlook,
    ),
    Route(
        "PATCH",
        "nodes/{node_id}",
        "changeNode",
        "Administer a node; for administrators",
        request=administration.NodeAction,
        example={"action": "drain", "reason": "new memory on Friday"},
        response=administration.NodeActionAnswer,
    ),
    Route(
        "POST",
        "nodes/{node_id}/ping",
        "pingNode",
        "Ask a node's agent who it is, through its link, with times and versions",
        response=traces.NodePing,
    ),
    Route(
        "DELETE",
        "nodes/{node_id}",
        "removeNode",
        "Forget a node that is offline and holds nothing; for administrators",
        response=administration.NodeActionAnswer,
    ),
    Route(
        "POST",
        "join-tokens",
        "addJoinToken",
        "A line that lets one machine join once; for administrators",
        status=201,
        request=administration.JoinTokenRequest,
        example={"node_id": "gpu-07", "ttl_s": 3600},
        response=administration.JoinToken,
    ),
    *JOB_ROUTES,
    Route(
        "POST",
        "folders/missing",
        "findMissingPieces",
        "Which pieces of a folder you have not sent yet",
        request=files.Digests,
        example={"digests": ["0" * 64]},
        response=files.Missing,
    ),
    Route(
        "POST",
        "folders/pieces",
        "addPieces",
        "Send pieces of a folder that jobs of yours may have as their working directory, or one piece as it "
        "is",
        status=201,
        request=files.Pieces,
        example={"pieces": ["aGVsbG8="]},
        response=files.Digests,
    ),
    Route("GET", "users", "listUsers", "Users, for administrators", response=administration.UserList),
    Route(
        "POST",
        "users",
        "addUser",
        "Add a user, for administrators; the login line is shown only here",
        status=201,
        request=administration.NewUser,
        example={"name": "ann", "role": "user", "ttl_s": 2592000},
        response=administration.NewLogin,
    ),
    Route(
        "DELETE",
        "users/{user_name}",
        "removeUser",
        "Remove a user and all their logins, for administrators; their open streams end, their jobs go on",
        response=administration.User,
    ),
    Route(
        "GET",
        "jobs/{job_id}/stream",
        "streamJob",
        "Output and state of one job, live; with `input` also its stdin and the size of its terminal",
        kind=Kind.WEBSOCKET,
        response=frames.JobSocketFrame,
        query=(
            RANK,
            OFFSETS,
            ATTEMPT,
            Parameter(
                "input",
                schema={"type": "string", "pattern": WRITER_PATTERN},
                help="A name of your own making: send frames `stdin` and `resize`, and hear `stdin_ack`.",
            ),
        ),
    ),
    Route(
        "GET",
        "events",
        "streamEvents",
        "Changes of jobs and nodes, resumable; on request readings and the order of the queue, as "
        "differences",
        kind=Kind.WEBSOCKET,
        response=frames.EventFrame,
        query=(
            SINCE,
            Parameter(
                "samples",
                schema=FLAG,
                help="Send readings as frames `samples`, and `node` only when more than these changed.",
            ),
            Parameter(
                "queue",
                schema=whole(0, models.MAX_OFFSET),
                help="Send the queue as frames `queue`: 1 for all of it first, or the `version` that you "
                "have.",
            ),
        ),
    ),
)
