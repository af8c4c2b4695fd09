"""The commands through their `main` functions and the mock transport, and once as real programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mgpu_agent import __version__
from mgpu_jupyter.cli import console
from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.discovery import START_ONE
from mgpu_jupyter.client.mock import MockTransport, Play, Say
from mgpu_jupyter.client.transport import Answer
from mgpu_jupyter.model.job import JobSpec, JobState

Captured = pytest.CaptureFixture[str]


def run(command: Callable[..., int], words: list[str], mock: MockTransport) -> int:
    return command(words, lambda: Client(transport=mock))


def plays(**play: object) -> MockTransport:
    return MockTransport(lambda spec: Play(**play))  # type: ignore[arg-type]


def test_srun_keeps_the_jobs_streams_apart_from_its_own_notes(
    capsysbinary: pytest.CaptureFixture[bytes],
) -> None:
    mock = plays(
        output=(Say(b"out \xff\x00\n"), Say(b"err\n", "stderr")),
        exit_code=3,
        reason="1 GPU is busy",
        note="no such directory",
    )
    assert run(entry.mgpu_srun, ["--priority", "7", "--", "x"], mock) == 3

    out, err = capsysbinary.readouterr()
    assert out == b"out \xff\x00\n"
    assert err.decode().splitlines() == [
        "Job submitted. ID: MOCK0000 (priority=7)",
        "Waiting for job to start...",
        "mgpu MOCK0000 waiting, 1st in queue: 1 GPU is busy",
        "mgpu node-1: no such directory",
        "err",
        "mgpu MOCK0000: It ended with exit code 3 on node-1.",
        "Job MOCK0000 completed with exit code 3",
    ]


def test_srun_labels_lines_of_several_nodes(capsys: Captured) -> None:
    mock = plays(output=(Say(b"a"), Say("ü\n".encode(), rank=1), Say(b"b\nrest")))
    assert run(entry.mgpu_srun, ["-N", "2", "--", "x"], mock) == 0
    assert capsys.readouterr().out == "1: ü\n0: ab\n0: rest\n"


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (
            ["--background", "--", "x"],
            "Job submitted. ID: MOCK0000 (priority=0)\nJob queued. Use mgpu_queue to check status.\n",
        ),
        (["--background", "--json", "--", "x"], '{"job_id":"MOCK0000","state":"running"}\n'),
    ],
)
def test_srun_in_the_background(capsys: Captured, words: list[str], out: str) -> None:
    assert run(entry.mgpu_srun, words, plays(hold=True)) == 0
    assert capsys.readouterr() == (out, "")


def test_an_interrupt_cancels_the_job(capsys: Captured) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    mock = MockTransport(lambda spec: Play(hold=True, output=(Say(b"up\n"),)), on_hold=interrupt)
    assert run(entry.mgpu_srun, ["--", "x"], mock) == 130

    out, err = capsys.readouterr()
    assert out == "up\n"
    assert err.splitlines() == [
        "Job submitted. ID: MOCK0000 (priority=0)",
        "User interrupted. Canceling job...",
        "Job MOCK0000 canceled successfully.",
    ]
    assert mock.jobs["MOCK0000"].cancelled.is_set()


def test_an_interrupt_before_the_answer_takes_the_submit_back() -> None:
    """The job may be saved already: the same key finds it, and it is cancelled."""
    mock = plays(hold=True)
    mock.failures = [KeyboardInterrupt()]
    assert run(entry.mgpu_srun, ["--", "x"], mock) == 130

    keys = {request.headers["Idempotency-Key"] for request in mock.requests if request.path == "jobs"}
    assert (len(keys), mock.jobs["MOCK0000"].cancelled.is_set()) == (1, True)


def test_an_interrupt_between_the_answer_and_the_first_frame_cancels_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """It comes while the line with the job's id is printed: the job is there, and nobody would see it end."""
    told, real = [], console.note

    def note(text: str) -> None:
        told.append(text)
        if len(told) == 1:
            raise KeyboardInterrupt
        real(text)

    monkeypatch.setattr(console, "note", note)
    mock = plays(hold=True)
    assert run(entry.mgpu_srun, ["--", "x"], mock) == 130
    assert (mock.jobs["MOCK0000"].cancelled.is_set(), told[0]) == (
        True,
        "Job submitted. ID: MOCK0000 (priority=0)",
    )
    assert capsys.readouterr().err.splitlines() == [
        "User interrupted. Canceling job...",
        "Job MOCK0000 canceled successfully.",
    ]


@pytest.mark.parametrize(
    ("play", "code", "last"),
    [
        ({"final": JobState.TIMEOUT}, 124, "Job MOCK0000: Time limit 1 m 00 s reached on node-1."),
        (
            {"final": JobState.CANCELLED, "exit_code": 143},
            143,
            "Job MOCK0000: Cancelled after 1.0 s on node-1.",
        ),
        ({"exit_code": 0}, 0, "Job MOCK0000 completed with exit code 0"),
    ],
)
def test_exit_codes(capsys: Captured, play: dict[str, object], code: int, last: str) -> None:
    assert run(entry.mgpu_srun, ["-t", "1", "--", "x"], plays(**play)) == code
    assert capsys.readouterr().err.splitlines()[-1] == last


def test_a_reader_who_leaves_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, data: bytes) -> None:
            raise BrokenPipeError

        def flush(self) -> None:
            pass

        @property
        def buffer(self) -> Gone:
            return self

        def fileno(self) -> int:
            raise OSError

    mock = plays(output=(Say(b"y\n"),), hold=True)
    monkeypatch.setattr(sys, "stdout", Gone())
    assert run(entry.mgpu_srun, ["--", "yes"], mock) == 141
    assert mock.jobs["MOCK0000"].cancelled.is_set()


def test_cancel(capsys: Captured) -> None:
    mock = MockTransport(lambda spec: Play(hold=spec.name != "over"))
    client = Client(transport=mock)
    client.submit_many([{"command": ["x"], "name": name} for name in ("a", "over", "b", "c", "c")])
    assert run(entry.mgpu_cancel, ["mock0000"], mock) == 0
    assert run(entry.mgpu_cancel, ["MOCK0001", "NOSUCH00"], mock) == 1
    assert run(entry.mgpu_cancel, ["--name", "c"], mock) == 0
    assert run(entry.mgpu_cancel, ["--all"], mock) == 0
    assert run(entry.mgpu, ["cancel", "-u", "nobody"], mock) == 0

    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "Job MOCK0000 cancelled successfully.",
        "Cancel failed: Job MOCK0001 has ended already (completed).",
        "Cancel failed: There is no job NOSUCH00: see `mgpu_queue --all`.",
        "Job MOCK0004 cancelled successfully.",
        "Job MOCK0003 cancelled successfully.",
        "Job MOCK0002 cancelled successfully.",
    ]
    assert err == "No job to cancel: nothing that runs or waits matches.\n"


@pytest.mark.parametrize("words", [["MOCK0000", "--all"]])
def test_cancel_needs_to_know_what(words: list[str], capsys: Captured) -> None:
    assert run(entry.mgpu_cancel, words, MockTransport()) == 2
    assert capsys.readouterr().err == "Usage: mgpu_cancel JOB…, or one of --all, -u USER and --name NAME.\n"


@pytest.mark.parametrize(
    ("words", "out"),
    [
        (["logs", "MOCK0000"], "0: a\n1: b\n"),
        (["logs", "MOCK0000", "-f"], "0: a\n1: b\n"),
        (["logs", "mock0000", "--rank", "1"], "b\n"),
    ],
)
def test_logs(capsys: Captured, words: list[str], out: str) -> None:
    mock = plays(output=(Say(b"a\n"), Say(b"b\n", "stderr", 1)))
    Client(transport=mock).submit(["x"], nodes=2)
    assert run(entry.mgpu, words, mock) == 0
    assert capsys.readouterr() == (out, "")


@pytest.mark.parametrize(
    ("words", "code", "err"),
    [
        (["qeue"], 2, "There is no command qeue: use mgpu queue.\n"),
        (["mgpu_srun"], 2, "There is no command mgpu_srun: use mgpu srun.\n"),
        (["xyzzy"], 2, "There is no command xyzzy: see mgpu --help.\n"),
        (["srun", "--gpus", "x", "--", "y"], 2, "--gpus x: write a whole number, like --gpus 2.\n"),
        (["queue", "--jsn"], 2, "There is no flag --jsn: use --json, or see mgpu queue --help.\n"),
        (["queue", "--json", "--watch"], 2, "--json and --watch exclude each other: leave one out.\n"),
        (["logs"], 2, "Name the job, as in `mgpu logs R4T8W2ZB`.\n"),
        (["logs", "NOSUCH00"], 1, "There is no job NOSUCH00: see `mgpu_queue --all`.\n"),
        (["master", "--port", "x"], 2, "--port x: write a port up to 65535, like 8080.\n"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(
    capsys: Captured, words: list[str], code: int, err: str
) -> None:
    assert run(entry.mgpu, words, MockTransport()) == code
    assert capsys.readouterr() == ("", err)


def test_a_refused_submit(capsys: Captured) -> None:
    mock = MockTransport()
    mock.failures = [Answer(status=403, body=b'{"code":"not-yours","message":"Ask someone."}')]
    assert run(entry.mgpu_srun, ["--", "x"], mock) == 1
    assert capsys.readouterr().err == "Ask someone.\n"


@pytest.mark.parametrize(
    "words",
    [
        ["--help"],
        ["srun", "--help"],
        ["queue", "-h"],
        ["cancel", "--help"],
        ["nodes", "--help"],
        ["logs", "--help"],
        ["master", "--help"],
    ],
)
def test_help(capsys: Captured, words: list[str]) -> None:
    assert run(entry.mgpu, words, MockTransport()) == 0
    out, err = capsys.readouterr()
    assert (out.startswith("usage: mgpu"), err) == (True, "")


def test_version(capsys: Captured) -> None:
    assert run(entry.mgpu, ["--version"], MockTransport()) == 0
    assert capsys.readouterr().out == f"mgpu {__version__}\n"


def test_master_without_jupyter_server_says_what_to_install(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert run(entry.mgpu_master, [], MockTransport()) == 1
    assert (
        capsys.readouterr().err == 'mgpu_master needs jupyter_server: run  pip install "mgpu-jupyter[lab]"\n'
    )


def test_master_passes_its_flags_on(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[object, ...]] = []

    class Headless:
        @staticmethod
        def run(*arguments: object, tls: bool, socket: str | None) -> int:
            called.append((*arguments, tls, socket))
            return 0

    monkeypatch.setitem(sys.modules, "mgpu_jupyter.server.headless", Headless)
    assert (
        run(
            entry.mgpu,
            ["master", "--host", "h", "--port", "9", "--config", "f", "--tls", "--", "--debug"],
            MockTransport(),
        )
        == 0
    )
    assert run(entry.mgpu_master, [], MockTransport()) == 0
    assert run(entry.mgpu_master, ["--socket", "s"], MockTransport()) == 0
    assert called == [
        ("h", 9, "f", ["--debug"], True, None),
        (None, None, None, [], False, None),
        (None, None, None, [], False, "s"),
    ]


def program(name: str, *words: str, state: Path) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("MGPU_")} | {
        "MGPU_STATE_DIR": str(state),
        "XDG_CONFIG_HOME": str(state / "config"),
    }
    path = Path(sys.executable).parent / name
    return subprocess.run(
        [str(path), *words], env=env, capture_output=True, text=True, timeout=120, check=False
    )


def test_programs_end_with_one_sentence_where_there_is_no_master(tmp_path: Path) -> None:
    done = program("mgpu_srun", "--", "true", state=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        (
            f"No mgpu master runs on this machine: {START_ONE}, or `mgpu login` with the line of a shared "
            f"master.\n"
        ),
    )


def test_the_command_line_imports_no_jupyter() -> None:
    code = (
        "import sys; from mgpu_jupyter.cli import main, srun, queue, job_orders, nodes, one_job, master;"
        "print(sorted({'asyncio', 'tornado', 'IPython', 'jupyter_server', 'zmq'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[]\n"


def test_specs_of_the_command_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    mock = MockTransport()
    run(entry.mgpu_srun, ["--background", "--", "python", "t.py"], mock)
    assert mock.specs == [JobSpec(command=("python", "t.py"), cwd=str(tmp_path))]


def test_a_master_imports_nothing_that_takes_longer_than_its_whole_start() -> None:
    program = (
        "import sys; from mgpu_jupyter.cli.master import leave_out_slow_imports as leave; leave(); "
        "import jupyter_server.serverapp"
    )
    program += "; print(sorted(name for name in ('lark', 'IPython', 'torch') if name in sys.modules))"
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True
    )
    assert run.stdout == "[]\n"


@pytest.mark.parametrize("flag", ["-l", "--label"])
def test_lines_of_one_process_carry_its_rank_when_that_is_asked_for(flag: str, capsys: Captured) -> None:
    assert run(entry.mgpu_srun, [flag, "--", "x"], plays(output=(Say(b"one\ntwo"),), exit_code=0)) == 0
    assert capsys.readouterr().out.splitlines() == ["0: one", "0: two"]
