"""Raw ZeroMQ connections to a master's link, as a stranger or a dishonest node would make them."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import zmq

from mgpu_agent.protocol.codec import decode_to_agent, encode
from mgpu_agent.protocol.ids import NodeId
from mgpu_agent.protocol.messages import Enrol, Enrolled, Hello, ToAgent, ToMaster
from mgpu_agent.protocol.model import NodeFacts
from mgpu_agent.protocol.places import RuntimeFile, boot_id, host_name

KeyPair = tuple[bytes, bytes]
SILENCE_MS = 2_000
ANSWER_MS = 60_000


class Connection:
    """One DEALER; whatever it is refused, it closes without lingering."""

    def __init__(
        self, address: str, keys: KeyPair | None, server_key: bytes | None, routing_id: bytes | None = None
    ) -> None:
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        if keys is not None:
            self._socket.curve_publickey, self._socket.curve_secretkey = keys
            self._socket.curve_serverkey = server_key
        if routing_id is not None:
            self._socket.routing_id = routing_id
        self._socket.connect(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up."""
        self._socket.close()
        self._context.term()

    def send(self, *messages: ToMaster, epoch: int = 0) -> None:
        """Send messages as one batch, under any master epoch."""
        self._socket.send_multipart([encode(message, epoch) for message in messages])

    def send_frames(self, *frames: bytes) -> None:
        """Send bytes as they are."""
        self._socket.send_multipart(list(frames))

    def receive(self, limit_ms: int = SILENCE_MS) -> list[ToAgent]:
        """Return the next batch, or nothing when the other side stays silent."""
        if not self._socket.poll(limit_ms):
            return []
        return [decode_to_agent(frame)[1] for frame in self._socket.recv_multipart()]

    def receive_all(self, limit_ms: int = SILENCE_MS, *, first_ms: int = 0) -> list[ToAgent]:
        """Return everything up to the first silence; where an answer must come, `first_ms` is how long it may
        take.
        """
        messages = self.receive(first_ms) if first_ms else []
        while batch := self.receive(limit_ms):
            messages += batch
        return messages


def hello(node_id: str) -> Hello:
    """Return what an idle node without GPUs says first."""
    facts = NodeFacts(
        host=host_name(),
        address="127.0.0.1",
        arch="x86_64",
        cpus=1,
        memory_bytes=2**30,
        boot_id=boot_id(),
        incarnation="attacker",
        agent_version="0",
        python="3.11",
        pid=1,
    )
    return Hello(node_id=NodeId(node_id), facts=facts)


def enrol(runtime: RuntimeFile, node_id: str) -> KeyPair:
    """Become a node in the regular way and return its keys."""
    keys = zmq.curve_keypair()
    enrolment = (runtime.enrol_public_key.encode(), runtime.enrol_secret_key.encode())
    with Connection(runtime.link_address, enrolment, runtime.link_public_key.encode()) as connection:
        connection.send(Enrol(node_id=NodeId(node_id), public_key=keys[0].decode()))
        answer = connection.receive(ANSWER_MS)
    assert answer == [Enrolled(node_id=NodeId(node_id))]
    return keys
