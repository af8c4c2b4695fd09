"""The magics in a shell without a kernel: what is printed, raised and returned."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from IPython.core.error import UsageError
from msgspec.structs import replace

from mgpu_agent.protocol.errors import Unavailable
from mgpu_jupyter.client import Job
from mgpu_jupyter.client.mock import Play, Say, a_node, lost
from mgpu_jupyter.client.table import Table
from mgpu_jupyter.model.job import JobSpec, JobState
from mgpu_jupyter.notebook import JobCancelled, JobFailed
from mgpu_jupyter.notebook.notes import RichNotes
from mgpu_jupyter.notebook.tables import Queue, nodes_table
from tests.notebook.conftest import Shell

Captured = pytest.CaptureFixture[str]
VERSION = f"{sys.version_info.major}.{sys.version_info.minor}"


def test_a_command_streams_into_the_cell(shell: Shell, capsys: Captured) -> None:
    euro = "€".encode()
    says = (Say(b"a\r"), Say(b"\x1b[32m" + euro[:1]), Say(b"err\n", "stderr"), Say(euro[1:] + b"\n"))
    shell.plays(lambda spec: Play(output=says, reason="1 GPU is busy", lasts_s=3.2))
    assert shell.run("%mgpu_srun --gpus 1 -- x").success

    out, err = capsys.readouterr()
    assert out == "a\r\x1b[32m€\n"
    assert err.splitlines() == [
        "mgpu MOCK0000 waiting, 1st in queue: 1 GPU is busy",
        "mgpu MOCK0000 running on node-1 ×1",
        "err",
        "Done in 3.2 s on node-1, 1 simulated GPU, exit 0 · MOCK0000",
    ]


def test_a_cell_is_the_script(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shell.run("count = 2")
    assert shell.run("%%mgpu_srun --gpus $count --name n{count}\nprint('{count} $count')\n").success
    assert shell.mock.specs == [
        JobSpec(
            script="print('{count} $count')\n",
            gpus=2,
            name="n2",
            cwd=str(tmp_path),
            kernel_python=sys.executable,
            kernel_python_version=VERSION,
            env={"MGPU_DISPLAY_KEY": "1-key"},
        )
    ]


def test_a_cell_is_named_after_its_notebook_where_there_is_one(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell.run("%%mgpu_srun\nimport net\nnet.train(3)")
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/try.ipynb")
    for cell in ("net.train(3)", "# train the small model\nnet.train(3)"):
        assert shell.shell.run_cell(f"%%mgpu_srun\nimport net\n{cell}", store_history=True).success
        assert shell.shell.run_cell(f"%%mgpu_srun\n{cell}", store_history=True).success
    assert shell.shell.run_cell("%%mgpu_srun --name mine\n# a title\nx", store_history=True).success
    shell.shell.user_ns["__vsc_ipynb_file__"] = "/home/me/code.ipynb"
    monkeypatch.delenv("JPY_SESSION_NAME")
    assert shell.shell.run_cell("%%mgpu_srun\ntrain()", store_history=True).success
    assert [spec.name for spec in shell.mock.specs] == [
        "net.train(...)",
        "try.ipynb [1]",
        "try.ipynb [2]",
        "try.ipynb [3]",
        "train the small model",
        "mine",
        "code.ipynb [6]",
    ]


def test_flags_about_place_and_time(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shell.run("ids = '0-1'; free = 20")
    assert shell.run(
        "%mgpu_srun --gpu-ids $ids --gpu-mem {free}G -w a,b --constraint a100&(rack=r1|!old) --hold -- x"
    ).success
    assert shell.run(
        "%%mgpu_srun --node-gpu-ids n1:0,1;n2:2 --policy spread --dependency afterok:ABCD1234\nprint(1)"
    ).success
    assert shell.mock.specs == [
        JobSpec(
            command=("x",),
            cwd=str(tmp_path),
            gpu_ids=(0, 1),
            gpu_mem_bytes=20 * 2**30,
            nodelist=("a", "b"),
            constraint="a100&(rack=r1|!old)",
            hold=True,
        ),
        JobSpec(
            script="print(1)\n",
            name="print(...)",
            cwd=str(tmp_path),
            kernel_python=sys.executable,
            kernel_python_version=VERSION,
            node_gpu_ids={"n1": (0, 1), "n2": (2,)},
            policy="spread",
            dependency="afterok:ABCD1234",
            env={"MGPU_DISPLAY_KEY": "1-key"},
        ),
    ]


def test_an_array_returns_at_once(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    shell.plays(lambda spec: Play(hold=True))
    result = shell.run("%%mgpu_srun --array 1-100%8 --as many\nprint(1)").result
    assert isinstance(result, Job)
    assert result is shell.shell.user_ns["many"]
    assert [spec.array for spec in shell.mock.specs] == ["1-100%8"]


def test_lines_of_several_ranks_are_labelled(shell: Shell, capsys: Captured) -> None:
    shell.plays(lambda spec: Play(output=(Say(b"a"), Say("ü\n".encode(), rank=1), Say(b"b\nrest"))))
    assert shell.run("%mgpu_srun --nodes 2 -- x").success
    assert capsys.readouterr().out == "  1 │ ü\n  0 │ ab\n  0 │ rest\n"


def test_a_failing_job_fails_the_cell_in_few_lines(shell: Shell, capsys: Captured) -> None:
    shell.plays(
        lambda spec: Play(
            output=(Say(b"Traceback\n", "stderr"), Say(b"ValueError: no\n", "stderr")), exit_code=3
        )
    )
    error = shell.run("%mgpu_srun --gpus 2 -- bash -c 'exit 3'").error_in_exec

    assert isinstance(error, JobFailed)
    assert (error.exit_code, error.job_id, error.last_lines) == (
        3,
        "MOCK0000",
        ("Traceback", "ValueError: no"),
    )
    assert str(error) == "Failed after 1.0 s: on node-1, exit code 3 · MOCK0000"
    assert capsys.readouterr().out.splitlines() == [
        "JobFailed: exit code 3 on node-1",
    ]


def test_a_cancelled_job_fails_the_cell(shell: Shell, capsys: Captured) -> None:
    shell.plays(lambda spec: Play(final=JobState.CANCELLED, exit_code=143))
    error = shell.run("%mgpu_srun -- x").error_in_exec
    assert isinstance(error, JobCancelled)
    assert error.exit_code == 143


def test_an_interrupt_cancels_the_job_and_is_raised_again(shell: Shell, capsys: Captured) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    shell.plays(lambda spec: Play(hold=True, output=(Say(b"up\n"),)), on_hold=interrupt)
    error = shell.run("%mgpu_srun -- sleep 100").error_in_exec

    assert type(error) is KeyboardInterrupt
    assert shell.mock.jobs["MOCK0000"].cancelled.is_set()
    out, _ = capsys.readouterr()
    assert out.splitlines() == ["up", "KeyboardInterrupt: Cancelled by you after 1.0 s on node-1 · MOCK0000"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("%mgpu_srun --gpu 1 -- x", "There is no flag --gpu: use --gpus, or see %mgpu_srun --help."),
        ("%mgpu_srun", "Name the command after `--`, as in `%mgpu_srun --gpus 1 -- python train.py`."),
        ("%mgpu_srun -- echo 'a", "The quotation mark at 'a is never closed: close it, or write \\'"),
        ("%mgpu_queue --zebra", "There is no flag --zebra here: see %mgpu_queue --help."),
        ("%%mgpu_srun\n   \n", "The cell has no body: write what is to run below the first line."),
    ],
)
def test_mistakes_are_usage_errors(shell: Shell, capsys: Captured, line: str, sentence: str) -> None:
    error = shell.run(line).error_in_exec
    assert (type(error), str(error)) == (UsageError, sentence)
    assert capsys.readouterr() == ("", f"UsageError: {sentence}\n")


def test_no_server_is_one_line(shell: Shell, capsys: Captured) -> None:
    shell.mock.failures = [lost("Nobody answers.")]
    assert isinstance(shell.run("%mgpu_queue").error_in_exec, Unavailable)
    assert capsys.readouterr().out == "ConnectionLost: Nobody answers.\n"


def test_background_returns_the_job(shell: Shell) -> None:
    shell.plays(lambda spec: Play(output=(Say(b"hi\n"),)))
    result = shell.run("%mgpu_srun --background --as job -- x").result
    assert isinstance(result, Job)
    assert shell.shell.user_ns["job"] is result
    assert shell.run("job.wait(60).output()").result == "hi\n"
    assert shell.run("%mgpu_srun --background --json -- x").result == {
        "job_id": "MOCK0001",
        "state": "completed",
    }
    assert shell.run("%mgpu_srun --as second -- x").success
    assert shell.shell.user_ns["second"].id == "MOCK0002"


def test_tables_escape_what_users_wrote(shell: Shell) -> None:
    shell.plays(lambda spec: Play(hold=True))
    evil = "<img src=x onerror=alert(1)>"
    shell.shell.user_ns["evil"] = evil
    assert shell.run("%mgpu_srun --background --name $evil -- echo $evil").success
    queue = shell.run("%mgpu_queue").result
    assert isinstance(queue, Queue)
    page = queue._repr_html_()
    assert ("<img" in page, page.count("&lt;img src=x onerror=alert(1)&gt;")) == (False, 2)
    headings = ("Running Jobs", "Queue", "Cluster Status")
    assert [heading for heading in headings if heading not in page or heading not in repr(queue)] == []


def test_nodes_say_that_they_are_simulated(shell: Shell) -> None:
    table = shell.run("%mgpu_nodes").result
    assert isinstance(table, Table)
    assert repr(table).splitlines()[:3] == [
        "4 of 4 GPUs free (simulated)",
        "Node    State   GPU                           Memory  Busy  Held by",
        "node-1  online  0: Simulated GPU (simulated)  80 GiB        free",
    ]
    assert "(simulated)" in table._repr_html_()


def test_nodes_name_who_uses_a_gpu_from_outside() -> None:
    busy = replace(
        a_node("n", 1).gpus[0],
        state="outside",
        reason="In use outside mgpu by pid 8 of <b>.",
        simulated=False,
    )
    table = nodes_table([replace(a_node("n", 1), gpus=(busy,), gpu_note="One is missing.")])

    assert repr(table).splitlines() == [
        "0 of 1 GPU free",
        "Node  State   GPU               Memory  Busy  Held by",
        "n     online  One is missing.",
        "n     online  0: Simulated GPU  80 GiB        outside: In use outside mgpu by pid 8 of <b>.",
    ]
    assert "pid 8 of &lt;b&gt;." in table._repr_html_()


def test_cancel_takes_expressions(shell: Shell, capsys: Captured) -> None:
    shell.plays(lambda spec: Play(hold=spec.name != "over"))
    shell.run("a = %mgpu_srun --background -- x")
    shell.run("b = %mgpu_srun --background --name over -- x")
    capsys.readouterr()
    assert shell.run("%mgpu_cancel {a.id}").success
    assert capsys.readouterr().err == "Job MOCK0000 cancelled successfully.\n"
    assert (
        str(shell.run("%mgpu_cancel {b.id}").error_in_exec)
        == "Cancel failed: Job MOCK0001 has ended already (completed)."
    )
    assert shell.run("%mgpu_cancel --all").success


def test_help(shell: Shell, capsys: Captured) -> None:
    for magic in ("srun", "queue", "nodes", "cancel"):
        assert shell.run(f"%mgpu_{magic} --help").result is None
        assert capsys.readouterr().out.startswith(f"usage: %mgpu_{magic}")


def test_rich_notes_are_html_with_text_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[tuple[str, str]] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append((data["text/plain"], data["text/html"]))

    def display(data: dict[str, str], **options: bool) -> Handle:
        Handle().update(data, raw=True)
        return Handle()

    monkeypatch.setattr("mgpu_jupyter.notebook.notes.display", display)
    notes = RichNotes()
    notes.show_waiting("a <b>")
    notes.show_waiting("c")
    notes.clear_waiting()
    notes.clear_waiting()
    notes.say("done")
    assert [text for text, _ in shown] == ["a <b>", "c", "", "done"]
    assert ("&lt;b&gt;" in shown[0][1], shown[2][1]) == (True, "")


def test_explain_and_dry_run(shell: Shell) -> None:
    shell.plays(lambda spec: Play(reason="1 GPU is busy." if spec.gpus == 2 else ""))
    told = shell.run("%mgpu_srun --dry-run --gpus 2 -- x").result
    assert (told.told.verdict, shell.mock.specs) == ("not_now", [])
    assert shell.run("%%mgpu_srun --dry-run\nprint(1)").result.told.verdict == "now"
    assert shell.run("%mgpu_srun --dry-run --json -- x").result["verdict"] == "now"
    shell.run("%mgpu_srun --background --gpus 2 -- x")
    assert repr(shell.run("%mgpu_explain MOCK0000").result).startswith("Not now: 1 GPU is busy.\n")
    assert isinstance(shell.run("%mgpu_explain").error_in_exec, UsageError)
    assert shell.run("%mgpu_explain --help").result is None
