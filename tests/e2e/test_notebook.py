"""Acceptance, row 3: cells run on nodes, output is live, failures raise, interrupts end the whole tree."""

from __future__ import annotations

import os
from pathlib import Path

import psutil

from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

PLACE = """%%mgpu_srun --gpus 1
import os; print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MGPU_NODE_ID"])
"""

TEN_LINES = """%%mgpu_srun --gpus 1
import os, time
for number in range(10):
    while not os.path.exists(f"{place}/go.{{number}}"):
        time.sleep(0.01)
    print("line", number)
"""

TREE = """%%mgpu_srun --gpus 1
import os, subprocess, time
marks = [subprocess.Popen(["sleep", "{seconds}"]), subprocess.Popen(["setsid", "sleep", "{seconds}"])]
with open({path!r}, "w") as file:
    file.write(os.environ["MGPU_JOB_ID"])
print("up", flush=True)
time.sleep({seconds})
"""


def test_a_cell_prints_its_gpu_and_node(notebook: Notebook) -> None:
    ran = notebook.run(PLACE)
    assert ran.error is None
    gpu, node = ran.text().split()
    assert (int(gpu) in range(4), node in ("n1", "n2")) == (True, True)


def test_a_failing_command_raises_with_its_exit_code(notebook: Notebook) -> None:
    ran = notebook.run("%mgpu_srun --gpus 2 -- bash -c 'echo last words >&2; exit 3'")
    assert ran.error is not None
    assert ran.error.startswith("JobFailed: ")
    assert "exit code 3" in ran.error
    assert ran.text("stderr").startswith("last words\n")


def test_exit_code_can_be_caught(notebook: Notebook) -> None:
    code = """
try:
    get_ipython().run_line_magic("mgpu_srun", "--gpus 2 -- bash -c 'exit 3'")
except Exception as error:
    print(error.exit_code)
"""
    ran = notebook.run(code)
    assert (ran.error, ran.text()) == (None, "3\n")


def test_lines_are_shown_as_they_come(notebook: Notebook, tmp_path: Path) -> None:
    """Each line reaches the notebook before the next one is printed, which waits for that: a line that came
    only with others would be waited for in vain.
    """
    ran = notebook.run(
        TEN_LINES.format(place=tmp_path), watch=lambda text: (tmp_path / f"go.{text.count('line')}").touch()
    )
    assert ran.error is None
    assert ran.text() == "".join(f"line {number}\n" for number in range(10))


def test_interrupt_ends_the_whole_tree(notebook: Notebook, two_nodes: Cluster, tmp_path: Path) -> None:
    path, seconds = (
        tmp_path / "job_id",
        f"4321.{os.getpid()}",
    )  # no other run of the tests has sleeps of this length

    def sleepers() -> list[int]:
        return [
            process.pid
            for process in psutil.process_iter(["cmdline"])
            if process.info["cmdline"] == ["sleep", seconds]
        ]

    ran = notebook.run_and_interrupt(TREE.format(path=str(path), seconds=seconds), when="up")
    assert ran.error is not None
    assert ran.error.startswith("KeyboardInterrupt: Cancelled by you")
    job_id = path.read_text()
    two_nodes.wait_until(lambda: two_nodes.client.job(job_id).state == "cancelled", "the job is cancelled")
    two_nodes.wait_until(lambda: sleepers() == [], "no sleep is left")
    again = notebook.run(PLACE)
    assert again.error is None


def test_tables(notebook: Notebook) -> None:
    assert notebook.run("job = %mgpu_srun --background --gpus 1 --name waits -- sleep 60").error is None
    nodes, jobs = notebook.run("%mgpu_nodes"), notebook.run("%mgpu_queue")
    assert (nodes.error, jobs.error) == (None, None)
    rows = nodes.shown().splitlines()
    assert [sum(row.startswith(node) for row in rows) for node in ("n1", "n2")] == [4, 4]
    text = jobs.shown()
    assert [
        line
        for line in ("--- Running Jobs ---", "  Name: waits", "--- Queue ---", "--- Cluster Status ---")
        if line not in text
    ] == []
    cancelled = notebook.run("job_id = job.id\n%mgpu_cancel $job_id\njob.wait(timeout=120)\nprint(job.state)")
    assert (cancelled.error, cancelled.text().splitlines()[-1]) == (None, "cancelled")


def test_background_job_is_an_object(notebook: Notebook) -> None:
    ran = notebook.run("job = %mgpu_srun --background --gpus 1 -- bash -c 'echo hello; exit 0'")
    assert ran.error is None
    ran = notebook.run("job.wait(timeout=120); print(job.state, job.exit_code, repr(job.output()))")
    assert (ran.error, ran.text()) == (None, "completed 0 'hello\\n'\n")
