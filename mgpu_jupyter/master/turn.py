"""One turn of the master: what a batch of events saves, sends and answers. Nothing of it is visible before
the commit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import msgspec

from mgpu_agent.protocol.ids import JobId, NodeId
from mgpu_jupyter.master.node_link import NodeCommand
from mgpu_jupyter.master.ports import Batch, NodeNotes, SavedJob
from mgpu_jupyter.scheduler.commands import (
    Command,
    ForgetNode,
    LaunchTask,
    MeetTask,
    PrepareTask,
    ProbeNode,
    RecordAnswer,
    Remember,
    ReportMismatch,
    SaveAttempt,
    SaveJob,
    SaveNode,
    StartTask,
    StopTask,
    WarnTask,
)
from mgpu_jupyter.scheduler.model import Job
from mgpu_jupyter.scheduler.state import ClusterState

Reply = Callable[[], None]


class Turn(msgspec.Struct):
    """Gathers commands until they are carried out."""

    batch: Batch
    sends: list[NodeCommand] = []
    mismatches: list[ReportMismatch] = []
    questions: list[Callable[[ClusterState, Turn], None]] = []
    """Read the state when all is decided: between the end of a job and the pass that follows, GPUs look free
    that are not.
    """
    replies: list[Reply] = []
    keys: dict[tuple[str, str], Job] = {}
    """Jobs admitted in this turn by user and idempotency key."""
    revoked: dict[NodeId, str] = {}
    """Nodes that are refused from now on, and why."""
    touched: set[NodeId] = set()
    """Nodes whose view changed."""

    def take(self, state: ClusterState, commands: list[Command], next_seq: Callable[[], int]) -> None:
        """Sort commands into saves and sends; a job saved twice is written once."""
        for command in commands:
            match command:
                case SaveJob(job):
                    self.batch.jobs[job.id] = SavedJob(job, next_seq())
                    self.touched.update(placement.node_id for placement in job.placements)
                case (
                    LaunchTask()
                    | PrepareTask()
                    | MeetTask()
                    | StartTask()
                    | StopTask()
                    | WarnTask()
                    | ProbeNode()
                ):
                    self.sends.append(command)
                case SaveNode(node_id):
                    self.touched.add(node_id)
                    node = state.nodes[node_id]
                    self.batch.nodes[node_id] = node.facts
                    self.batch.notes[node_id] = NodeNotes(orders=node.orders, health=node.health)
                case ForgetNode(node_id):
                    self.touched.add(node_id)
                    self.batch.removed.add(node_id)
                case SaveAttempt(job):
                    self.batch.attempts.append(job)
                    self.touched.update(placement.node_id for placement in job.placements)
                case RecordAnswer(key, record):
                    self.batch.answers.append((key, record))
                case Remember(name, value):
                    self.batch.memos[name] = value
                case ReportMismatch():
                    self.mismatches.append(command)
                case _:  # pragma: no cover - mypy proves that this cannot be reached
                    assert_never(command)

    def revoke(self, node_id: NodeId, reason: str) -> None:
        """Unbind a node's key with this turn's commit, and refuse it after that."""
        self.batch.revoked[node_id] = self.revoked[node_id] = reason

    def added(self, job_id: JobId) -> None:
        """Note a job that is new to the store."""
        self.batch.new.add(job_id)


def new_turn() -> Turn:
    """Return an empty turn."""
    return Turn(
        Batch(
            jobs={},
            new=set(),
            attempts=[],
            nodes={},
            notes={},
            revoked={},
            removed=set(),
            memos={},
            answers=[],
            marks=[],
        )
    )
