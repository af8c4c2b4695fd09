"""Every command of mgpu, one after the other in this process, against a server whose every string is hostile.

`python -m tests.cli.hostile_program PLACE` runs in a terminal of its own; PLACE is a directory for state.
What it prints is judged by who started it. A line `=== NAME CODE` follows each command.
"""

from __future__ import annotations

import os
import sys

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.api import administration, files, models
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say, a_node
from mgpu_jupyter.client.transport import Answer, Request
from mgpu_jupyter.model.job import JobState
from tests import hostile

NODES = 40
JOBS = 60


FILE = files.Result(node=NodeId("n"), number=0, path="p", size=1, sha256="s", mode=0o644, problem="p")
KNOWN: dict[str, object] = {
    "jobs/MOCK0000/results": files.ResultList(
        job_id=JobId("MOCK0000"), attempt=1, complete=True, files=(FILE,) * 60, problems=("p",) * 60
    ),
    "users": administration.UserList(
        users=(administration.User(name="n", role="user", created_at=1.0),) * 60
    ),
    "nodes/n1": administration.NodeActionAnswer(node_id=NodeId("n"), action="drain", message="m"),
}
"""Answers to what the mock does not know of by itself."""


class Server(MockTransport):
    """The server of the mock, with other words."""

    def __init__(self) -> None:
        play = Play(exit_code=3, final=JobState.FAILED, reason="waits", note="note", output=(Say(b"fine\n"),))
        super().__init__(lambda _: play, nodes=[a_node(f"n{number}", 2) for number in range(NODES)])
        self.spoiler = hostile.Spoiler([text[:200] for text in hostile.sendable()])

    def send(self, request: Request) -> Answer:
        """Answer a request."""
        found = KNOWN.get(request.path)
        answer = (
            super().send(request) if found is None else Answer(status=200, body=msgspec.json.encode(found))
        )
        if answer.body[:1] != b"{":
            return answer
        told = msgspec.json.decode(answer.body)
        if isinstance(told.get("jobs"), list) and told["jobs"]:
            told["jobs"] = [
                {**told["jobs"][0], "reason": "r", "id": f"H{number:07}"} for number in range(JOBS)
            ]
        return msgspec.structs.replace(answer, body=msgspec.json.encode(self.spoiler.spoil(told)))


COMMANDS = (
    "mgpu_queue",
    "mgpu_queue --all",
    "mgpu_queue --all --json",
    "mgpu_queue --all --format id,user,name,command,nodes,reason",
    "mgpu_queue --start",
    "mgpu nodes",
    "mgpu nodes --json",
    "mgpu doctor",
    "mgpu doctor --json",
    "mgpu trace MOCK0000",
    "mgpu explain MOCK0000",
    "mgpu_srun -- x",
    "mgpu_srun --background -- x",
    "mgpu_srun --dry-run -- x",
    "mgpu_client queue",
    "mgpu_cancel MOCK0000",
    "mgpu results MOCK0000",
    "mgpu user list",
    "mgpu node drain n1 --reason x",
)


def main() -> int:
    """Run them all."""
    os.environ["MGPU_STATE_DIR"] = sys.argv[1]
    server = Server()
    client = Client(transport=server)
    client.submit(["x"])
    for command in COMMANDS:
        program, *words = command.split()
        code = getattr(entry, program)(words, lambda: Client(transport=server))
        sys.stdout.flush()
        sys.stderr.flush()
        print(f"=== {command} {code}", flush=True)
    for number, text in enumerate(hostile.sendable()):
        error = models.ErrorBody(code="c", message=text)
        server.failures.append(
            Answer(status=(400, 403, 404, 409)[number % 4], body=msgspec.json.encode(error))
        )
        entry.mgpu(["hold", "MOCK0000"], lambda: Client(transport=server))
    print("=== errors 0", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
