"""A real cluster on loopback for tests: a master, agents and jobs as processes. Decides nothing; ends all
that it started.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from mgpu_agent.protocol.places import RuntimeFile, find_runtime_file
from mgpu_jupyter import Client
from tests.processes import LIMIT_S, describe, end_all, free_port, processes_of, wait_until

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
START_LIMIT_S = 180.0
T = TypeVar("T")


class Cluster:
    """Leaving the `with` block ends every process, and fails when one had to be killed that should have
    ended.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self.home = directory / "home"
        self.port = free_port()
        self._link_port = free_port()
        self._programs: dict[str, subprocess.Popen[bytes]] = {}
        self.client = Client(env=self.env)

    def __enter__(self) -> Self:
        self.home.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.report())
        self.client.close()
        self.close_programs()

    def close_programs(self) -> None:
        """End every program and job."""
        for program in self._programs.values():
            with contextlib.suppress(ProcessLookupError):
                program.terminate()
        end_all(self.state)
        for program in self._programs.values():
            program.wait(60)
        assert processes_of(self.state) == []

    # --- programs ------------------------------------------------------------------------------------

    @property
    def env(self) -> dict[str, str]:
        """The environment of every program, kernel and job of this cluster.

        Its home is empty: a job that is run by a login shell reads no file of whoever runs the tests. The
        cache stays theirs: it only saves time.
        """
        plain = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MGPU_", "JUPYTER_", "PYTEST_", "XDG_RUNTIME_", "XDG_STATE_"))
        }
        own = {
            f"JUPYTER_{kind}_DIR": str(self.directory / f"jupyter-{kind.lower()}")
            for kind in ("CONFIG", "DATA", "RUNTIME")
        }
        own |= {
            "IPYTHONDIR": str(self.directory / "ipython"),
            "XDG_CONFIG_HOME": str(self.directory / "config"),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"),
            "HOME": str(self.home),
        }
        return plain | own | {"MGPU_STATE_DIR": str(self.state)}

    def start(
        self, name: str, command: list[str], cwd: Path | None = None, env: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a program whose output goes to the log of that name."""
        with self.log_path(name).open("ab") as log:
            program = subprocess.Popen(
                command,
                env=self.env | (env or {}),
                cwd=cwd or self.directory,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._programs[name] = program
        return program

    def start_master(self, *traits: str, local_agent: bool = False) -> RuntimeFile:
        """Start `mgpu_master` and wait until it answers."""
        command = [str(BIN / "mgpu_master"), "--host", "127.0.0.1", "--port", str(self.port), "--"]
        command.append(f"--MgpuApp.link_port={self._link_port}")
        if not local_agent:
            command.append("--MgpuApp.local_agent=False")
        program = self.start("master", [*command, *traits])
        return self.wait_for_master(program)

    def wait_for_master(self, program: subprocess.Popen[bytes]) -> RuntimeFile:
        """Wait until the master says that it is well."""

        def ready() -> RuntimeFile | None:
            assert program.poll() is None, f"the master ended with {program.returncode}"
            found = find_runtime_file(self.state, self.port)
            if found is None or found.pid != program.pid:
                return None
            health = self.client.health()
            assert health.status in ("ok", "starting"), health
            return found if health.status == "ok" else None

        return self.wait_until(ready, "the master answers", START_LIMIT_S)

    def start_node(
        self, node_id: str, gpus: int = 4, *arguments: str, restart: bool = False
    ) -> subprocess.Popen[bytes]:
        """Start `mgpu_node` and wait until the master calls it online; killed, it stays away by default."""
        command = [
            str(BIN / "mgpu_node"),
            "--node-id",
            node_id,
            "--fake-gpus",
            str(gpus),
            "--master-port",
            str(self.port),
            *([] if restart else ["--no-restart"]),
            *arguments,
        ]
        return self.start_agent(node_id, command)

    def start_real_node(self, node_id: str, env: dict[str, str]) -> subprocess.Popen[bytes]:
        """Start `mgpu_node` with the GPUs that NVIDIA's library, as found in `env`, tells of."""
        return self.start_agent(
            node_id,
            [str(BIN / "mgpu_node"), "--node-id", node_id, "--master-port", str(self.port), "--no-restart"],
            env,
        )

    def start_agent(
        self, node_id: str, command: list[str], env: dict[str, str] | None = None, cwd: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Start an agent by its whole command and wait until the master calls it online."""
        before = self._joins(node_id)
        program = self.start(node_id, command, cwd, env)
        # The master may not have noticed yet that the agent before this one is gone: that this one joined,
        # only its log says.
        self.wait_until(
            lambda: self._joins(node_id) > before and self.node_states().get(node_id) == "online",
            f"{node_id} is online",
            START_LIMIT_S,
        )
        return program

    def _joins(self, node_id: str) -> int:
        return self.log(node_id).count(" joined ")

    def kill(self, name: str) -> None:
        """End a program as a crash does (SIGKILL), and only that one process."""
        self._programs[name].send_signal(signal.SIGKILL)
        self._programs[name].wait(60)

    def freeze(self, name: str) -> None:
        """Let a program hang: its connections stay open."""
        self._programs[name].send_signal(signal.SIGSTOP)

    def agent_of(self, node_id: str) -> int:
        """Return the agent of a node: the one that was started here, or one that was started in its place."""
        return int((self.state / "nodes" / node_id / "agent.lock").read_text() or self._programs[node_id].pid)

    def kill_agent(self, node_id: str) -> None:
        """Kill whichever agent a node has now."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.agent_of(node_id), signal.SIGKILL)

    def stop(self, name: str) -> int:
        """End a program as an administrator does (SIGTERM); return its exit code."""
        self._programs[name].terminate()
        return self._programs[name].wait(60)

    def wait(self, name: str) -> int:
        """Wait until a program ends by itself; return its exit code."""
        return self._programs[name].wait(60)

    @property
    def programs(self) -> tuple[str, ...]:
        """The names of the programs that were started."""
        return tuple(self._programs)

    def pid(self, name: str) -> int:
        """Return the process id of a program."""
        return self._programs[name].pid

    # --- looking -------------------------------------------------------------------------------------

    def runtime(self) -> RuntimeFile:
        """Return what the running master tells its own user."""
        found = find_runtime_file(self.state, self.port)
        assert found is not None, "there is no runtime file of a living master"
        return found

    def node_states(self) -> dict[str, str]:
        """Return the state of every node."""
        return {node.id: str(node.state) for node in self.client.nodes()}

    def job_states(self) -> dict[str, str]:
        """Return the state of every job."""
        return {job.id: str(job.state) for job in self.client.jobs()}

    def log_path(self, name: str) -> Path:
        """Return where a program's log is."""
        return self.directory / f"{name}.log"

    def log(self, name: str) -> str:
        """Return a program's log so far."""
        path = self.log_path(name)
        return path.read_text(errors="replace") if path.exists() else ""

    def wait_until(self, condition: Callable[[], T | None], what: str, limit_s: float = LIMIT_S) -> T:
        """Wait for a condition."""
        return wait_until(condition, what, limit_s)

    def report(self) -> str:
        """Return all that helps to see why a test failed."""
        parts = [f"--- processes\n{describe(processes_of(self.state))}"]
        with contextlib.suppress(Exception):
            parts += [f"--- job {job}" for job in self.client.jobs()]
        for path in sorted(self.directory.rglob("*.log")):
            lines = path.read_text(errors="replace").splitlines()[-40:]
            parts.append(f"--- {path.relative_to(self.directory)}\n" + "\n".join(lines))
        return "\n".join(parts)


def bash(script: str, **values: object) -> list[str]:
    """Return a command that runs `script`; `{name}` in it becomes the quoted value."""
    return ["bash", "-c", script.format(**{name: shlex.quote(str(value)) for name, value in values.items()})]
