"""A cluster to be hurt: masters that start fast, agents that can be killed at failpoints, and a record of all
that was told.

Judges nothing and decides nothing about when to hurt what; rows do, and tests/checker judges the record.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self, cast

import psutil

from mgpu_agent.protocol.errors import MgpuError, NotFound
from mgpu_agent.protocol.failpoints import VARIABLE
from mgpu_jupyter import Client
from mgpu_jupyter.client.here import Here
from mgpu_jupyter.client.spec import spec_of
from mgpu_jupyter.client.transport import Timeouts
from tests.chaos.past import PAST
from tests.checker import history, rules
from tests.e2e.cluster import BIN, ROOT, START_LIMIT_S, Cluster
from tests.processes import wait_until

WITNESS = ROOT / "tests" / "checker" / "witness.py"
LOOK_S = 0.25
LOOK_AT = 300  # the newest; every job is looked at by name in the end
SUBMITTERS = 3
SUBMIT_LIMIT_S = 120.0
LOOSE = "loose"
"""The name of jobs of which nobody writes down a life; they only must come to an end."""


def now() -> float:
    """Return the checker's time."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Forked:
    """A process that somebody else is the parent of, with the part of Popen's interface that a cluster
    uses.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._descriptor = os.pidfd_open(pid)

    def poll(self) -> int | None:
        """Return a number once it has ended; which one is not known."""
        return self._ended(0)

    def wait(self, timeout: float) -> int:
        """Wait for its end."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal to exactly this process."""
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout: float) -> int | None:
        if self.returncode is None and select.select([self._descriptor], [], [], timeout)[0]:
            os.close(self._descriptor)
            self.returncode = -1
        return self.returncode


class Stage(Cluster):
    """Leaving the `with` block ends all that it started."""

    def __init__(self, directory: Path, *, settings: dict[str, Any] | None = None) -> None:
        super().__init__(directory / "cluster")
        self.record = directory / "record"
        self.witness = self.record / history.WITNESS
        self.witness.mkdir(parents=True)
        self.write("settings", **(settings or {}))
        # A client with less patience between tries: masters are away half of the time.
        self.client = Client(env=self.env, timeouts=Timeouts(backoff_cap_s=0.2))
        self.acknowledged: dict[str, str] = {}
        """Job id by key."""
        self.problems: list[str] = []
        """What went wrong beside the ten rules, one sentence each."""
        self._warm: subprocess.Popen[str] | None = None
        self._told: dict[str, tuple[str, int, int | None]] = {}
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cool_down()
        super().__exit__(kind, error, trace)

    def cool_down(self) -> None:
        """End the parent of masters."""
        if self._warm is not None and self._warm.stdin is not None and self._warm.stdout is not None:
            self._warm.stdin.close()
            self._warm.wait(10)
            self._warm.stdout.close()

    @property
    def link_port(self) -> int:
        """Where masters of this stage listen for agents."""
        return self._link_port

    # --- programs ------------------------------------------------------------------------------------

    def fork_master(self, *traits: str, failpoints: str = "") -> Forked:
        """Start a master and return at once."""
        if self._warm is None:
            self.warm_up()
        assert self._warm is not None
        assert self._warm.stdin is not None
        arguments = [f"--MgpuApp.link_port={self._link_port}", "--MgpuApp.local_agent=False", *traits]
        request = {
            "arguments": arguments,
            "port": self.port,
            "failpoints": failpoints,
            "log": str(self.log_path("master")),
            "env": self.env,
        }
        self._warm.stdin.write(json.dumps(request) + "\n")
        self._warm.stdin.flush()
        master = Forked(self._answer()["pid"])
        self._programs["master"] = cast("subprocess.Popen[bytes]", master)
        return master

    def warm_up(self) -> None:
        """Start the parent of masters, which may serve other stages too."""
        command = [sys.executable, "-m", "tests.chaos.warm"]
        with self.log_path("warm").open("ab") as log:
            self._warm = subprocess.Popen(
                command,
                env=self.env | {"PYTHONPATH": str(ROOT)},
                cwd=self.directory,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._answer()

    def warm_master(self, *traits: str) -> Forked:
        """Start a master and wait until it answers."""
        master = self.fork_master(*traits)
        self.wait_for_master(cast("subprocess.Popen[bytes]", master))
        return master

    def has_master(self) -> bool:
        """Tell whether a master lives."""
        return self._programs["master"].poll() is None

    def wait_for_master_or_end(self, master: Forked) -> bool:
        """Wait until a master answers or has ended; tell whether it answers."""

        def ready() -> str | None:
            if master.poll() is not None:
                return "ended"
            with contextlib.suppress(AssertionError):
                return "ready" if self.runtime().pid == master.pid else None
            return None

        return self.wait_until(ready, "the master answers or ends", START_LIMIT_S) == "ready"

    def fork_node(
        self, node_id: str, gpus: int, failpoints: str = "", *, restart: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start an agent and return at once."""
        command = [
            str(BIN / "mgpu_node"),
            "--node-id",
            node_id,
            "--fake-gpus",
            str(gpus),
            "--master-port",
            str(self.port),
            *([] if restart else ["--no-restart"]),
        ]
        return self.start(node_id, command, env={VARIABLE: failpoints} if failpoints else None)

    def start_nodes(self, count: int, gpus: int, *, restart: bool = False) -> list[str]:
        """Start agents side by side and wait until all are online; killed, they stay away by default."""
        names = [f"n{number}" for number in range(count)]
        for name in names:
            self.fork_node(name, gpus, restart=restart)
        self.wait_until(
            lambda: all(self.node_states().get(name) == "online" for name in names),
            "all nodes are online",
            START_LIMIT_S,
        )
        return names

    def keeper_of(self, node_id: str) -> psutil.Process | None:
        """Return the keeper of a node, if one lives."""
        mark = str(self.state / "nodes" / node_id)
        for process in psutil.process_iter(["cmdline"]):
            words = process.info["cmdline"] or []
            if "mgpu_agent.keeper" in words and mark in words and process.is_running():
                return cast("psutil.Process", process)
        return None

    def _answer(self) -> dict[str, Any]:
        assert self._warm is not None
        assert self._warm.stdout is not None
        line = self._warm.stdout.readline()
        assert line, f"the parent of masters ended: {self.log('warm')[-2000:]}"
        return cast("dict[str, Any]", json.loads(line))

    # --- the record ----------------------------------------------------------------------------------

    def write(self, what: str, **more: object) -> None:
        """Add a line to the record."""
        history.append(self.record, what, now(), **more)

    def submit(
        self, key: str, seconds: float, *, code: int = 0, words: tuple[str, ...] = (), **keywords: Any
    ) -> str:
        """Submit a job that writes down its life, until it is acknowledged; return its id."""
        command = [
            sys.executable,
            "-IS",
            str(WITNESS),
            str(self.witness),
            f"{seconds:.3f}",
            str(code),
            *words,
        ]
        spec = spec_of(command, None, {"name": key, **keywords}, Here.real())
        ranks = keywords.get("nodes", 1) * keywords.get("ntasks_per_node", 1)
        self.write("asked", key=key, ranks=ranks)
        job = self.client.submit_spec(spec, key=key, retry_s=SUBMIT_LIMIT_S).id
        self.write("acknowledged", key=key, job=job)
        with self._lock:
            self.acknowledged[key] = job
        return job

    def look(self) -> None:
        """Ask for the newest states and record what changed."""
        for job in self.client.jobs(limit=LOOK_AT):
            if job.info.name not in (PAST, LOOSE):
                self._note(job.id, str(job.state), job.info.attempt, job.info.exit_code)

    def look_at_each(self) -> None:
        """Ask for every acknowledged job by name, and record the answer in any case."""
        for job_id in sorted(set(self.acknowledged.values())):
            try:
                info = self.client.job(job_id).info
            except NotFound:
                self.write("unknown", job=job_id)
                continue
            self.write(
                "state", job=job_id, state=str(info.state), attempt=info.attempt, exit_code=info.exit_code
            )

    def _note(self, job_id: str, state: str, attempt: int, exit_code: int | None) -> None:
        told = (state, attempt, exit_code)
        if self._told.get(job_id) != told:
            self._told[job_id] = told
            self.write("state", job=job_id, state=state, attempt=attempt, exit_code=exit_code)

    def survey(self) -> None:
        """Record every living process that bears the mark of a job of this stage."""
        for pid, env in self._marked():
            self.write("alive", job=env["MGPU_JOB_ID"], pid=pid)

    def jobs_on(self, node_id: str) -> list[int]:
        """Return the living processes of jobs that were started on a node."""
        return [pid for pid, env in self._marked() if env.get("MGPU_NODE_ID") == node_id]

    def _marked(self) -> Iterator[tuple[int, dict[str, str]]]:
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                env = process.environ()
                if (
                    env.get("MGPU_STATE_DIR") == str(self.state)
                    and "MGPU_JOB_ID" in env
                    and process.status() != psutil.STATUS_ZOMBIE
                ):
                    yield process.pid, env

    def drain(self, limit_s: float) -> None:
        """Wait until nothing waits or runs, then look once more at everything."""

        def over() -> bool:
            self.look()
            return not list(self.client.jobs(state="active", limit=1))

        with contextlib.suppress(AssertionError):  # what did not end is rule 1's business
            wait_until(over, "all jobs are over", limit_s, LOOK_S)
        self.look_at_each()
        self.problems += [
            f"the loose job {job.id} is still {job.state}"
            for job in self.client.jobs(state="active", name=LOOSE, limit=100)
        ]

    def compare_output(self, job: str, rank: int) -> int:
        """Compare what a rank with the word `talk` printed with what was kept of it; return how many lines
        that are.
        """
        path = max(
            self.witness.glob(f"{job}.*.{rank}.*.jsonl"), key=lambda path: int(path.name.split(".")[1])
        )
        beats = [json.loads(line)["what"] for line in path.read_text().splitlines()].count("beat")
        said = ["started", *(f"beat {number}" for number in range(1, beats + 1)), "ends"]
        kept = self.client.job(job).output(rank).splitlines()
        if kept != said:
            first = next(
                (place for place, (one, other) in enumerate(zip(kept, said, strict=False)) if one != other),
                -1,
            )
            self.problems.append(
                f"rank {rank} of job {job} printed {len(said)} lines, {len(kept)} were kept; first other "
                f"line: {first}"
            )
        return len(kept)

    def judge(self) -> list[str]:
        """Return every violation and problem so far."""
        return [*map(str, rules.check(history.read(self.record))), *self.problems]


class Busy:
    """Threads that submit and look while the row hurts the cluster. Leaving the `with` block waits for the
    last submit.
    """

    def __init__(self, stage: Stage, submit: Callable[[int], None], *, pause_s: float) -> None:
        self._stage = stage
        self._submit = submit
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._numbers = itertools.count()
        self._threads = [threading.Thread(target=self._submit_all) for _ in range(SUBMITTERS)]
        self._threads.append(threading.Thread(target=self._look))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _submit_all(self) -> None:
        for number in self._numbers:
            try:
                self._submit(number)
            except MgpuError as error:
                self._stage.problems.append(f"job {number} could not be submitted: {error.message}")
            if self._stopped.wait(self._pause_s):
                return

    def _look(self) -> None:
        while not self._stopped.wait(LOOK_S):
            with contextlib.suppress(MgpuError):
                self._stage.look()
