"""Simulated processes of jobs: they write down their life as `tests/checker/witness.py` does, speak, hear
TERM or not, and end.
"""

from __future__ import annotations

from typing import Any

from tests.checker.history import Run

HEARD_TERM = 143
SIGKILL = 9
COMMAND = "witness"


class Job:
    """One process on a node. What it knows of itself comes from its own environment."""

    def __init__(
        self, node: Any, argv: tuple[bytes, ...], env: dict[bytes, bytes], stem: str, pid: int
    ) -> None:
        word, seconds, code, deaf, lines = (
            (part.decode() for part in argv[:5])
            if len(argv) >= 5
            else (argv[0].decode(), "0.01", "0", "0", "0")
        )
        self.node = node
        self.world = node.world
        self.pid = pid
        self.env = env
        self.stem = stem
        self.is_witness = word == COMMAND
        self.code: int | None = None
        self.signal: int | None = None
        self.is_alive = True
        self.started_at = self.world.now
        self.ended_at = self.world.now
        self._exit_code = int(code)
        self._is_deaf = deaf == "1"
        self._lines = int(lines)
        self._ends_at = self.world.now + float(seconds)
        self._is_ending = False
        if self.is_witness:
            self._speak("started")
        self.world.at(self._ends_at, self._end)

    @property
    def key(self) -> tuple[str, int, int]:
        """Job, attempt and epoch."""
        return (self._value("MGPU_JOB_ID"), int(self._value("MGPU_ATTEMPT")), int(self._value("MGPU_EPOCH")))

    @property
    def rank(self) -> int:
        """The rank as it was told."""
        return int(self._value("SLURM_PROCID") or 0)

    def run(self) -> Run:
        """Return what it wrote down."""
        job, attempt, epoch = self.key
        return Run(
            job=job,
            attempt=attempt,
            epoch=epoch,
            rank=self.rank,
            ranks=int(self._value("SLURM_NTASKS") or 1),
            node=self._value("MGPU_NODE_ID"),
            host=self.node.name,
            boot=self.node.boot_id,
            pid=self.pid,
            born=self.pid,
            # Processes of one node share what their attempt was given there; the first of them stands for
            # all.
            gpus=()
            if int(self._value("SLURM_LOCALID") or 0)
            else tuple(gpu for gpu in self._value("MGPU_GPUS").split(",") if gpu),
            started_at=self.started_at,
            seen_at=self.world.now if self.is_alive else self.ended_at,
            code=self.code,
        )

    def term(self) -> None:
        """Be asked to end."""
        if self.is_alive and not self._is_deaf and not self._is_ending:
            self._is_ending = True
            self.world.later(self.world.spread(0.001, 0.5), lambda: self._leave(HEARD_TERM))

    def kill(self) -> None:
        """Be ended; on a machine that sleeps nothing happens before it wakes."""
        if self.is_alive and self.node.machine.frozen_at is not None:
            self.world.at(self.node.machine.resume_at, self.kill)
        elif self.is_alive:
            self.signal = SIGKILL
            self._over()

    def _end(self) -> None:
        machine = self.node.machine
        if self.is_alive and machine.frozen_at is not None:
            self.world.at(machine.resume_at + 0.1, self._end)
        else:
            self._leave(self._exit_code)

    def _leave(self, code: int) -> None:
        if self.is_alive and self.node.machine.frozen_at is not None:
            self.world.at(self.node.machine.resume_at + 0.001, lambda: self._leave(code))
        elif self.is_alive:
            if self.is_witness:
                self._speak("ends")
            self.code = code
            self._over()

    def _over(self) -> None:
        self.is_alive = False
        machine = self.node.machine
        # What is killed in the moment in which its machine wakes did nothing since it fell asleep.
        woke = machine.resumed_at <= self.world.now < machine.resumed_at + 0.05 and self.code is None
        self.ended_at = max(self.started_at, machine.last_frozen_at) if woke else self.world.now
        self.world.note(self.node.name, f"process {self._name()} over, code {self.code}")
        self.node.process_ended(self)

    def _speak(self, word: str) -> None:
        for number in range(self._lines):
            self.node.write(self.stem, f"{self._name()} {word} {number}\n".encode())

    def _name(self) -> str:
        job, attempt, epoch = self.key
        return f"{job}.{attempt}.{epoch}#{self.rank}"

    def _value(self, name: str) -> str:
        return self.env.get(name.encode(), b"").decode()
