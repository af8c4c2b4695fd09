"""Operating system users for a test, each with a home and a Jupyter server of their own. Removes all of it
again; needs root.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from mgpu_jupyter import Client
from tests.e2e.cluster import BIN, START_LIMIT_S, Cluster
from tests.processes import end_all, free_port, wait_until

ROOT = Path(__file__).parents[2]
PACKAGES = ("mgpu_agent", "mgpu_jupyter")


def why_not() -> str:
    """Say why users cannot be made here; empty if they can."""
    if os.getuid() != 0:
        return "needs root: it makes two users of the operating system"
    if shutil.which("useradd") is None or shutil.which("userdel") is None:
        return "needs useradd and userdel (package passwd)"
    return ""


@contextlib.contextmanager
def open_directory() -> Iterator[Path]:
    """Make a directory that every user may enter; pytest's own are private."""
    path = Path(tempfile.mkdtemp(prefix="mgpu-people-"))
    path.chmod(0o755)
    try:
        yield path
    finally:
        shutil.rmtree(path)


def python_for_all(directory: Path) -> tuple[Path, dict[str, str]]:
    """Return this environment's Python and what it needs in the environment, in places that every user may
    enter.
    """
    program, site = Path(sys.executable).resolve(), Path(sysconfig.get_path("purelib"))
    if all(_others_may_enter(path) for path in (program, site, ROOT)):
        return Path(sys.prefix) / "bin" / "python", {}
    home = directory / "python"
    env = {"PYTHONPATH": f"{directory / 'source'}:{directory / 'site'}"}
    if not home.exists():
        for package in PACKAGES:
            shutil.copytree(ROOT / package, directory / "source" / package)
        _link(site, directory / "site")
        library = Path(sysconfig.get_path("stdlib"))
        for path in library.iterdir():
            if path.name not in ("site-packages", "test", "__pycache__"):
                _link(path, home / "lib" / library.name / path.name)
        for path in library.parent.glob("libpython*.so*"):
            _link(path, home / "lib" / path.name)
        _link(program, home / "bin" / "python")
    return home / "bin" / "python", env | {"PYTHONHOME": str(home), "LD_LIBRARY_PATH": str(home / "lib")}


def _link(source: Path, target: Path) -> None:
    """Hard links reach files past a private directory, and cost no time or space; across file systems they
    are copies.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if subprocess.run(["cp", "-al", str(source), str(target)], capture_output=True, check=False).returncode:
        subprocess.run(["rm", "-rf", str(target)], check=True)
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)


class Shared(Cluster):
    """A shared master: HTTPS, and users who log in."""

    def start_shared_master(self, *traits: str, env: dict[str, str] | None = None) -> None:
        command = [str(BIN / "mgpu_master"), "--host", "127.0.0.1", "--tls", "--port", str(self.port), "--"]
        program = self.start(
            "master",
            [*command, f"--MgpuApp.link_port={self._link_port}", "--MgpuApp.local_agent=False", *traits],
            env=env,
        )
        self.wait_for_master(program)


class OsUser:
    """One user of the operating system with a Jupyter server; leaving the `with` block removes both."""

    def __init__(self, directory: Path, python: Path, env: dict[str, str]) -> None:
        self.name = f"mgpu-{secrets.token_hex(4)}"
        self.home = directory / self.name
        self.port = free_port()
        self._link_port = free_port()
        self.jupyter_token = secrets.token_hex(16)
        self._directory = directory
        self._python = python
        self._env = env
        self._server: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        self.home.mkdir(mode=0o700)
        command = [
            "useradd",
            "--no-create-home",
            "--home-dir",
            str(self.home),
            "--shell",
            "/bin/bash",
            "--user-group",
            self.name,
        ]
        _change_users(command)
        self.uid, self.gid = pwd.getpwnam(self.name).pw_uid, pwd.getpwnam(self.name).pw_gid
        os.chown(self.home, self.uid, self.gid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(f"--- server of {self.name}\n{self.log()[-4000:]}")
        if self._server is not None:
            self.stop_server()
        end_all(self.home)
        # A kernel may outlive a server that was killed: what runs under this name was started here.
        wait_until(self._kill_all, f"no process of {self.name} is left")
        _change_users(["userdel", self.name])

    def _kill_all(self) -> bool:
        """Kill what this user runs; tell whether there was nothing."""
        left = processes_of_user(self.uid)
        for process in left:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGKILL)
        return not left

    @property
    def env(self) -> dict[str, str]:
        """What a login shell of this user would have."""
        return {
            "HOME": str(self.home),
            "USER": self.name,
            "LOGNAME": self.name,
            "PATH": os.environ["PATH"],
            "LANG": "C.UTF-8",
        } | (self._env | {"MGPU_STATE_DIR": str(self.home / "state"), "PYTHONDONTWRITEBYTECODE": "1"})

    def run(
        self, module: str, *words: str, stdin: str = "", check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Run a command of mgpu as this user."""
        code = f"import sys; from mgpu_jupyter.cli.main import {module} as main; sys.exit(main())"
        done = subprocess.run(
            [str(self._python), "-c", code, *words],
            env=self.env | env,
            user=self.uid,
            group=self.gid,
            extra_groups=[],
            cwd=self.home,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert not check or done.returncode == 0, (module, words[:1], done.stdout, done.stderr)
        return done

    def start_server(self, name: str = "server", port: int | None = None) -> subprocess.Popen[bytes]:
        """Start a Jupyter server as this user, as one does by hand, and wait until it answers."""
        port = port or self.port
        with (self._directory / f"{self.name}-{name}.log").open("ab") as log:
            server = subprocess.Popen(
                [
                    *(
                        str(self._python),
                        "-m",
                        "jupyter_server",
                        "--no-browser",
                        "--ServerApp.ip=127.0.0.1",
                        f"--ServerApp.port={port}",
                    ),
                    *(
                        "--ServerApp.port_retries=0",
                        "--ServerApp.jpserver_extensions={'mgpu_jupyter': True}",
                        "--MgpuApp.local_agent=False",
                    ),
                    f"--MgpuApp.link_port={self._link_port}",
                ],
                env=self.env | {"JUPYTER_TOKEN": self.jupyter_token},
                user=self.uid,
                group=self.gid,
                extra_groups=[],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if name == "server":
            self._server = server

        def ready() -> bool:
            assert server.poll() is None, "the server ended"
            with self.client(port) as client:
                return client.health().status == "ok"

        wait_until(ready, f"the server of {self.name} answers", START_LIMIT_S)
        return server

    def stop_server(self) -> None:
        """End the Jupyter server in order."""
        assert self._server is not None
        if self._server.poll() is None:
            self._server.terminate()
        self._server.wait(60)

    def client(self, port: int | None = None) -> Client:
        """Return a client that speaks to this user's own server with the token that its kernels have."""
        return Client(
            f"http://127.0.0.1:{port or self.port}/",
            (self.home / "state" / "keys" / "token").read_text(),
            env={},
        )

    def log(self) -> str:
        """Return what the servers of this user logged."""
        return "\n".join(
            path.read_text(errors="replace") for path in sorted(self._directory.glob(f"{self.name}-*.log"))
        )


def processes_of_user(uid: int) -> list[psutil.Process]:
    """Return what runs under a uid; others come and go meanwhile."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.uids().real == uid and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _change_users(command: list[str]) -> None:
    """Run a program that changes the list of users, of which one at a time can: other tests and other people
    do the same.
    """

    def done() -> bool:
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        return True

    wait_until(done, " ".join(command[:1]), every_s=0.5)


def _others_may_enter(path: Path) -> bool:
    return all(parent.stat().st_mode & 0o001 for parent in path.parents)
