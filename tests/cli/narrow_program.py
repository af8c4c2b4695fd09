"""`mgpu_queue` with these words against a server with long commands, names, users and reasons.

`python -m tests.cli.narrow_program WORDS…` runs in a terminal whose width is the test's.
"""

from __future__ import annotations

import sys

import msgspec

from mgpu_agent.protocol.ids import NodeId
from mgpu_jupyter.api import models
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, a_node
from mgpu_jupyter.client.transport import Answer, Request
from mgpu_jupyter.model.job import JobState
from tests.cli.test_queue import a_job

COMMAND = "python -m train.language_model --learning-rate 0.0003 --epochs 90 --data /data/sets/of/mine --last"
REASON = (
    "Waits for 8 free GPUs of type A100 on 4 nodes: 5 are held by jobs of other people until about 17:30, "
    "and 2 are kept free for reservation END-OF-REASON."
)
LONG_USER = "somebody-with-a-long-name@department.example.org"
JOBS = (
    a_job(
        "RUNN0001",
        JobState.RUNNING,
        user=LONG_USER,
        name="a-name-that-somebody-made-of-all-parameters-lr0.0003-epochs90",
        command=COMMAND,
        nodes=tuple(NodeId(f"gpu-node-{number:03}") for number in range(6)),
        nodes_wanted=6,
        gpus=48,
        started_at=1.0,
    ),
    a_job(
        "WAIT0001",
        JobState.QUEUED,
        user=LONG_USER,
        name="名前" * 20,
        command=COMMAND,
        reason=REASON,
        place=1,
    ),
    *(
        a_job(
            f"ARRA000{number}",
            JobState.QUEUED,
            command=COMMAND,
            array_id="ARRA0000",
            array_index=100_000 + 2 * number,
            place=2,
            reason=REASON,
        )
        for number in range(7)
    ),
)


class Server(MockTransport):
    """The server of the mock, with these jobs."""

    def send(self, request: Request) -> Answer:
        """Answer a request."""
        if request.path == "jobs":
            return Answer(status=200, body=msgspec.json.encode(models.JobList(jobs=JOBS)))
        return super().send(request)


if __name__ == "__main__":
    server = Server(nodes=[a_node("gpu-node-000", 2)])
    sys.exit(entry.mgpu_queue(sys.argv[1:], lambda: Client(transport=server)))
