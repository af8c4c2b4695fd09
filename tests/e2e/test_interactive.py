"""Jobs that somebody types into: terminals, pipes, clients that go away and come back."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster import BIN, Cluster
from tests.e2e.screen import Screen
from tests.processes import processes_of, wait_until

FULL_SCREEN = """
import curses, signal, sys
pressed = []
def interrupted(*_):
    pressed.append("interrupted")
def main(screen):
    signal.signal(signal.SIGINT, interrupted)
    screen.timeout(100)
    while True:
        screen.erase()
        rows, columns = screen.getmaxyx()
        screen.addstr(0, 0, f"size {rows}x{columns} pressed {' '.join(pressed)}")
        screen.refresh()
        key = screen.getch()
        if key == ord("q"):
            return
        if key == curses.KEY_RESIZE:
            curses.update_lines_cols()
        elif key > 0:
            pressed.append(chr(key) if key < 256 else str(key))
curses.wrapper(main)
sys.exit(5)
"""
INPUT = random.Random(7).randbytes(1_500_000)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("interactive") / "cluster") as cluster:
        cluster.start_master("--MgpuApp.client_grace=2", "--MgpuApp.kill_grace=2")
        cluster.start_node("n1")
        yield cluster


@pytest.fixture
def open_screen(shared: Cluster) -> Iterator[Callable[..., Screen]]:
    screens: list[Screen] = []

    def start(program: str, *words: str, **size: int) -> Screen:
        env = shared.env | {"TERM": "xterm"}
        screens.append(Screen([str(BIN / program), *words], env, shared.directory, **size))
        return screens[-1]

    yield start
    for screen in screens:
        screen.close()
    for job in shared.client.jobs(state="active"):
        job.cancel()
    shared.wait_until(lambda: not list(shared.client.jobs(state="active")), "nothing runs any more")


def _running(cluster: Cluster, name: str) -> str:
    def found() -> str | None:
        return next((job.id for job in cluster.client.jobs(name=name) if job.state == "running"), None)

    return cluster.wait_until(found, f"{name} runs")


def interrupt(screen: Screen) -> None:
    """Press Ctrl-C until the shell asks again, as people do: between two programs a shell may swallow one."""

    def pressed() -> bool:
        screen.type("\x03")
        screen.see("^C")
        return bool(screen.see("shell> ", 5))

    wait_until(pressed, "the shell asks again")


def test_a_shell_in_a_terminal(open_screen: Callable[..., Screen]) -> None:
    screen = open_screen(
        "mgpu_srun",
        "--pty",
        "--env",
        "PS1=shell> ",
        "--",
        "bash",
        "--norc",
        "--noprofile",
        rows=33,
        columns=91,
    )
    before = screen.modes()
    screen.see("shell> ")
    screen.type("stty size; test -t 0 && test -t 1 && test -t 2 && echo is-a-terminal $TERM\r")
    screen.see("33 91")
    screen.see("is-a-terminal xterm")
    screen.resize(44, 122)
    screen.type(
        "until [ \"$(stty size)\" = '44 122' ]; do sleep 0.05; done; env true; echo resi''zed $COLUMNS\r"
    )
    screen.see("resized 122")
    screen.see("shell> ")
    screen.type("echo beg''in; sleep 600\r")
    screen.see("begin")
    interrupt(screen)
    # Who says that it is there is who reads: what is typed between two programs may be either's.
    screen.type("python3 -c 'import sys; print(chr(9731)); print(\"read\", sys.stdin.read())'\r")
    screen.see("\N{SNOWMAN}")
    screen.type("typed line\r\x04")
    screen.see("read typed line")
    screen.see("shell> ")
    screen.type("exit 9\r")
    assert screen.wait() == 9
    assert screen.modes() == before


def test_one_line_says_how_a_job_went(open_screen: Callable[..., Screen]) -> None:
    seen = open_screen("mgpu_srun", "--gpus", "1", "--", "echo", "hello").see("exit 0")
    assert re.search(
        r"hello\s[^<]*mgpu [0-9A-Z]{8}: Done in [\d.]+ m?s on n1, 1 simulated GPU, exit 0$", seen
    )


def test_ipython_in_a_terminal_has_the_header_as_lines(
    open_screen: Callable[..., Screen], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    code = (
        f"%load_ext mgpu_jupyter\n%mgpu_srun --gpus 1 --name plain -- bash -c 'echo hello; until [ -e "
        f"{go} ]; do sleep 0.05; done'\n"
    )
    screen = open_screen(
        "ipython", "--no-banner", "--colors=NoColor", "-c", f"{code}%mgpu_srun --background -- sleep 1"
    )
    seen = screen.see("hello")
    if " running on " not in seen:  # output and states come by different ways
        seen += screen.see(" running on ")
    go.touch()
    seen += screen.see(" · ")
    assert re.search(
        r"mgpu [0-9A-Z]{8} running on n1 ×1\s[^<]*Done in [\d.]+ m?s on n1, 1 simulated GPU, exit 0 · $", seen
    )
    assert "hello" in seen
    assert re.search(r"mgpu [0-9A-Z]{8} (waiting|starting|running)", screen.see("ing"))


def test_a_full_screen_program(open_screen: Callable[..., Screen], shared: Cluster) -> None:
    (shared.directory / "full.py").write_text(FULL_SCREEN)
    screen = open_screen("mgpu_srun", "--pty", "--", "python3", "full.py", rows=20, columns=70)
    before = screen.modes()
    screen.see("size 20x70")
    screen.type("a")
    screen.see("a")
    screen.resize(25, 99)
    screen.see("5x99")  # curses draws only what is different
    screen.type("\x03")
    screen.see("interrupted")
    screen.type("q")
    assert screen.wait() == 5
    assert screen.modes() == before


def test_a_terminal_outlives_client_and_agent_and_is_come_back_to(
    open_screen: Callable[..., Screen], shared: Cluster
) -> None:
    screen = open_screen(
        "mgpu_srun", "--pty", "-J", "stays", "--env", "PS1=shell> ", "--", "bash", "--norc", "--noprofile"
    )
    screen.see("shell> ")
    screen.type("word=kept; echo se''t\r")
    screen.see("set")
    job_id = _running(shared, "stays")
    screen.kill()
    shared.kill("n1")
    shared.start_node("n1")
    assert shared.client.job(job_id).state == "running"
    again = open_screen("mgpu", "attach", job_id, rows=21, columns=61)
    again.see("set")
    again.see("shell> ")
    again.type(
        "echo word is $word; until [ \"$(stty size)\" = '21 61' ]; do sleep 0.05; done; echo resi''zed\r"
    )
    again.see("word is kept")
    again.see("resized")
    again.see("shell> ")
    again.type("\r~.")
    assert again.wait() == 0
    assert "goes on" in again.rest()
    last = open_screen("mgpu", "attach", job_id)
    last.see("resized")
    last.type("exit 4\r")
    assert last.wait() == 4


@contextlib.contextmanager
def _piped(cluster: Cluster, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [str(BIN / "mgpu_srun"), *words]
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, env=cluster.env, cwd=cluster.directory, stdin=pipe, stdout=pipe
    ) as program:
        try:
            yield program
        finally:
            program.kill()


class Writer(threading.Thread):
    """Writes to a program as fast as it reads, and counts."""

    def __init__(self, program: subprocess.Popen[bytes], data: bytes) -> None:
        super().__init__(daemon=True)
        assert program.stdin is not None
        self._pipe, self._data = program.stdin, data
        self.written = 0
        self.start()

    def run(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # the test ended it
            while self.written < len(self._data):
                self.written += os.write(self._pipe.fileno(), self._data[self.written : self.written + 8192])
            self._pipe.close()


def test_a_pipe_is_read_to_its_end_and_no_further_ahead_than_a_window(
    shared: Cluster, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    data = INPUT * 8
    script = f"echo ready; until [ -e {go} ]; do sleep 0.05; done; sha256sum; exit 3"
    with _piped(shared, "-J", "pipe", "--", "bash", "-c", script) as program:
        assert program.stdout is not None
        writer = Writer(program, data)
        job = shared.client.job(_running(shared, "pipe"))
        shared.wait_until(lambda: job.output() == "ready\n", "it is there")
        shared.wait_until(lambda: writer.written >= 128 * 1024, "the window is full")
        written = -1
        while written != writer.written:  # until nothing moves any more
            written = writer.written
            time.sleep(0.3)
        assert written < 1024 * 1024
        go.touch()
        assert program.stdout.read().decode() == f"ready\n{hashlib.sha256(data).hexdigest()}  -\n"
        assert program.wait(60) == 3
    keeper = next(
        process for process in processes_of(shared.state) if "mgpu_agent.keeper" in process.cmdline()
    )
    assert keeper.memory_info().rss < 100 * 1024 * 1024


def test_nothing_that_is_piped_is_lost_or_comes_twice(shared: Cluster) -> None:
    """While it flows, the agent and then the master are killed and come back."""
    slow = "import hashlib, sys, time; h = hashlib.sha256(); b = sys.stdin.buffer\n"
    slow += "while d := b.read1(4096):\n    h.update(d); time.sleep(0.004)\nprint(h.hexdigest())"
    with _piped(shared, "-J", "sum", "--", "python3", "-c", slow) as program:
        assert program.stdout is not None
        writer = Writer(program, INPUT)
        _running(shared, "sum")
        shared.wait_until(lambda: writer.written > 300_000, "it flows")
        shared.kill("n1")
        shared.start_node("n1")
        shared.wait_until(lambda: writer.written > 700_000, "it flows again")
        shared.kill("master")
        shared.start_master("--MgpuApp.client_grace=2", "--MgpuApp.kill_grace=2")
        assert program.stdout.read().decode().strip() == hashlib.sha256(INPUT).hexdigest()
        assert program.wait(60) == 0


def test_a_job_with_interactive_kill_ends_with_its_client(shared: Cluster) -> None:
    with (
        _piped(shared, "--interactive-kill", "-J", "bound", "--", "sleep", "600") as bound,
        _piped(shared, "-J", "free", "--", "sleep", "600") as free,
    ):
        bound_job, free_job = (shared.client.job(_running(shared, name)) for name in ("bound", "free"))
        for client in (bound, free):
            client.send_signal(signal.SIGKILL)
            client.wait(60)
        shared.wait_until(lambda: bound_job.state == "cancelled", "the job ended with its client")
        assert "its client was gone" in bound_job.info.reason
        assert free_job.state == "running"
        free_job.cancel()


def test_ctrl_c_cancels_a_streamed_job(shared: Cluster) -> None:
    with _piped(shared, "-J", "stopped", "--", "sleep", "600") as program:
        job = shared.client.job(_running(shared, "stopped"))
        program.send_signal(signal.SIGINT)
        assert program.wait(60) == 130
        assert job.wait(60).state == "cancelled"


def _run(
    cluster: Cluster, *words: str, env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    command = [str(BIN / "mgpu_srun"), *words]
    return subprocess.run(
        command,
        env=cluster.env | (env or {}),
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_a_warning_comes_before_the_limit(shared: Cluster) -> None:
    """Who is warned and ends then is not ended by the limit, which is 50 seconds later."""
    script = "trap 'echo warned; exit 0' USR1; echo ready; while :; do sleep 0.1; done"
    # The shell around it does not handle the signal, and lives on. The one inside has ten seconds to say that
    # it does.
    done = _run(
        shared, "--signal", "USR1@50", "--time-limit", "60", "--", "bash", "-c", f'bash -c "{script}"; exit 6'
    )
    assert (done.returncode, done.stdout.splitlines()) == (6, ["ready", "warned"]), done
    assert next(iter(shared.client.jobs(limit=1))).state == "failed"


def test_environment_directory_and_setup(shared: Cluster, tmp_path: Path) -> None:
    script = 'echo "$A $B $C"; pwd; type -t helper'
    setup = "export C=from-setup; helper() { :; }; export -f helper # with a comment"
    words = ("--env", "A=given", "--export", "B", "--chdir", str(tmp_path), "--env-setup-cmd", setup)
    done = _run(shared, *words, "--", "bash", "-c", script, env={"B": "exported"})
    assert (done.returncode, done.stdout) == (0, f"given exported from-setup\n{tmp_path}\nfunction\n"), (
        done.stderr
    )
    failed = _run(shared, "--env-setup-cmd", "echo no >&2; (exit 12)", "--", "echo", "never")
    assert (failed.returncode, failed.stdout) == (12, "")
