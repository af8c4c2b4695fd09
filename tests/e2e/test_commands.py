"""The command line against a real cluster: exit codes, streams, Ctrl-C, JSON for scripts."""

from __future__ import annotations

import json
import re
import signal
import subprocess

from tests.e2e.cluster import BIN, Cluster


def _run(cluster: Cluster, *words: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = words
    return subprocess.run(
        [str(BIN / program), *arguments],
        env=cluster.env,
        cwd=cluster.directory,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_srun_is_the_job_in_front_of_the_shell(two_nodes: Cluster) -> None:
    done = _run(two_nodes, "mgpu_srun", "--gpus", "1", "--", "bash", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err" in done.stderr.splitlines()


def test_a_login_shell_reads_no_file_of_whoever_runs_the_tests(two_nodes: Cluster) -> None:
    done = _run(two_nodes, "mgpu_srun", "echo $HOME; ls -A ~ | grep -v ^.local$ || true")
    assert (done.returncode, done.stdout) == (0, f"{two_nodes.home}\n")


def test_srun_of_a_job_that_a_signal_ended(two_nodes: Cluster) -> None:
    assert _run(two_nodes, "mgpu_srun", "--", "bash", "-c", "kill -9 $$").returncode == 128 + 9


def test_a_program_that_does_not_exist(two_nodes: Cluster) -> None:
    done = _run(two_nodes, "mgpu_srun", "--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program" in done.stderr


def test_background_queue_logs_and_cancel(two_nodes: Cluster) -> None:
    words = (
        "mgpu_srun",
        "--background",
        "--json",
        "--gpus",
        "2",
        "--name",
        "long",
        "--",
        "bash",
        "-c",
        "echo here; sleep 300",
    )
    submitted = json.loads(_run(two_nodes, *words).stdout)
    job_id = submitted["job_id"]
    assert re.fullmatch(r"[A-Z0-9]{8}", job_id)

    def row() -> dict[str, object]:
        jobs = json.loads(_run(two_nodes, "mgpu_queue", "--all", "--json").stdout)["jobs"]
        return next(job for job in jobs if job["id"] == job_id)

    two_nodes.wait_until(lambda: row()["state"] == "running", "the job runs")
    found = row()
    assert {name: found[name] for name in ("id", "name", "gpus", "exit_code", "attempt")} == {
        "id": job_id,
        "name": "long",
        "gpus": 2,
        "exit_code": None,
        "attempt": 1,
    }
    assert found["nodes"] in (["n1"], ["n2"])
    nodes = json.loads(_run(two_nodes, "mgpu", "nodes", "--json").stdout)["nodes"]
    held = [gpu["job_id"] for node in nodes for gpu in node["gpus"]]
    assert sorted(held, key=str) == sorted([job_id] * 2 + [None] * 6, key=str)
    two_nodes.wait_until(
        lambda: _run(two_nodes, "mgpu", "logs", job_id).stdout == "here\n", "its output is there"
    )
    text = _run(two_nodes, "mgpu_queue").stdout
    assert [
        heading
        for heading in ("--- Running Jobs ---", "--- Queue ---", "--- Cluster Status ---")
        if heading not in text
    ] == []
    assert _run(two_nodes, "mgpu_cancel", job_id).returncode == 0
    two_nodes.wait_until(lambda: row()["state"] == "cancelled", "the job is cancelled")


def test_control_c_cancels(two_nodes: Cluster) -> None:
    command = [str(BIN / "mgpu_srun"), "--name", "interrupted", "--", "bash", "-c", "echo up; sleep 300"]
    program = subprocess.Popen(
        command,
        env=two_nodes.env,
        cwd=two_nodes.directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "up\n"
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=120)
    assert program.returncode == 130
    assert [str(job.wait(60).state) for job in two_nodes.client.jobs(name="interrupted")] == ["cancelled"]


def test_a_job_over_two_nodes(two_nodes: Cluster) -> None:
    script = 'echo "$MGPU_NODE_RANK of $MGPU_NNODES on $MGPU_NODE_ID with $CUDA_VISIBLE_DEVICES"'
    job = two_nodes.client.submit(["bash", "-c", script], nodes=2, gpus_per_node=4).wait(60)
    lines = [job.output(rank=rank) for rank in (0, 1)]
    nodes = [re.fullmatch(rf"{rank} of 2 on (n[12]) with 0,1,2,3\n", line) for rank, line in enumerate(lines)]
    assert {match.group(1) if match else None for match in nodes} == {"n1", "n2"}


def test_no_server_is_one_sentence(cluster: Cluster) -> None:
    done = _run(cluster, "mgpu_queue")
    assert done.returncode != 0
    assert (done.stdout, len(done.stderr.strip().splitlines())) == ("", 1)
    assert "Traceback" not in done.stderr


def test_files_of_output_are_written_where_the_job_runs_beside_the_log(two_nodes: Cluster) -> None:
    script = two_nodes.directory / "job.sh"
    script.write_text(
        "#!/bin/bash\n#SBATCH -N 2 --gpus-per-node=1 --job-name=files\n"
        "#SBATCH -o %x-%N-%t.out -e shared.err\necho out of $MGPU_RANK; echo bad >&2\n"
    )
    (two_nodes.directory / "shared.err").write_text("before\n")
    job_id = _run(two_nodes, "mgpu_sbatch", "--parsable", str(script)).stdout.strip()
    assert _run(two_nodes, "mgpu", "attach", job_id).returncode == 0
    files = sorted(two_nodes.directory.glob("files-*.out"))
    assert [(file.name, file.read_text()) for file in files] == [
        ("files-n1-0.out", "out of 0\n"),
        ("files-n2-1.out", "out of 1\n"),
    ]
    assert (two_nodes.directory / "shared.err").read_text() == "before\nbad\nbad\n"

    done = _run(two_nodes, "mgpu_srun", "-o", "%u-%j.out", "--", "bash", "-c", "echo here; exit 3")
    (file,) = two_nodes.directory.glob("*-????????.out")
    assert (done.returncode, done.stdout, file.read_text()) == (3, "here\n", "here\n")
    missing = _run(two_nodes, "mgpu_srun", "-o", "no/where", "--", "echo", "ran")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "--output no/where cannot be opened on this node: No such file or directory." in missing.stderr
