"""A panel around one tab, on a loop that does everything at once; and a server with histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api.histories import GpuHistory, GpuUsage, JobUsage, NodeHistory
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play
from mgpu_jupyter.client.transport import Answer, Request
from mgpu_jupyter.model.job import JobState
from mgpu_jupyter.notebook.panel.parts import has_class
from mgpu_jupyter.notebook.panel.seen import Seen
from tests.notebook.panel_world import NOW, FakeView


class Loop:
    """Does at once what is handed over, and keeps what is for later until it is wanted."""

    def __init__(self) -> None:
        self.waiting: dict[str, Callable[[], None]] = {}

    def post(self, work: Callable[[], None]) -> None:
        work()

    def later(self, _seconds: float, name: str, work: Callable[[], None]) -> None:
        self.waiting[name] = work

    def soon(self, _seconds: float, name: str, work: Callable[[], None]) -> None:
        self.waiting.setdefault(name, work)

    def run(self, name: str) -> None:
        self.waiting.pop(name)()


class Server(MockTransport):
    """Has histories, too."""

    def _answer(self, request: Request) -> Answer:
        if request.path.endswith("/history"):
            body: Any = NodeHistory(
                node=NodeId("n1"),
                step_s=2.0,
                times=(NOW - 4, NOW - 2),
                cpu=(),
                memory_available_mib=(),
                gpus=(
                    GpuHistory(
                        index=0, uuid=GpuUuid("G"), busy=(10, 20), memory_mib=(), temperature=(), power=()
                    ),
                ),
            )
            return Answer(status=200, body=msgspec.json.encode(body))
        if request.path.endswith("/usage"):
            of = GpuUsage(
                node=NodeId("n1"), index=0, uuid=GpuUuid("G"), rank=0, busy=(50, 70), busy_mean=60.0
            )
            body = JobUsage(
                job_id=JobId("MOCK0000"),
                state=JobState.RUNNING,
                attempt=1,
                asked=4,
                used=0.6,
                hint="Use --gpus 1.",
                step_s=2.0,
                times=(NOW - 4, NOW - 2),
                gpus=(of,),
            )
            return Answer(status=200, body=msgspec.json.encode(body))
        return super()._answer(request)


class Panel:
    """What a tab needs of one, drawn at once."""

    def __init__(self, view: FakeView, play: Play = Play(waits=True, reason="Waits for 2 GPUs.")) -> None:  # noqa: B008 - frozen
        self.mock = Server(lambda _: play)
        self.client = Client(transport=self.mock)
        self.loop = Loop()
        self.namespace: dict[str, object] = {}
        self.said: list[str] = []
        self.opened: list[str] = []
        self.tab: Any = None
        self.view = view

    @property
    def seen(self) -> Seen:
        return Seen(self.view, NOW)  # type: ignore[arg-type]

    def draw(self) -> None:
        if self.tab is not None:
            self.tab.draw(self.seen)

    def open_job(self, job_id: str) -> None:
        self.opened.append(job_id)

    def say(self, text: str) -> None:
        self.said.append(text)

    def show(self, tab: Any) -> Any:
        self.tab = tab
        tab.shown()
        self.draw()
        return tab

    @property
    def asked(self) -> list[str]:
        return [f"{one.method} {one.path}" for one in self.mock.requests]


def hidden(widget: Any) -> bool:
    return has_class(widget, "mgpu-hide")
