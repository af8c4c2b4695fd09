"""Changes of jobs and nodes as frames for one reader, from any sequence number, without end. Sends nothing.

Theory of operation. All up to `master.seq` is committed and shown, so each round sends what changed between
the reader's number and that one, in order; a reader can resume from any number in between. A round begins
when the frames of the one before are sent: a slow reader gets fewer, newer states. Removals are remembered
for a while; a reader that comes back with an older number gets `reset`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack

import msgspec

from mgpu_jupyter.api.frames import (
    EventFrame,
    GoneFrame,
    JobFrame,
    NodeFrame,
    PingFrame,
    ReadyFrame,
    ResetFrame,
    SamplesFrame,
)
from mgpu_jupyter.master.node_views import NodeView
from mgpu_jupyter.master.views import node_view
from mgpu_jupyter.server.follow import PING_S
from mgpu_jupyter.server.live.readings import Told
from mgpu_jupyter.server.service import Service

EVENT_PAGE = 500
EVENT_PAUSE_S = 0.1  # changes that come closer together are sent as one
SAMPLES_PAUSE_S = 1.0
ANEW = "What happened meanwhile is not known any more: ask for cluster, nodes and jobs again."


class WantedEvents(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader asked for."""

    since: int = -1
    samples: bool = False
    queue: int = 0
    """0 for no queue, 1 for the whole queue, else the version that the reader has."""


class EventStream:
    """All changes, for one reader."""

    def __init__(
        self, service: Service, wanted: WantedEvents, monotonic: Callable[[], float] | None = None
    ) -> None:
        self._service = service
        self._wanted = wanted
        self._monotonic = monotonic or asyncio.get_running_loop().time
        self._told = Told(service.live.rounding)
        self._sampled_at = float("-inf")
        self._queue = wanted.queue
        self._is_first = True

    async def frames(self) -> AsyncIterator[EventFrame]:
        """Yield what changed, then continue live."""
        master, wanted = self._service.master, self._wanted
        seq = master.seq if wanted.since < 0 else wanted.since
        is_ready = False
        with ExitStack() as stack:
            watch = stack.enter_context(self._service.hub.watch())
            if wanted.queue:
                stack.enter_context(self._service.live.board.reader(watch))
            while True:
                target = master.seq
                if self._is_full and master.gone_since(seq) is None:
                    seq = target
                    yield ResetFrame(seq=seq, message=ANEW)
                async for frame in self._changes(seq, target):
                    yield frame
                seq = max(seq, target)
                for extra in self._extras():
                    yield extra
                if not is_ready:
                    is_ready = True
                    yield ReadyFrame(seq=seq)
                patience_s = self._patience_s
                if await watch.wait(patience_s):
                    await asyncio.sleep(EVENT_PAUSE_S)
                elif patience_s == PING_S:
                    yield PingFrame()

    @property
    def _is_full(self) -> bool:
        """Whether the reader knows `gone` and `reset`, which clients of the first versions do not."""
        return self._wanted.samples or bool(self._wanted.queue)

    @property
    def _patience_s(self) -> float:
        """How long to wait for a change: readings that came too soon wait for their second."""
        if not self._wanted.samples:
            return PING_S
        left_s = self._sampled_at + SAMPLES_PAUSE_S - self._monotonic()
        return left_s if left_s > 0 else PING_S

    def _extras(self) -> list[EventFrame]:
        found: list[EventFrame] = []
        now = self._monotonic()
        is_due = self._wanted.samples and now >= self._sampled_at + SAMPLES_PAUSE_S
        if is_due and (news := self._told.news(self._service.master.nodes())):
            self._sampled_at = now
            found.append(SamplesFrame(at=self._service.clock(), nodes=news))
        if self._wanted.queue and (frame := self._service.live.board.frame_since(self._queue)) is not None:
            self._queue = frame.version
            found.append(frame)
        return found

    async def _changes(self, seq: int, target: int) -> AsyncIterator[JobFrame | NodeFrame | GoneFrame]:
        """Yield what changed after `seq` up to `target`, in the order of sequence numbers."""
        others = self._others(seq, target)
        has_jobs, self._is_first = self._is_first or self._service.master.jobs_seq > seq, False
        while has_jobs and (page := await self._service.changed_since(seq, EVENT_PAGE)):
            seq = page[-1].seq
            has_jobs = seq < target
            for job in page:
                if job.seq > target:  # it changed again meanwhile: the next round sends it
                    break
                while others and others[0].seq < job.seq:
                    yield others.pop(0)
                yield JobFrame(seq=job.seq, job=job)
        for other in others:
            yield other

    def _others(self, seq: int, target: int) -> list[NodeFrame | GoneFrame]:
        master = self._service.master
        number: Callable[[NodeView], int] = _core_seq if self._wanted.samples else _seq
        nodes = sorted((node for node in master.nodes() if seq < number(node) <= target), key=number)
        found: list[NodeFrame | GoneFrame] = [
            NodeFrame(seq=number(node), node=node_view(node)) for node in nodes
        ]
        if self._is_full:
            found += [
                GoneFrame(seq=one.seq, nodes=one.nodes, jobs=one.jobs)
                for one in master.gone_since(seq) or ()
                if one.seq <= target
            ]
            found.sort(key=lambda frame: frame.seq)
        return found


def _seq(node: NodeView) -> int:
    return node.seq


def _core_seq(node: NodeView) -> int:
    return node.core_seq
