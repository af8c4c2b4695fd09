"""A small master for the agent's tests: a real ROUTER with CURVE and an allow-list, driven by the test's own
thread.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import zmq
from zmq.utils import z85

from mgpu_agent.protocol import codec
from mgpu_agent.protocol.ids import AttemptKey, NodeId
from mgpu_agent.protocol.join import JoinString, write_join
from mgpu_agent.protocol.messages import (
    Enrol,
    Enrolled,
    Forget,
    Heard,
    Heartbeat,
    Hello,
    Launch,
    LaunchRefused,
    Leave,
    Output,
    OutputAck,
    Prepared,
    Probed,
    TaskReport,
    ToAgent,
    ToMaster,
    Welcome,
)
from mgpu_agent.protocol.model import LaunchSpec, OutputMark, TaskSpec, TaskStatus
from mgpu_agent.protocol.places import RuntimeFile, boot_id, host_name, write_runtime_file

T = TypeVar("T")
LIMIT_S = 60.0


class SmallMaster:
    """Enrols, welcomes, launches and gathers; keeps what it was told in plain lists."""

    def __init__(
        self, state: Path, *, port: int = 18080, epoch: int = 1, window_bytes: int = 1024 * 1024
    ) -> None:
        self.epoch = epoch
        self.window_bytes = window_bytes
        self.state = state
        self.port = port
        self.public_key, self._secret_key = (key.decode() for key in zmq.curve_keypair())
        self._enrol_public, self._enrol_secret = (key.decode() for key in zmq.curve_keypair())
        self.allowed = {self._enrol_public}
        self.acks = True
        self.hears = True
        """Whether it answers beats, so that leases are renewed."""
        self.prepared: list[AttemptKey] = []
        self.hellos: list[Hello] = []
        self.refusals: list[LaunchRefused] = []
        self.reports: list[TaskReport] = []
        self.heartbeats: list[Heartbeat] = []
        self.farewells: list[Leave] = []
        self.trials: list[Probed] = []
        self.order: list[str] = []
        self.statuses: dict[tuple[AttemptKey, int], TaskStatus] = {}
        self.output: dict[tuple[AttemptKey, int, int], bytearray] = defaultdict(bytearray)
        self.unacknowledged_peak = 0
        self._acknowledged: dict[tuple[AttemptKey, int, int], int] = defaultdict(int)
        self._epochs = 0
        self._peer: bytes = b""
        self._context = zmq.Context()
        self._zap = self._context.socket(zmq.REP)
        self._zap.bind("inproc://zeromq.zap.01")
        self._router: zmq.Socket[bytes] | None = None
        self._link_port = 0
        self.listen()

    def listen(self) -> None:
        """Bind (again on the same port) and publish the runtime file."""
        router = self._context.socket(zmq.ROUTER)
        router.set(zmq.LINGER, 0)
        router.set(zmq.SNDHWM, 0)
        router.curve_server = True
        router.curve_secretkey = self._secret_key.encode()
        router.zap_domain = b"mgpu"
        if self._link_port:
            wait_until(lambda: _bind(router, self._link_port))
        else:
            self._link_port = router.bind_to_random_port("tcp://127.0.0.1")
        self._router = router
        write_runtime_file(
            self.state,
            RuntimeFile(
                url=f"http://127.0.0.1:{self.port}/",
                token="",
                link_address=f"tcp://127.0.0.1:{self._link_port}",
                link_public_key=self.public_key,
                enrol_public_key=self._enrol_public,
                enrol_secret_key=self._enrol_secret,
                host=host_name(),
                boot_id=boot_id(),
                pid=os.getpid(),
                port=self.port,
                started_at=time.time(),
            ),
        )

    def join_line(self, *before: str, node_id: str | None = None) -> str:
        """Return a line for this master; `before` are addresses to be tried first."""
        addresses = (*before, f"tcp://127.0.0.1:{self._link_port}")
        node = None if node_id is None else NodeId(node_id)
        return write_join(
            JoinString(
                addresses,
                self.public_key,
                self._enrol_public,
                self._enrol_secret,
                time.time() + 60,
                "test",
                node,
            )
        )

    def stop_listening(self) -> None:
        """Close the socket as a killed master would."""
        if self._router is not None:
            self._router.close(linger=0)
            self._router = None

    def forget_nodes(self) -> None:
        """Lose the list of keys, as after a lost store."""
        self.allowed = {self._enrol_public}

    def close(self) -> None:
        self.stop_listening()
        self._zap.close(linger=0)
        self._context.term()

    # --- what a test asks for -------------------------------------------------------------------------

    def launch(self, *argv: str, job_id: str = "", **options: object) -> AttemptKey:
        """Launch a command on the node that said the last Hello."""
        spec = self.spec(*argv, job_id=job_id, **options)
        self.say(Launch(spec=spec))
        return spec.key

    def spec(self, *argv: str, job_id: str = "", **options: object) -> LaunchSpec:
        self._epochs += 1
        hello = self.hellos[-1]
        values: dict[str, object] = {
            "key": AttemptKey(job_id or f"JOB{self._epochs:05d}", 1, self._epochs),
            "node_id": hello.node_id,
            "incarnation": hello.facts.incarnation,
            "user": "tester",
            "tasks": (TaskSpec(rank=0),),
            "argv": argv,
            "cwd": str(self.state),
        }
        return LaunchSpec(**{**values, **options})  # type: ignore[arg-type]

    def say(self, message: ToAgent, epoch: int | None = None) -> None:
        assert self._router is not None
        self._router.send_multipart(
            [self._peer, codec.encode(message, self.epoch if epoch is None else epoch)]
        )

    def forget(self, *keys: AttemptKey) -> None:
        self.say(Forget(keys=keys))

    def wait(self, condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
        """Serve until the condition holds, and return what it gave."""
        give_up_at = time.monotonic() + limit_s
        while not (value := condition()):
            assert time.monotonic() < give_up_at, (
                f"Waited in vain; told so far: {self.statuses} {self.refusals}"
            )
            self.serve()
        return value

    def wait_end(self, key: AttemptKey, rank: int = 0) -> TaskStatus:
        """Serve until the process has ended and all its output is here."""

        def ended() -> TaskStatus | None:
            status = self.statuses.get((key, rank))
            if status is None or status.ended_at is None:
                return None
            sizes = (len(self.output[key, rank, 1]), len(self.output[key, rank, 2]))
            return status if sizes == (status.stdout_bytes, status.stderr_bytes) else None

        return self.wait(ended)

    def wait_running(self, key: AttemptKey) -> TaskStatus:
        return self.wait(lambda: self.statuses.get((key, 0)))

    def text(self, key: AttemptKey, rank: int = 0, stream: int = 1) -> str:
        return self.output[key, rank, stream].decode()

    # --- serving --------------------------------------------------------------------------------------

    def serve(self, wait_ms: int = 20) -> None:
        poller = zmq.Poller()
        poller.register(self._zap, zmq.POLLIN)
        if self._router is not None:
            poller.register(self._router, zmq.POLLIN)
        ready = dict(poller.poll(wait_ms))
        if self._zap in ready:
            self._answer_zap()
        if self._router is not None and self._router in ready:
            peer, *frames = self._router.recv_multipart()
            for frame in frames:
                self._take(peer, codec.decode_to_master(frame)[1])

    def _answer_zap(self) -> None:
        version, request, _domain, _address, _identity, _mechanism, key = self._zap.recv_multipart()
        known = z85.encode(key).decode() in self.allowed
        self._zap.send_multipart([version, request, b"200" if known else b"400", b"", b"node", b""])

    def _take(self, peer: bytes, message: ToMaster) -> None:
        self.order.append(type(message).__name__)
        match message:
            case Enrol(node_id=node_id, public_key=public_key):
                self.allowed.add(public_key)
                assert self._router is not None
                self._router.send_multipart([peer, codec.encode(Enrolled(node_id=node_id), self.epoch)])
            case Hello(tasks=tasks):
                self._peer = peer
                self.hellos.append(message)
                for status in tasks:
                    self.statuses[status.key, status.rank] = status
                received = tuple(OutputMark(*place, len(data)) for place, data in self.output.items())
                self._acknowledged.update(
                    {(mark.key, mark.rank, mark.stream): mark.offset for mark in received}
                )
                self.say(
                    Welcome(
                        cluster="test",
                        heartbeat_s=0.3,
                        sample_s=0.1,
                        output_window_bytes=self.window_bytes,
                        received=received,
                        beat=message.beat if self.hears else 0.0,
                    )
                )
            case TaskReport(status=status):
                self.reports.append(message)
                self.statuses[status.key, status.rank] = status
            case LaunchRefused():
                self.refusals.append(message)
            case Output():
                self._take_output(message)
            case Heartbeat():
                self.heartbeats.append(message)
                if self.hears and message.beat:
                    self.say(Heard(beat=message.beat))
            case Prepared(key=key):
                self.prepared.append(key)
            case Probed():
                self.trials.append(message)
            case Leave():
                self.farewells.append(message)

    def _take_output(self, message: Output) -> None:
        place = (message.key, message.rank, message.stream)
        data = self.output[place]
        assert message.offset <= len(data), "a gap in the output"
        data[message.offset :] = message.data
        outstanding = sum(len(self.output[known]) - self._acknowledged[known] for known in self.output)
        self.unacknowledged_peak = max(self.unacknowledged_peak, outstanding)
        if self.acks:
            self.acknowledge(*place, len(data))

    def acknowledge(self, key: AttemptKey, rank: int, stream: int, offset: int) -> None:
        self._acknowledged[key, rank, stream] = offset
        self.say(OutputAck(mark=OutputMark(key, rank, stream, offset)))


def _bind(router: zmq.Socket[bytes], port: int) -> bool:
    try:
        router.bind(f"tcp://127.0.0.1:{port}")
    except zmq.ZMQError:
        return False
    return True


def wait_until(condition: Callable[[], T], limit_s: float = LIMIT_S) -> T:
    """Poll a condition of the system until it holds."""
    give_up_at = time.monotonic() + limit_s
    while not (value := condition()):
        assert time.monotonic() < give_up_at, "Waited in vain."
        time.sleep(0.01)
    return value
