"""Acceptance, row 3: cells run on nodes, output is live, failures raise, interrupts end the whole tree."""

from __future__ import annotations

import time
from pathlib import Path

import psutil

from tests.e2e.cluster import Cluster
from tests.e2e.notebook import Notebook

PLACE = """%%mgpu_srun --gpus 1
import os; print(os.environ["CUDA_VISIBLE_DEVICES"], os.environ["MGPU_NODE_ID"])
"""

TEN_LINES = """%%mgpu_srun --gpus 1
import time
for number in range(10):
    print("line", number, time.time())
    time.sleep(0.2)
"""

TREE = """%%mgpu_srun --gpus 1
import os, subprocess, time
marks = [subprocess.Popen(["sleep", "4321.5"]), subprocess.Popen(["setsid", "sleep", "4321.5"])]
with open({path!r}, "w") as file:
    file.write(os.environ["MGPU_JOB_ID"])
print("up", flush=True)
time.sleep(4321.5)
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


def test_lines_are_shown_as_they_come(notebook: Notebook) -> None:
    """Each line reaches the notebook well before the next one is printed, not at the end."""
    seen: list[tuple[float, int]] = []
    ran = notebook.run(TEN_LINES, watch=lambda text: seen.append((time.time(), text.count("\n"))))
    assert ran.error is None
    lines = [line.split() for line in ran.text().splitlines()]
    assert [(word, int(number)) for word, number, _ in lines] == [("line", number) for number in range(10)]
    printed_at = [float(at) for _, _, at in lines]
    shown_at = [next(at for at, count in seen if count > number) for number in range(10)]
    delays = [round(shown - printed, 3) for shown, printed in zip(shown_at, printed_at, strict=True)]
    assert sorted(delays)[4] < 0.15, delays
    assert shown_at[8] < printed_at[9], delays
    assert len({round(at, 2) for at in shown_at}) >= 9, delays


def test_interrupt_ends_the_whole_tree(notebook: Notebook, two_nodes: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "job_id"

    def sleepers() -> list[int]:
        return [process.pid for process in psutil.process_iter(["cmdline"]) if "4321.5" in " ".join(process.info["cmdline"] or [])]

    started = time.monotonic()
    ran = notebook.run_and_interrupt(TREE.format(path=str(path)), when="up")
    assert ran.error is not None
    assert ran.error.startswith("KeyboardInterrupt: Cancelled by you")
    job_id = path.read_text()
    two_nodes.wait_until(lambda: two_nodes.client.job(job_id).state == "cancelled", "the job is cancelled")
    two_nodes.wait_until(lambda: sleepers() == [], "no sleep is left")
    assert time.monotonic() - started < 30
    again = notebook.run(PLACE)
    assert again.error is None


def test_tables(notebook: Notebook) -> None:
    assert notebook.run("job = %mgpu_srun --background --gpus 1 --name waits -- sleep 60").error is None
    nodes, jobs = notebook.run("%mgpu_nodes"), notebook.run("%mgpu_queue")
    assert (nodes.error, jobs.error) == (None, None)
    rows = nodes.shown().splitlines()
    assert [sum(row.startswith(node) for row in rows) for node in ("n1", "n2")] == [4, 4]
    text = jobs.shown()
    assert [line for line in ("--- Running Jobs ---", "  Name: waits", "--- Queue ---", "--- Cluster Status ---") if line not in text] == []
    cancelled = notebook.run("job_id = job.id\n%mgpu_cancel $job_id\njob.wait(timeout=30)\nprint(job.state)")
    assert (cancelled.error, cancelled.text().splitlines()[-1]) == (None, "cancelled")


def test_background_job_is_an_object(notebook: Notebook) -> None:
    ran = notebook.run("job = %mgpu_srun --background --gpus 1 -- bash -c 'echo hello; exit 0'")
    assert ran.error is None
    ran = notebook.run("job.wait(timeout=30); print(job.state, job.exit_code, repr(job.output()))")
    assert (ran.error, ran.text()) == (None, "completed 0 'hello\\n'\n")
