"""Code without a shared file system: a folder goes along with a job, and only what changed is sent."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import Conflict, InvalidRequest
from mgpu_jupyter.model.job import JobSpec, JobState
from tests.e2e.cluster import BIN, Cluster, bash


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    (root / "lib").mkdir(parents=True)
    (root / "train.py").write_text("import lib.model, os\nprint(lib.model.NAME, os.getcwd())\n")
    (root / "lib" / "__init__.py").write_text("")
    (root / "lib" / "model.py").write_text("NAME = 'one'\n")
    (root / "run.sh").write_text("#!/bin/sh\necho run $MGPU_NODE_ID\n")
    (root / "run.sh").chmod(0o750)
    (root / "weights.bin").write_bytes(os.urandom(3 * 1024 * 1024))
    (root / "notes.txt").write_text("private")
    (root / "latest").symlink_to("weights.bin")
    (root / ".mgpuignore").write_text("notes.txt\n")
    return root


def test_a_folder_is_the_directory_of_its_job_and_only_what_changed_is_sent(
    two_nodes: Cluster, project: Path
) -> None:
    client = two_nodes.client
    first = client.send_folder(project)
    assert (first.files, first.sent_pieces) == (5, 6)
    assert client.send_folder(project).sent_pieces == 0
    script = bash(
        "./run.sh; stat -c '%n %a' run.sh; readlink latest; sha256sum < weights.bin; ls; python3 train.py; "
        "pwd; echo x > new"
    )
    job = client.submit(script, gpus=0, sync=str(project)).wait(60)
    assert job.state == JobState.COMPLETED, job.info
    lines = job.output().splitlines()
    digest = subprocess.run(
        ["sha256sum"], input=(project / "weights.bin").read_bytes(), capture_output=True, check=True
    ).stdout.decode()
    node, place = job.info.nodes[0], lines[-1]
    assert lines[:4] == [f"run {node}", "run.sh 750", "weights.bin", digest.strip()]
    assert "notes.txt" not in lines
    assert lines[-2] == f"one {place}"
    two_nodes.wait_until(lambda: not Path(place).exists(), "the copy is gone with the job")
    assert not (project / "new").exists()

    (project / "lib" / "model.py").write_text("NAME = 'two'\n")
    changed = client.send_folder(project)
    assert (changed.sent_pieces, changed.sent_bytes) == (1, 13)
    pieces = two_nodes.state / "nodes" / node / "pieces"
    before = {path.name for path in pieces.glob("*/*")}
    again = client.submit(["python3", "train.py"], gpus=0, nodelist=[node], sync=str(project)).wait(60)
    assert again.output().startswith("two "), again.info
    assert len({path.name for path in pieces.glob("*/*")} - before) == 2  # one file and the list


def test_all_nodes_of_a_job_get_the_folder_from_the_command_line(two_nodes: Cluster, project: Path) -> None:
    words = [BIN / "mgpu_srun", "-N", "2", "--gpus-per-node", "1", "--sync", str(project), "--", "./run.sh"]
    done = subprocess.run(words, env=two_nodes.env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert sorted(line.split("run ")[-1] for line in done.stdout.splitlines() if "run n" in line) == [
        "n1",
        "n2",
    ]


def test_a_folder_that_was_never_sent_is_refused_and_a_big_one_names_its_biggest(
    two_nodes: Cluster, project: Path
) -> None:
    with pytest.raises(Conflict, match="send it again with --sync"):
        two_nodes.client.submit_spec(JobSpec(command=("true",), gpus=0, sync="0" * 64))
    env = two_nodes.env | {"MGPU_SYNC_LIMIT": "1"}
    words = [BIN / "mgpu_srun", "--gpus", "0", "--sync", ".", "--", "true"]
    done = subprocess.run(
        words, env=env, cwd=project, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 2
    assert "over the limit of 1 MiB; the biggest are weights.bin (3 MiB)" in done.stderr
    with pytest.raises(InvalidRequest, match="there is no such folder"):
        two_nodes.client.submit(["true"], gpus=0, sync=str(project / "nothing"))


def test_a_cell_needs_no_shared_file_system(two_nodes: Cluster) -> None:
    job = two_nodes.client.submit(script="print(6 * 7)", gpus=1, chdir="/no/such/directory").wait(60)
    assert (job.state, job.output()) == (JobState.COMPLETED, "42\n")
