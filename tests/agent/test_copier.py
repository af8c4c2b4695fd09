"""The program that copies what a job prints to files: both places have all of it, and the job's end is its
own.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from mgpu_agent.process.copier import VARIABLE, copied
from tests.agent.master import wait_until


def run(
    directory: Path, script: str, *files: tuple[int, str, bool], given: str = ""
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        copied((b"bash", b"-c", script.encode())),
        env=os.environ | {VARIABLE: json.dumps(files), "MGPU_JOB_ID": "AB12CD34"},
        cwd=directory,
        input=given,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_streams_are_in_their_files_and_where_they_were(tmp_path: Path) -> None:
    script = f'read line; echo "$line ${{{VARIABLE}-unset}}"; echo bad >&2; exit 7'
    done = run(tmp_path, script, (1, "o", False), (2, "e", False), given="hello\n")
    assert (done.returncode, done.stdout, done.stderr) == (7, "hello unset\n", "bad\n")
    assert ((tmp_path / "o").read_text(), (tmp_path / "e").read_text()) == ("hello unset\n", "bad\n")


def test_one_name_is_one_file_and_what_has_none_goes_its_own_way(tmp_path: Path) -> None:
    run(tmp_path, "echo a; echo b >&2", (1, "x", False), (2, "x", False))
    assert (tmp_path / "x").read_text() == "a\nb\n"
    only = run(tmp_path, "echo a; echo b >&2", (2, "y", False))
    assert (only.stdout, only.stderr, (tmp_path / "y").read_text()) == ("a\n", "b\n", "b\n")


def test_a_file_is_emptied_or_added_to(tmp_path: Path) -> None:
    for name, append in (("new", False), ("more", True)):
        (tmp_path / name).write_text("old\n")
        run(tmp_path, "echo x", (1, name, append))
    assert ((tmp_path / "new").read_text(), (tmp_path / "more").read_text()) == ("x\n", "old\nx\n")


def test_a_flood_is_whole_in_both(tmp_path: Path) -> None:
    done = run(tmp_path, "seq 1 200000", (1, "x", False))
    assert done.stdout == (tmp_path / "x").read_text() == "".join(f"{n}\n" for n in range(1, 200_001))


def test_a_file_that_cannot_be_opened_is_a_sentence_and_nothing_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "echo ran", (1, "no/such/x", False))
    assert (done.returncode, done.stdout, done.stderr) == (
        1,
        "",
        (
            "--output no/such/x cannot be opened on this node: No such file or directory. Make its "
            "directory, or name a file that you may write.\n"
        ),
    )


def test_a_full_disk_ends_the_file_and_not_the_job(tmp_path: Path) -> None:
    done = run(tmp_path, "echo a; sleep 0.2; echo b", (1, "/dev/full", False))
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "a\nb\n",
        (
            "mgpu: the file of --output is not written any further: No space left on device. All output "
            "is in `mgpu logs AB12CD34`.\n"
        ),
    )


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((b"no-such-program",), 127, "no-such-program: command not found on this node.\n"),
        ((b"/etc/passwd",), 126, "/etc/passwd: Permission denied.\n"),
    ],
)
def test_what_is_no_program(tmp_path: Path, words: tuple[bytes, ...], code: int, text: str) -> None:
    done = subprocess.run(
        copied(words), env=os.environ, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (code, text)


def test_a_script_without_an_interpreter_is_one_of_the_shell(tmp_path: Path) -> None:
    script = tmp_path / "plain"
    script.write_text("echo $1\n")
    script.chmod(0o700)
    done = subprocess.run(
        copied((os.fsencode(script), b"hi")), env=os.environ, capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout) == (0, b"hi\n")


def test_a_signal_that_ends_the_command_ends_it_too(tmp_path: Path) -> None:
    assert run(tmp_path, "kill -9 $$", (1, "x", False)).returncode == -signal.SIGKILL


def test_signals_are_the_commands_alone_and_what_it_then_says_is_kept(tmp_path: Path) -> None:
    script = "trap 'echo got; exit 3' TERM; echo ready; while :; do sleep 0.05; done"
    process = subprocess.Popen(
        copied((b"bash", b"-c", script.encode())),
        env=os.environ | {VARIABLE: json.dumps([(1, "x", False)])},
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        file = tmp_path / "x"
        wait_until(lambda: file.exists() and file.read_text() == "ready\n")
        os.killpg(process.pid, signal.SIGTERM)
        assert (process.wait(120), file.read_text()) == (3, "ready\ngot\n")
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_what_the_command_leaves_running_holds_nothing_up(tmp_path: Path) -> None:
    done = run(tmp_path, "echo a; sleep 100 & echo $! >&2", (1, "x", False), (2, "pid", False))
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    assert (done.returncode, (tmp_path / "x").read_text()) == (0, "a\n")
