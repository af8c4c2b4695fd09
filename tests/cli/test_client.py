"""`mgpu_client`, `mgpu_flush`, `attach`, `rerun`, `purge`: what scripts written for the earlier tools look
for.
"""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from mgpu_jupyter.cli import main as entry
from mgpu_jupyter.client import Client
from mgpu_jupyter.client.mock import MockTransport, Play, Say, a_node

Captured = pytest.CaptureFixture[str]
RULE = "=" * 50


def run(command: Callable[..., int], words: list[str], mock: MockTransport) -> int:
    return command(words, lambda: Client(transport=mock))


def plays(**play: object) -> MockTransport:
    return MockTransport(lambda spec: Play(**play))  # type: ignore[arg-type]


def test_submit_waits_and_shows_all(capsys: Captured) -> None:
    mock = plays(output=(Say(b"one\n"), Say(b"two\n", "stderr")))
    assert run(entry.mgpu_client, ["submit", "--gpus", "2", "echo one; echo two >&2"], mock) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Job submitted: MOCK0000",
        "Monitoring job MOCK0000 output...",
        RULE,
        "one",
        "two",
        RULE,
        "Job completed with status: completed",
        "Exit code: 0",
    ]
    assert (mock.specs[0].command, mock.specs[0].gpus) == (("bash", "-lc", "echo one; echo two >&2"), 2)


def test_submit_of_a_job_that_fails(capsys: Captured) -> None:
    assert run(entry.mgpu_client, ["submit", "exit 3"], plays(exit_code=3)) == 1
    assert capsys.readouterr().out.splitlines()[-2:] == ["Job completed with status: failed", "Exit code: 3"]


def test_an_interactive_session_ends_as_the_job_does(capsys: Captured) -> None:
    mock = plays(output=(Say(b"up\n"),), exit_code=7)
    assert (
        run(entry.mgpu_client, ["submit", "--interactive", "--node-gpu-ids", "n1:0,1;n2:2", "x"], mock) == 7
    )
    assert capsys.readouterr().out.splitlines() == [
        "Job submission: {'status': 'ok', 'job_id': 'MOCK0000', 'message': 'Job submitted'}",
        "Starting interactive session...",
        RULE,
        "0: up",
        RULE,
        "Job completed with exit code: 7",
    ]
    assert mock.specs[0].node_gpu_ids == {"n1": (0, 1), "n2": (2,)}


def test_an_interrupt_only_detaches(capsys: Captured) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    mock = MockTransport(lambda spec: Play(hold=True), on_hold=interrupt)
    assert run(entry.mgpu_client, ["submit", "--interactive", "x"], mock) == 130
    assert not mock.jobs["MOCK0000"].cancelled.is_set()
    assert (
        capsys.readouterr().err
        == "Detached: job MOCK0000 goes on, `mgpu_client monitor MOCK0000` shows it again.\n"
    )


@pytest.mark.parametrize("flag", ["--session-timeout", "--max-wait-time"])
def test_a_session_has_an_end_if_one_is_given(flag: str, capsys: Captured) -> None:
    assert run(entry.mgpu_client, ["submit", "--interactive", flag, "0.05", "x"], plays(hold=True)) == 1
    assert capsys.readouterr().err == "Session timeout reached: job MOCK0000 goes on.\n"


def test_queue_cancel_and_monitor(capsys: Captured) -> None:
    mock = MockTransport(lambda spec: Play(hold=True), nodes=[a_node("n1", 2)])
    run(entry.mgpu_srun, ["--background", "--", "sleep", "1000000"], mock)
    capsys.readouterr()
    assert run(entry.mgpu_client, ["queue"], mock) == 0
    assert capsys.readouterr().out.splitlines() == [
        "=== Queue Status ===",
        "Queued jobs: 0",
        "Running jobs: 1",
        "  MOCK0000: sleep 1000000... (Node: node-1)",
        "Node status:",
        "  n1: GPUs [0, 1] available",
    ]
    assert run(entry.mgpu_client, ["cancel", "mock0000"], mock) == 0
    assert run(entry.mgpu_client, ["monitor", "MOCK0000"], mock) == 1
    assert run(entry.mgpu_client, ["cancel", "NOSUCH00"], mock) == 1
    assert run(entry.mgpu_client, ["monitor", "NOSUCH00"], mock) == 1
    assert capsys.readouterr().out.splitlines() == [
        "Cancel result: {'status': 'ok', 'message': 'Job MOCK0000 cancelled'}",
        "Monitoring job MOCK0000 output...",
        RULE,
        RULE,
        "Job completed with status: cancelled",
        "Exit code: 143",
        "Cancel result: {'status': 'fail', 'message': 'Job NOSUCH00 not found'}",
        "Job NOSUCH00 not found on server",
    ]


@pytest.mark.parametrize(
    "words", [["--host", "h9", "--port", "99", "queue"], ["queue", "--host", "h9", "--port=99"]]
)
def test_host_and_port_on_either_side(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name, value in (
        ("MGPU_MASTER_HOST", "other"),
        ("MGPU_MASTER_PORT", "1"),
        ("MGPU_URL", "http://elsewhere/"),
    ):
        monkeypatch.setenv(name, value)
    assert entry.mgpu_client(words, Client) == 1
    assert (
        capsys.readouterr().err
        == "The master on h9 is another machine's: ask its administrator for a line to `mgpu login` with.\n"
    )


def test_without_a_subcommand_there_is_help(capsys: Captured) -> None:
    assert run(entry.mgpu_client, [], MockTransport()) == 1
    assert capsys.readouterr().out.startswith("usage: mgpu_client ")
    assert run(entry.mgpu_client, ["--help"], MockTransport()) == 0
    assert run(entry.mgpu_client, ["submit", "--help"], MockTransport()) == 0
    assert run(entry.mgpu_client, ["submitt", "x"], MockTransport()) == 2
    assert run(entry.mgpu_client, ["submit"], MockTransport()) == 2


def test_json_of_the_client(capsys: Captured) -> None:
    mock = plays(output=(Say(b"x\n"),))
    assert run(entry.mgpu_client, ["--json", "submit", "x"], mock) == 0
    assert json.loads(capsys.readouterr().out) == {
        "job_id": "MOCK0000",
        "state": "completed",
        "exit_code": 0,
        "output": "x\n",
    }


def test_flush(capsys: Captured) -> None:
    mock = plays(hold=True)
    for _ in range(3):
        run(entry.mgpu_srun, ["--background", "--", "x"], mock)
    capsys.readouterr()
    assert run(entry.mgpu_flush, [], mock) == 0
    assert run(entry.mgpu_flush, ["--json"], mock) == 0
    assert capsys.readouterr().out == 'Flushed 3 jobs\n{"flushed":0,"job_ids":[]}\n'
    assert all(entry_.cancelled.is_set() for entry_ in mock.jobs.values())


def test_cancel_with_no_word_is_a_line_of_usage(capsys: Captured) -> None:
    assert run(entry.mgpu_cancel, [], MockTransport()) == 2
    assert capsys.readouterr().err.startswith("Usage: mgpu_cancel <job_id>")


def test_attach_replays_and_ends_as_the_job_did(capsys: Captured) -> None:
    mock = plays(output=(Say(b"from the start\n"),), exit_code=4)
    run(entry.mgpu_srun, ["--background", "--", "x"], mock)
    capsys.readouterr()
    assert run(entry.mgpu, ["attach", "mock0000"], mock) == 4
    out, err = capsys.readouterr()
    told = "mgpu MOCK0000: It ended with exit code 4 on node-1.\nJob MOCK0000 completed with exit code 4\n"
    assert (out, err) == ("from the start\n", told)


def test_leaving_an_attached_job_leaves_it_running(capsys: Captured) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    mock = MockTransport(lambda spec: Play(hold=True), on_hold=interrupt)
    run(entry.mgpu_srun, ["--background", "--", "x"], mock)
    assert run(entry.mgpu, ["attach", "MOCK0000"], mock) == 130
    assert not mock.jobs["MOCK0000"].cancelled.is_set()
    assert "goes on" in capsys.readouterr().err


def test_rerun_and_purge(capsys: Captured) -> None:
    mock = plays(output=(Say(b"y" * 2_000_000),))
    run(entry.mgpu_srun, ["--background", "--name", "n", "--", "x"], mock)
    capsys.readouterr()
    assert run(entry.mgpu, ["rerun", "MOCK0000"], mock) == 0
    assert run(entry.mgpu, ["rerun", "MOCK0000", "--json"], mock) == 0
    assert [spec.name for spec in mock.specs] == ["n"] * 3
    assert run(entry.mgpu, ["purge", "--dry-run"], mock) == 0
    assert run(entry.mgpu, ["purge", "--older-than", "x"], mock) == 2
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "Job submitted. ID: MOCK0001 (again, of MOCK0000)",
        '{"jobs":[{"of":"MOCK0000","job_id":"MOCK0002"}]}',
        "Would delete 3 jobs and 5.7 MiB of output.",
    ]
    assert err == "--older-than x: write a time like 30m, 1h or 2d.\n"
    assert run(entry.mgpu, ["rerun", "MOCK0000", "--attach"], mock) == 0
