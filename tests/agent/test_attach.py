"""What a keeper says to an agent that has just come."""

from __future__ import annotations

import socket
from pathlib import Path

from mgpu_agent.channel import Channel
from mgpu_agent.keeper.messages import Attach, FromKeeper, Snapshot, from_keeper_decoder
from tests.agent.keepers import Conversation, Keepers, a_key, keepers, talk
from tests.agent.master import wait_until

__all__ = ["keepers", "talk"]


def test_the_first_word_is_all_that_there_is_whatever_ends_before_the_agent_has_spoken(
    talk: Conversation, keepers: Keepers
) -> None:
    key, later = a_key(1), a_key(2)
    gate = keepers.directory / "gate"
    talk.start(key, "sh", "-c", f"while [ ! -e {gate} ]; do sleep 0.02; done")
    pid = talk.wait_started(key).pid
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(keepers.directory / "keeper.sock"))
        talk.wait_hung_up()
        gate.touch()
        wait_until(lambda: not Path(f"/proc/{pid}").exists())
        channel: Channel[FromKeeper] = Channel(connection, from_keeper_decoder)
        channel.put(Attach(environment={}))
        assert channel.flush()
        heard: list[FromKeeper] = []
        wait_until(lambda: heard or heard.extend(channel.receive() or []))

    (snapshot,) = heard
    assert isinstance(snapshot, Snapshot)
    assert [(record.key, record.exit_code) for record in snapshot.tasks] == [(key, 0)]
    again = keepers.talk()
    again.start(later, "true")
    assert again.wait_end(later).exit_code == 0
