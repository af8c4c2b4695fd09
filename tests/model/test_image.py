"""Container images: what is one, and what a node is told to run. Stand-ins for podman, docker and apptainer
say how they were called.
"""

from __future__ import annotations

import os
import subprocess
from itertools import pairwise
from pathlib import Path

import pytest

from mgpu_agent.protocol.errors import InvalidRequest
from mgpu_jupyter.model.checks import check
from mgpu_jupyter.model.image import in_container
from mgpu_jupyter.model.job import JobSpec

STAND_IN = '#!/bin/bash\n[ $1 = info ] && exit 0\nprintf \'%s\\n\' "${0##*/}" "$@"\n'


@pytest.mark.parametrize(
    "image", ["busybox", "pytorch/pytorch:2.5.1-cuda12.4", "ghcr.io:443/me/a_b/c:1", "a@sha256:" + "0" * 64]
)
def test_images(image: str) -> None:
    assert check(JobSpec(command=("x",), image=image)).image == image


@pytest.mark.parametrize(
    "image", ["UPPER", "a b", "-rm", "a:b:c", "a@sha256:1", "http://x/y", "a;b", "/a", "a/", ":tag"]
)
def test_what_is_no_image_is_refused(image: str) -> None:
    with pytest.raises(InvalidRequest, match="is no image: write it like"):
        check(JobSpec(command=("x",), image=image))


def run(tmp_path: Path, engine: str, spec: JobSpec, gpus: str) -> subprocess.CompletedProcess[str]:
    place = tmp_path / "bin"
    place.mkdir()
    for name in ("bash", "id", "sleep"):
        (place / name).symlink_to(
            f"/usr/bin/{name}" if os.path.exists(f"/usr/bin/{name}") else f"/bin/{name}"
        )
    if engine:
        (place / engine).write_text(STAND_IN)
        (place / engine).chmod(0o755)
    env = {
        "PATH": str(place),
        "MGPU_GPUS": gpus,
        "MGPU_JOB_ID": "ABCD1234",
        "MGPU_ATTEMPT": "1",
        "MGPU_NODE_ID": "n1",
        "LR": "0.1",
    }
    env["CUDA_VISIBLE_DEVICES"] = "2,3"
    words = in_container(spec, spec.command)
    return subprocess.run(
        words,
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        stdin=subprocess.DEVNULL,
    )


def test_podman_gets_gpus_directory_and_variables(tmp_path: Path) -> None:
    done = run(tmp_path, "podman", JobSpec(command=("python", "a b.py"), image="img:1"), "GPU-a,GPU-b")
    words = done.stdout.splitlines()
    assert (done.returncode, words[:2], words[-3:]) == (0, ["podman", "run"], ["img:1", "python", "a b.py"])
    pairs = list(pairwise(words))
    for pair in (
        ("--device", "nvidia.com/gpu=GPU-a"),
        ("--device", "nvidia.com/gpu=GPU-b"),
        ("--volume", f"{tmp_path}:{tmp_path}"),
        ("--workdir", str(tmp_path)),
        ("--env", "LR"),
        ("--env", "MGPU_JOB_ID"),
        ("--env", "CUDA_VISIBLE_DEVICES=0,1"),
        ("--network", "host"),
    ):
        assert pair in pairs
    assert "PATH" not in words


def test_docker_gets_the_user_and_the_gpus(tmp_path: Path) -> None:
    done = run(tmp_path, "docker", JobSpec(command=("x",), image="img"), "GPU-a,GPU-b")
    words = done.stdout.splitlines()
    assert (done.returncode, words[:4]) == (0, ["docker", "run", "--name", "mgpu-ABCD1234-1-0"])
    assert '"device=GPU-a,GPU-b"' in words
    assert f"{os.getuid()}:{os.getgid()}" in words


def test_simulated_gpus_are_not_handed_on(tmp_path: Path) -> None:
    done = run(tmp_path, "podman", JobSpec(command=("x",), image="img"), "GPU-SIM-n1-0")
    assert (done.returncode, "--device" in done.stdout) == (0, False)


def test_apptainer(tmp_path: Path) -> None:
    done = run(tmp_path, "apptainer", JobSpec(command=("x",), image="me/img:1"), "GPU-a")
    assert done.stdout.splitlines() == [
        "apptainer",
        "exec",
        "--nv",
        "--bind",
        str(tmp_path),
        "--pwd",
        str(tmp_path),
        "docker://me/img:1",
        "x",
    ]


def test_a_node_with_none_says_so(tmp_path: Path) -> None:
    done = run(tmp_path, "", JobSpec(command=("x",), image="img"), "")
    assert (done.returncode, done.stderr) == (
        127,
        (
            "mgpu: node n1 has no podman, docker or apptainer that works: install one there, or leave "
            "--image "
            "out.\n"
        ),
    )


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("print(1)", ("python3", "-u", "-c", "print(1)")),
        ("#!/bin/bash -e\nls", ("/bin/bash", "-e", "-c", "#!/bin/bash -e\nls")),
        ("#!/usr/bin/env python3\nx", ("/usr/bin/env", "python3", "-c", "#!/usr/bin/env python3\nx")),
    ],
)
def test_a_script_goes_by_the_command_line(script: str, words: tuple[str, ...]) -> None:
    spec = check(JobSpec(script=script, image="img"))
    assert in_container(spec, ())[5:] == words


@pytest.mark.parametrize("script", ["#!/usr/bin/awk -f\nx", "#!\nx"])
def test_a_script_that_cannot_is_refused(script: str) -> None:
    with pytest.raises(InvalidRequest, match="give a command with --image"):
        check(JobSpec(script=script, image="img"))
