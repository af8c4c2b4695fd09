"""Simulated clients: they submit under idempotency keys until they are answered, order, watch, and remember
what they were told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgpu_agent.protocol.errors import MgpuError
from mgpu_agent.protocol.ids import JobId
from mgpu_jupyter.master import calls
from mgpu_jupyter.master.intake import Admitted, targets
from mgpu_jupyter.master.master import Call, Master
from mgpu_jupyter.master.ports import SavedJob
from mgpu_jupyter.master.turn import Turn
from mgpu_jupyter.model.job import JobSpec
from mgpu_jupyter.scheduler.events import JobChanged
from tests.checker.history import Fault, History, Told
from tests.storm.server import MasterProcess
from tests.storm.world import World

PATIENCE_S = 3.0
Make = Callable[[Callable[[Any], None]], Call]


class Clients:
    """All of them, and the history that they write down together."""

    def __init__(self, world: World, master: MasterProcess, history: History) -> None:
        self.world = world
        self.master = master
        self.history = history
        self.loss = self.usual_loss = 0.0
        self.open = 0
        """Requests without an answer."""
        self.jobs: list[JobId] = []
        """Those that were acknowledged, in order."""
        self.held: set[JobId] = set()
        """Those that somebody holds, and was answered so."""
        self.requeued: set[tuple[str, int]] = set()
        """Attempts that somebody had ended, perhaps before they began."""
        self.refusals: list[str] = []
        self.changed_at = 0.0
        """When a job changed last, as far as anybody was told."""
        self._newest: dict[JobId, int] = {}
        master.on_change = self._see

    # --- requests ------------------------------------------------------------------------------------

    def submit(self, user: str, key: str, spec: JobSpec) -> None:
        """Submit until the master says yes or no."""
        ranks = spec.nodes or 1
        self.history.asked[key] = {"key": key, "ranks": ranks, "witness": True}

        def answered(result: list[Admitted] | MgpuError) -> None:
            if isinstance(result, MgpuError):
                self.refusals.append(result.message)
                return
            for number, job in enumerate(result[0]):
                self.history.acknowledged.append(
                    (f"{key}[{number}]" if job.array else key, job.id, self.world.now)
                )
                if job.array:
                    self.history.asked[f"{key}[{number}]"] = self.history.asked[key]
                if job.id not in self.jobs:
                    self.jobs.append(job.id)
            self.world.note(user, f"{key} is {' '.join(job.id for job in result[0])}")

        self._ask(user, f"submit {key}", lambda answer: calls.submit(user, [(spec, key)], answer), answered)

    def cancel(self, job_id: JobId) -> None:
        """Cancel a job until the master says that it heard."""
        self._ask(
            "root",
            f"cancel {job_id}",
            lambda answer: calls.cancel(job_id, "root", is_admin=True, answer=answer),
            lambda _: None,
        )

    def requeue(self, job_id: JobId) -> None:
        """Have a job run once more; each time that the master carries this out is a cause, whenever it was
        asked for.
        """

        def make(answer: Callable[[Any], None]) -> Call:
            call = calls.requeue(job_id, "root", is_admin=True, answer=answer)

            def carry_out(master: Master, turn: Turn) -> None:
                self.history.faults.append(Fault("given-up", "", self.world.now, job_id))
                self.requeued |= {(job.id, job.attempt) for job in targets(master, turn, job_id)}
                call(master, turn)

            return carry_out

        self._ask("root", f"requeue {job_id}", make, lambda _: None)

    def change(self, job_id: JobId, **changes: Any) -> None:
        """Hold or release a job, or give it another limit."""

        def wanted(at: float, job: JobId, by: str) -> JobChanged:
            return JobChanged(at=at, job_id=job, by=by, **changes)

        def answered(_: Any) -> None:
            # Only now: a hold that is still asked for, again and again, may come through after whatever is
            # asked meanwhile.
            if changes.get("held"):
                self.held.add(job_id)

        make: Make = lambda answer: calls.change(job_id, "root", wanted, is_admin=True, answer=answer)
        self._ask("root", f"change {job_id} {changes}", make, answered)

    def release_all(self) -> None:
        """Let every job go on that somebody held."""
        held, self.held = self.held, set()
        for job_id in sorted(held):
            self.change(job_id, held=False)

    def _ask(self, who: str, what: str, make: Make, answered: Callable[[Any], None]) -> None:
        """Send a request; without an answer send it again, as often as it takes."""
        self.open += 1
        done: list[bool] = []
        self.world.note(who, what)

        def deliver() -> None:
            if not done and self.world.random.random() >= self.loss:
                self.master.post(make(reply), reply)

        def reply(result: Any) -> None:
            if self.world.random.random() >= self.loss:
                self.world.later(self.world.spread(0.0005, 0.05), lambda: arrive(result))

        def arrive(result: Any) -> None:
            if isinstance(result, MgpuError) and result.code in ("disk-full", "internal", "stopping"):
                return  # it is told to try again, and will
            # An answer that comes late, to an earlier try, is an answer too.
            if not done:
                done.append(True)
                self.open -= 1
            self.world.note(
                who, f"{what} was answered: {result.code if isinstance(result, MgpuError) else 'yes'}"
            )
            answered(result)

        def try_() -> None:
            if not done:
                self.world.later(self.world.spread(0.0005, 0.05), deliver)
                self.world.later(PATIENCE_S, try_)

        try_()

    # --- what they see -------------------------------------------------------------------------------

    def look(self) -> None:
        """Ask for all jobs, as a queue that is refreshed does."""
        if self.master.is_up:
            for job_id in self.jobs:
                saved = self.master.store.job(job_id)
                if saved is None:
                    self.history.unknown.append((job_id, self.world.now))
                else:
                    self._told(saved)

    def _see(self, saved: SavedJob) -> None:
        job = saved.job
        self.world.note(
            "told", f"{job.id} {job.state} attempt {job.attempt} epoch {job.epoch} exit {job.exit_code}"
        )
        self._told(saved)

    def _told(self, saved: SavedJob) -> None:
        """Write it down, unless something newer was told already: changes have numbers, by which every client
        goes.
        """
        job = saved.job
        if saved.seq < self._newest.get(job.id, 0):
            return
        if saved.seq > self._newest.get(job.id, 0):
            self.changed_at = self.world.now
        self._newest[job.id] = saved.seq
        self.history.told.append(Told(job.id, job.state.value, job.attempt, job.exit_code, self.world.now))
