"""Nodes in memory that also write down what they are told, for tests of the master."""

from __future__ import annotations

from mgpu_jupyter.scheduler.commands import LaunchTask, MeetTask, PrepareTask, ProbeNode, StartTask, StopTask
from tests.memory_nodes import MemoryNodes


class DiaryNodes(MemoryNodes):
    """Notes in the common diary what the master asks of both ports, when it does."""

    def __init__(self, diary):
        super().__init__()
        self.diary = diary
        self.enrolled.add("silent")

    def send(self, commands):
        commands = list(commands)
        self.diary += map(note_of, commands)
        super().send(commands)

    def resync(self):
        self.diary.append("resync")
        super().resync()

    def close(self):
        self.diary.append("close")
        return super().close()

    def admit(self, key):
        self.diary.append(("admit", key.public_key))

    def revoke(self, node_id, reason):
        self.diary.append(("revoke", node_id, reason))
        super().revoke(node_id, reason)

    def forget(self, node_id):
        self.diary.append(("forget", node_id))
        super().forget(node_id)


def note_of(command):
    match command:
        case LaunchTask(spec):
            return ("launch", spec.key.job_id)
        case PrepareTask(spec, hold_s):
            return ("prepare", spec.node_id, hold_s)
        case MeetTask(node_id, _, peers, limit_s):
            return ("meet", node_id, [peer.node_id for peer in peers], limit_s)
        case StartTask(node_id):
            return ("start", node_id)
        case StopTask(node_id, _, _, reason):
            return ("stop", node_id, reason)
        case ProbeNode(node_id, number):
            return ("probe", node_id, number)
    return command
