"""The agent's machine and files: what is about folders and results goes to the shell; whose GPUs are read is
told.
"""

from __future__ import annotations

from mgpu_agent.core.commands import SendResult, TakePiece
from mgpu_agent.protocol.file_messages import CollectResult, Piece
from mgpu_agent.protocol.messages import Launch
from tests.agent.core_world import GPU, JOINED, KEY, a_machine, a_spec, said


def test_a_piece_of_a_folder_and_a_wish_for_a_result_go_to_the_shell() -> None:
    machine = a_machine()
    for event in JOINED:
        machine.handle(event)
    piece, wanted = (
        Piece(digest="0" * 64, data=memoryview(b"x")),
        CollectResult(key=KEY, number=0, offset=0, size=1),
    )
    assert machine.handle(said(piece)) == [TakePiece(piece=piece)]
    assert machine.handle(said(wanted)) == [SendResult(wanted=wanted)]


def test_gpus_of_live_attempts_are_told_for_their_readings() -> None:
    machine = a_machine()
    for event in (*JOINED, said(Launch(spec=a_spec(gpus=(GPU,))))):
        machine.handle(event)
    assert machine.gpus_by_attempt() == {KEY: (GPU,)}
