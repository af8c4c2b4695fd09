"""Jobs of the mock server: how each proceeds, and what a server reports at every moment."""

from __future__ import annotations

import signal
import threading
from typing import Literal

import msgspec

from mgpu_agent.protocol.ids import GpuUuid, JobId, NodeId
from mgpu_jupyter.api import models, traces
from mgpu_jupyter.model import explanations
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.model.sweep import combination
from mgpu_jupyter.model.units import units_of

USER = "me"
STARTED_AT = 1_000.0
HELD = "held"


class Say(msgspec.Struct, frozen=True):
    """Something that a rank prints; each becomes one frame."""

    data: bytes
    stream: Literal["stdout", "stderr"] = "stdout"
    rank: int = 0


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """How a job proceeds."""

    output: tuple[Say, ...] = ()
    exit_code: int = 0
    reason: str = ""
    """Why it waits before it starts; empty: it starts at once."""
    code: str = ""
    """The code of that reason."""
    waits: bool = False
    """Whether it stays in the queue, for `reason`, until it is cancelled."""
    hold: bool = False
    """Whether it runs until it is cancelled."""
    lasts_s: float = 1.0
    final: JobState | None = None
    """Its final state; by default it follows from the exit code."""
    note: str = ""


class MockJob:
    """One job."""

    def __init__(
        self, job_id: JobId, spec: JobSpec, play: Play, array: tuple[str, int] | None = None
    ) -> None:
        self.id, self.spec, self.play = job_id, spec, play
        self.array_id = array[0] if array else None
        self.array_index = array[1] if array else None
        self.cancelled = threading.Event()

    def view(self, state: JobState) -> models.Job:
        """Return what a server reports of it in this state."""
        final, started = state.is_final, state is not JobState.QUEUED and not self.play.waits
        is_cancelled = state is JobState.CANCELLED and self.cancelled.is_set()
        code = (128 + signal.SIGTERM if is_cancelled else self.play.exit_code) if final and started else None
        units = units_of(self.spec)
        placements = tuple(
            models.Placement(
                node=NodeId(f"node-{unit.index + 1}"),
                rank=unit.index,
                gpus=tuple(GpuUuid(f"GPU-{unit.index}-{number}") for number in range(unit.gpus)),
                gpu_indices=tuple(range(unit.gpus)),
                simulated=unit.gpus > 0,
                started_at=STARTED_AT,
                ended_at=STARTED_AT + self.play.lasts_s if final else None,
                exit_code=None if is_cancelled else code,
                signal=int(signal.SIGTERM) if is_cancelled else None,
                note=self.play.note,
            )
            for unit in units
        )
        reason_code, reason = self._reason(state)
        has_failed = state is JobState.FAILED and placements
        failure = (
            models.Failure(rank=0, node=placements[0].node, exit_code=code, last_lines=self._last_lines())
            if has_failed
            else None
        )
        return models.Job(
            id=self.id,
            state=state,
            user=USER,
            name=self.spec.name,
            command=" ".join(self.spec.command) or (self.spec.script or "").partition("\n")[0],
            nodes=tuple(placement.node for placement in placements) if started else (),
            distributed=self.spec.distributed,
            master_node=placements[0].node if started and placements else None,
            gpus=sum(unit.gpus for unit in units),
            exit_code=code,
            attempt=1 if started else 0,
            submitted_at=STARTED_AT - 1,
            started_at=STARTED_AT if started else None,
            ended_at=STARTED_AT + self.play.lasts_s if final else None,
            reason=reason,
            reason_code=reason_code,
            priority=self.spec.priority,
            time_limit_s=self.spec.time_limit_s,
            place=None if state is not JobState.QUEUED or reason_code == HELD else 1,
            placements=placements if started else (),
            failure=failure,
            array_id=self.array_id,
            array_index=self.array_index,
            origin=self.spec.origin,
            sweep=combination(self.spec.sweep, self.array_index)
            if self.spec.sweep and self.array_index is not None
            else {},
        )

    def _reason(self, state: JobState) -> tuple[str, str]:
        if state is JobState.QUEUED:
            return (
                (HELD, f"It is held: release it with `mgpu release {self.id}`.")
                if self.spec.hold
                else (self.play.code, self.play.reason)
            )
        if state is JobState.CANCELLED and self.cancelled.is_set():
            return "cancelled", f"Cancelled by {USER}."
        if state is JobState.FAILED and self.play.exit_code:
            return "exit", f"It ended with exit code {self.play.exit_code} on node-1."
        return "", ""

    def _last_lines(self) -> tuple[str, ...]:
        said = b"".join(say.data for say in self.play.output if say.rank == 0)
        return tuple(said.decode(errors="replace").splitlines()[-5:])

    @property
    def final(self) -> JobState:
        """Return the state that it ends in."""
        if self.cancelled.is_set():
            return JobState.CANCELLED
        if self.play.final is not None:
            return self.play.final
        return JobState.FAILED if self.play.exit_code else JobState.COMPLETED

    @property
    def now(self) -> JobState:
        """Return its state at this moment."""
        if self.is_over:
            return self.final
        return JobState.QUEUED if self.play.waits else JobState.RUNNING

    @property
    def is_over(self) -> bool:
        """Tell whether nothing will change any more."""
        return self.cancelled.is_set() or not (self.play.hold or self.play.waits)


def trace(job: models.Job) -> traces.Trace:
    """Return a short trace: submitted and started, as assigned unless the job says otherwise."""
    steps = (
        traces.Step(step="submitted", at=job.submitted_at, seconds=0.0, text=f"by {job.user}"),
        traces.Step(
            step="started", at=job.submitted_at + 1.0, seconds=1.0, text="node node-1, host host-1, pid 7"
        ),
    )
    return traces.Trace(
        job_id=job.id,
        name=job.name,
        user=job.user,
        command=job.command,
        state=job.state,
        submitted_at=job.submitted_at,
        now=job.submitted_at + 2.0,
        attempts=(traces.AttemptTrace(attempt=1, epoch=1, queued_at=job.submitted_at, steps=steps),),
        ok=not job.mismatches,
        mismatches=job.mismatches,
    )


def explanation(reason: str = "", job_id: JobId | None = None) -> explanations.Explanation:
    """Return a short explanation: that it starts now, or waits for this reason."""
    if not reason:
        return explanations.Explanation(
            verdict="now",
            code="now",
            text="It would start now on node-1 (GPU 0).",
            job_id=job_id,
            where=(explanations.Where(node=NodeId("node-1"), gpus=(0,)),),
        )
    out = explanations.Excluded(check="gpus", text=reason, never=False, count=1, nodes=(NodeId("node-1"),))
    return explanations.Explanation(
        verdict="not_now",
        code="busy",
        text=f"Not now: {reason}",
        job_id=job_id,
        units=(
            explanations.UnitAnswer(first=0, count=1, needs="2 GPUs", missing=1, would_do=0, excluded=(out,)),
        ),
        place=1,
        offers=(
            explanations.Offer(
                text="1 GPU instead of 2",
                flags=("--gpus 1",),
                patch={"gpus": 1},
                where=(explanations.Where(node=NodeId("node-1"), gpus=(0,)),),
            ),
        ),
    )
