"""What an agent sees of a process of a job, and what a process says of itself before it becomes the job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from msgspec.structs import replace

from mgpu_agent import __version__
from mgpu_agent.core.commands import TellWho
from mgpu_agent.core.events import TaskTold
from mgpu_agent.process import sight
from mgpu_agent.process.banner import introduced
from mgpu_agent.protocol.ids import AttemptKey, JobId, NodeId
from mgpu_agent.protocol.messages import Ping
from mgpu_agent.protocol.places import host_name
from tests.agent.core_world import JOINED, KEY, a_machine, a_status, said

LISTENS = (
    "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], "
    "flush=True); input()"
)


@pytest.fixture
def process(tmp_path: Path):
    env = {
        **os.environ,
        "MGPU_JOB_ID": "ABCD1234",
        "MGPU_NODE_ID": "n7",
        "MGPU_ATTEMPT": "2",
        "MASTER_PORT": "29500",
    }
    words = [sys.executable, "-c", LISTENS]
    with subprocess.Popen(
        words, cwd=tmp_path, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.communicate("\n")


def test_a_process_is_seen_as_it_is(process, tmp_path: Path) -> None:
    port = process.stdout.readline().strip()
    seen = sight.look_at(replace(a_status(), pid=process.pid))

    assert (seen.pid, seen.alive, seen.host, seen.node_id, seen.job_id, seen.attempt) == (
        process.pid,
        True,
        host_name(),
        "n7",
        "ABCD1234",
        "2",
    )
    assert (seen.cwd, seen.ports, seen.master_port, seen.note) == (
        str(tmp_path),
        (f"127.0.0.1:{port}",),
        "29500",
        "",
    )
    assert (seen.user, seen.started_at) == (
        psutil.Process().username(),
        psutil.Process(process.pid).create_time(),
    )


def test_what_ended_or_may_not_be_looked_at_is_said(monkeypatch) -> None:
    assert not sight.look_at(replace(a_status(ended=True), pid=os.getpid())).alive
    assert not sight.look_at(replace(a_status(), pid=2**22 + 5)).alive

    def refuse(self: object) -> dict[str, str]:
        raise psutil.AccessDenied(1)

    monkeypatch.setattr(psutil.Process, "environ", refuse)
    told = sight.look_at(replace(a_status(), pid=os.getpid()))
    assert (told.alive, told.note) == (True, "The node may not look at it (AccessDenied).")


def test_the_answer_says_who_this_is() -> None:
    pong = sight.answer(4, NodeId("n1"), "192.0.2.7", "tcp://192.0.2.1:8790", [replace(a_status(), pid=0)])
    assert (pong.number, pong.node_id, pong.host, pong.address, pong.link) == (
        4,
        "n1",
        host_name(),
        "192.0.2.7",
        "tcp://192.0.2.1:8790",
    )
    assert (pong.agent_version, pong.pid, len(pong.processes)) == (__version__, os.getpid(), 1)


def test_a_ping_is_answered_with_what_is_known_of_the_attempt_that_was_asked_for() -> None:
    machine = a_machine()
    for event in (*JOINED, TaskTold(at=1.0, status=a_status())):
        machine.handle(event)
    assert machine.handle(said(Ping(number=3))) == [TellWho(number=3)]
    assert machine.handle(said(Ping(number=4, key=KEY))) == [TellWho(number=4, statuses=(a_status(),))]


def _say(*words: str, master: str = "tcp://127.0.0.1:8790") -> subprocess.CompletedProcess[str]:
    key = AttemptKey(JobId("ABCD1234"), 2, 9)
    told = introduced(tuple(map(os.fsencode, words)), key, NodeId("n1"), master)
    return subprocess.run(
        told,
        capture_output=True,
        text=True,
        check=False,
        cwd=tempfile.gettempdir(),
        env={"RANK": "3", "LOGNAME": "ada"},
    )


def test_the_banner_comes_first_and_the_program_keeps_pid_and_signals() -> None:
    done = _say("/bin/sh", "-c", "echo $$; grep SigIgn /proc/self/status")
    lines = done.stderr.splitlines()

    assert lines[:3] == [
        "=== JOB EXECUTION DEBUG INFO ===",
        "Job: ABCD1234 (attempt 2), rank 3",
        "Assigned node: n1",
    ]
    assert lines[3:5] == [f"Host: {host_name()}", "Address: 127.0.0.1"]
    assert lines[5] == f"PID: {done.stdout.split()[0]}"
    assert lines[6:8] == [f"Directory: {tempfile.gettempdir()}", "User: ada"]
    assert (lines[8][:6], lines[9], len(lines)) == ("Time: ", "=" * 32, 10)
    _, ignored = done.stdout.split()[1:]
    # Python ignores these two for itself; others may be ignored by whatever started the tests (a shell's `&`
    # does so with SIGQUIT).
    of_python = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)
    assert int(ignored, 16) & of_python == 0


def test_a_banner_without_an_address_or_a_program_says_so() -> None:
    done = _say("/no/such/program", master="tcp://no-such-host.invalid:1")
    assert done.returncode == 127
    assert "Address: unknown" in done.stderr
    assert done.stderr.endswith("/no/such/program: No such file or directory\n")
    assert _say("/tmp").returncode == 126
